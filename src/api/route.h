// Where a request goes, from its head alone.
#pragma once

#include <string>
#include <string_view>

#include "api/shapes.h"
#include "http/message.h"

namespace atelier::api {

struct Route {
  enum class To { kHealth, kS3, kJson, kQuery };
  To to = To::kS3;
  const ServiceModel* service = nullptr;  // null: a service that is not known here
  std::string service_name;               // as the client names it, made fit to print
  std::string operation;                  // kJson: after the dot of X-Amz-Target
};

// X-Amz-Target, else the service of the credential scope, else the path:
//   GET /ping without a signature   health
//   an unsigned form to /           Query
//   everything else                 S3
Route route_of(const http::RequestHead& head);

// The service in the credential scope of the Authorization header or of a presigned URL; empty when
// there is none. Nothing is verified here.
std::string scope_service(const http::RequestHead& head);

}  // namespace atelier::api
