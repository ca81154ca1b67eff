// The one port's handler: checks signatures and routes by X-Amz-Target, else by the service of the
// credential scope, else by path, to the families of operations (one file each) or to the embedded
// S3.
#pragma once

#include <memory>
#include <string>

#include "base/time.h"
#include "http/message.h"
#include "http/sigv4.h"
#include "jobs/service.h"
#include "objects/s3_service.h"

namespace atelier::api {

struct Parts {
  const http::KeyStore& keys;
  objects::S3Service& s3;
  jobs::Service& jobs;
  const Clock& clock;
  std::string region = "us-west-2";
  std::string account = "000000000000";
};

// `parts` (what its references name) must outlive the handler.
std::unique_ptr<http::Handler> make_front_door(const Parts& parts);

}  // namespace atelier::api
