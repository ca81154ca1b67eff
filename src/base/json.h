// JSON by Boost.JSON: bounded parsing as Results, and the look-ups that our records need.
//
// Including this costs about a second of compile time; headers that only name a value include
// <boost/json/fwd.hpp>.
#pragma once

#include <boost/json.hpp>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace atelier {

namespace json = boost::json;

// Parses one document of at most `max_depth` levels. The error says where it broke. `storage` (a
// monotonic_resource, say) must outlive the value.
Result<json::value> parse_json(std::string_view text, std::size_t max_depth = 64,
                               const json::storage_ptr& storage = {});

Result<json::value> read_json_file(const std::filesystem::path& path,
                                   std::size_t max_bytes = std::size_t{64} << 20);

// Indented by two blanks, for files and terminals that people read.
std::string pretty_json(const json::value& value);

// Members of an object, or nothing when it lacks the member or it has another type.
const json::value* find_member(const json::value& value, std::string_view name);
std::optional<std::string> find_string(const json::value& value, std::string_view name);
std::optional<std::int64_t> find_int(const json::value& value, std::string_view name);
std::optional<double> find_number(const json::value& value, std::string_view name);
std::optional<bool> find_bool(const json::value& value, std::string_view name);
const json::object* find_object(const json::value& value, std::string_view name);
const json::array* find_array(const json::value& value, std::string_view name);

}  // namespace atelier
