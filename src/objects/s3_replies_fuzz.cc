// Whatever a server answers: the client's parsers must give a value or an Error.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "objects/internal/s3_replies.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace atelier;
  using namespace atelier::objects::internal;
  if (size == 0) return 0;
  const std::string_view text{reinterpret_cast<const char*>(data) + 1, size - 1};
  switch (data[0] % 5) {
    case 0:
      static_cast<void>(parse_list_page(text).has_value());
      break;
    case 1:
      static_cast<void>(parse_bucket_list(text).has_value());
      break;
    case 2:
      static_cast<void>(parse_element(text, "CopyObjectResult", "ETag").has_value());
      break;
    case 3:
      static_cast<void>(parse_delete_result(text).has_value());
      break;
    default: {
      http::ClientResponse reply;
      reply.status = data[0] * 2;
      reply.body = text;
      static_cast<void>(reply_error(reply, "GET s3://bucket/key"));
    }
  }
  return 0;
}
