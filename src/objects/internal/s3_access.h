// Whether the caller of an S3 request may do what it asks, by the policies of its key. Actions are
// those of S3's service authorization reference; a key is compared byte for byte, so nothing in it
// can lead elsewhere.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "objects/internal/s3_call.h"

namespace atelier::objects::internal {

// All that the head of the request asks for, the source of a copy too. Before the body is read.
// AccessDenied names principal, action and resource.
Result<void> authorize(const Call& call, const Operation& operation);

// The names of an operation's action and of what a request is about, as policies have them.
std::string name_action(const Operation& operation);
std::string name_resource(const S3Request& request);

// For a copy that takes the tags of its source along.
Result<void> require_copy_of_tags(const Call& call, std::string_view from_bucket,
                                  std::string_view from_key);

// One action on an object, for what only the body names (DeleteObjects).
Result<void> require_on_object(const Call& call, std::string_view action, std::string_view key);

}  // namespace atelier::objects::internal
