// The one port's handler: checks signatures and routes by X-Amz-Target, else by the service of the
// credential scope, else by path, to the families of operations (one file each) or to the embedded
// S3.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "api/audit.h"
#include "base/time.h"
#include "http/message.h"
#include "http/session_keys.h"
#include "http/sigv4.h"
#include "jobs/service.h"
#include "objects/s3_service.h"

namespace atelier::api {

struct Parts {
  const http::KeyStore& keys;
  objects::S3Service& s3;
  jobs::Service& jobs;
  const Clock& clock;
  const http::SessionKeyStore* sessions = nullptr;  // gives jobs their keys; null: nobody
  AuditLog* audit = nullptr;                        // null: calls are not recorded
  bool audit_reads = false;                         // reads that were allowed, too
  // Whether a job's ticket may be used from this address: by a program of that job. Null: by all.
  std::function<bool(std::string_view job, std::string_view peer)> is_program_of{};
  std::string region = "us-west-2";
  std::string account = "000000000000";
};

// `parts` (what its references name) must outlive the handler.
std::unique_ptr<http::Handler> make_front_door(const Parts& parts);

}  // namespace atelier::api
