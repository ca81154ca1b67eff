// Cross-origin requests, as browsers make them.
#pragma once

#include "http/message.h"
#include "objects/internal/s3_request.h"
#include "objects/local_store.h"

namespace atelier::objects::internal {

// The answer to a preflight (OPTIONS), which browsers send without a signature.
http::Response preflight(LocalStore& store, const http::RequestHead& head);

// What a browser has to see before it hands an answer on; nothing for requests without an Origin,
// or from one that the bucket's rules do not name.
void add_cors(LocalStore& store, const S3Request& request, http::Headers& headers);

}  // namespace atelier::objects::internal
