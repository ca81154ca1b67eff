#include "base/strict_json.h"

#include <boost/json/basic_parser_impl.hpp>
#include <set>
#include <vector>

namespace atelier {
namespace {

// Notes the members of the objects that are open; a second of one name ends the parsing.
class MembersOnce {
 public:
  static constexpr std::size_t max_object_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_array_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_key_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_string_size = static_cast<std::size_t>(-1);
  using Failure = json::error_code;

  std::string twice;

  bool on_object_begin(Failure& /*failure*/) {
    open_.emplace_back();
    return true;
  }
  bool on_object_end(std::size_t /*count*/, Failure& /*failure*/) {
    open_.pop_back();
    return true;
  }
  bool on_key_part(std::string_view part, std::size_t /*size*/, Failure& /*failure*/) {
    name_ += part;
    return true;
  }
  bool on_key(std::string_view part, std::size_t /*size*/, Failure& failure) {
    name_ += part;
    const bool is_first = open_.back().insert(name_).second;
    if (!is_first) {
      twice = name_.substr(0, 64);
      failure = json::error::syntax;
    }
    name_.clear();
    return is_first;
  }

  bool on_document_begin(Failure& /*failure*/) { return true; }
  bool on_document_end(Failure& /*failure*/) { return true; }
  bool on_array_begin(Failure& /*failure*/) { return true; }
  bool on_array_end(std::size_t /*count*/, Failure& /*failure*/) { return true; }
  bool on_string_part(std::string_view, std::size_t /*size*/, Failure& /*failure*/) { return true; }
  bool on_string(std::string_view, std::size_t /*size*/, Failure& /*failure*/) { return true; }
  bool on_number_part(std::string_view, Failure& /*failure*/) { return true; }
  bool on_int64(std::int64_t, std::string_view, Failure& /*failure*/) { return true; }
  bool on_uint64(std::uint64_t, std::string_view, Failure& /*failure*/) { return true; }
  bool on_double(double, std::string_view, Failure& /*failure*/) { return true; }
  bool on_bool(bool, Failure& /*failure*/) { return true; }
  bool on_null(Failure& /*failure*/) { return true; }
  bool on_comment_part(std::string_view, Failure& /*failure*/) { return true; }
  bool on_comment(std::string_view, Failure& /*failure*/) { return true; }

 private:
  std::vector<std::set<std::string>> open_;
  std::string name_;  // as far as it has come
};

}  // namespace

Result<json::value> parse_strict_json(std::string_view text, std::size_t max_depth) {
  json::value value = TRY(parse_json(text, max_depth));
  json::parse_options options;
  options.max_depth = max_depth;
  json::basic_parser<MembersOnce> members{options};
  json::error_code failure;
  members.write_some(false, text.data(), text.size(), failure);
  const std::string& twice = members.handler().twice;
  if (!failure) return value;
  return Error{Code::kInvalidArgument, "the member '" + twice + "' is there twice"};
}

}  // namespace atelier
