// What S3 servers answer, read for the client: errors and documents.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "http/client.h"
#include "objects/object_store.h"

namespace atelier::objects::internal {

// The Error of an answer that is not 2xx. `what` names the request: "GET s3://bucket/key". The
// message has the server's code and words.
Error reply_error(const http::ClientResponse& reply, std::string_view what);
// S3's code in an error document; "" when there is none.
std::string reply_code(std::string_view body);

Result<ListPage> parse_list_page(std::string_view xml);
Result<std::vector<std::string>> parse_bucket_list(std::string_view xml);
// The text of the element `name` below the root, which must be `root`: an Error in its place (S3
// sends some with status 200) becomes an Error.
Result<std::string> parse_element(std::string_view xml, std::string_view root,
                                  std::string_view name);
// The first failure that a DeleteResult reports.
Result<void> parse_delete_result(std::string_view xml);

Result<ObjectInfo> object_info(std::string_view key, const http::Headers& headers);
std::string unquote_etag(std::string_view etag);

}  // namespace atelier::objects::internal
