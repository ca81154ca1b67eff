// Whatever a client sends as head or document: parsers of the embedded S3 must answer with a value
// or an Error. The first byte chooses the parser.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "objects/internal/bucket_rules.h"
#include "objects/internal/s3_call.h"

namespace {

using namespace atelier;
using namespace atelier::objects::internal;

// "GET\n/target\nheader:value\nheader:value..."
http::RequestHead head_of(std::string_view text) {
  const auto line = [&] {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view taken = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    return taken;
  };
  http::RequestHead head;
  head.method = line();
  head.target = line();
  while (!text.empty()) {
    const std::string_view field = line();
    const std::size_t colon = std::min(field.find(':'), field.size());
    head.headers.add(std::string{field.substr(0, colon)},
                     std::string{field.substr(std::min(colon + 1, field.size()))});
  }
  return head;
}

void try_head(std::string_view text) {
  const Result<S3Request> request = parse_request(head_of(text));
  if (!request) {
    static_cast<void>(error_response(to_s3_error(request.error()), "GET", text, "id"));
    return;
  }
  ATELIER_CHECK(is_utf8(request->key) && request->key.size() <= 1024, "a key that is none");
  static_cast<void>(find_operation(*request).has_value());
  for (const std::uint64_t size : {std::uint64_t{0}, std::uint64_t{10}, ~std::uint64_t{0} >> 1}) {
    const auto range = parse_range(request->header("range"), size);
    if (range && *range) {
      ATELIER_CHECK((*range)->length > 0 && (*range)->first + (*range)->length <= size,
                    "a range outside");
    }
  }
  static_cast<void>(check_read_conditions(*request, "", "etag", Time{}));
  static_cast<void>(check_read_conditions(*request, "x-amz-copy-source-", "etag", Time{}));
  static_cast<void>(write_conditions(*request));
  static_cast<void>(stored_headers(*request).has_value());
  static_cast<void>(stored_tags(*request).has_value());
  static_cast<void>(announced_checksum(*request).has_value());
  if (const auto source = request->header("x-amz-copy-source")) {
    static_cast<void>(parse_copy_source(*source).has_value());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text{reinterpret_cast<const char*>(data) + 1, size - 1};
  switch (data[0] % 7) {
    case 0:
      try_head(text);
      break;
    case 1:
      static_cast<void>(parse_delete(text).has_value());
      break;
    case 2:
      static_cast<void>(parse_complete(text).has_value());
      break;
    case 3:
      static_cast<void>(parse_create_bucket(text).has_value());
      break;
    case 4:
      static_cast<void>(parse_tagging(text, 10).has_value());
      break;
    case 5:
      static_cast<void>(parse_cors(text).has_value());
      break;
    default:
      static_cast<void>(parse_lifecycle(text).has_value());
  }
  return 0;
}
