// An embedded S3 on a port of this machine, for tests and benchmarks: what `atelier serve` has,
// without the rest of it.
#pragma once

#include <memory>
#include <string>

#include "base/time.h"
#include "http/memory_key_store.h"
#include "http/server.h"
#include "objects/s3_client.h"
#include "objects/s3_service.h"

namespace atelier::objects::testing {

inline const http::Credentials& test_credentials() {
  static const http::Credentials credentials{"testkey", "testsecret", ""};
  return credentials;
}

class S3Handler final : public http::Handler {
 public:
  S3Handler(S3Service& service, const Clock& clock) : service_(service), clock_(clock) {
    set_authority(access::Authority::everything());
  }
  // What the one key may do.
  void set_authority(access::Authority authority) {
    http::Principal principal;
    principal.access_key = test_credentials().access_key;
    principal.authority = std::move(authority);
    keys_.put({test_credentials(), std::move(principal), {}});
  }
  std::unique_ptr<http::Exchange> begin(const http::RequestHead& head) override {
    if (head.method == "OPTIONS") return http::answer(service_.preflight(head));
    const Result<http::Verified> caller = http::verify(head, keys_, clock_.now());
    if (!caller) return http::answer(service_.refuse(head, caller.error()));
    return service_.begin(head, *caller);
  }

 private:
  S3Service& service_;
  const Clock& clock_;
  http::MemoryKeyStore keys_;
};

class EmbeddedS3 {
 public:
  explicit EmbeddedS3(const std::filesystem::path& folder, const http::ServerOptions& options = {},
                      const Clock& clock = system_clock())
      : service_(S3Service::open(folder, clock, "us-west-2").value()),
        handler_(*service_, clock),
        server_(http::Server::start(options, handler_).value()) {}
  [[nodiscard]] S3Endpoint endpoint() const {
    return {.url = "http://127.0.0.1:" + std::to_string(server_.port()),
            .region = "us-west-2",
            .credentials = test_credentials(),
            .ca_file = {}};
  }
  [[nodiscard]] S3Service& service() { return *service_; }

 private:
  std::unique_ptr<S3Service> service_;
  S3Handler handler_;
  http::Server server_;
};

}  // namespace atelier::objects::testing
