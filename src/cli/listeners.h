// Where a server listens. Without TLS that is one loopback address. With TLS it is the address that
// people reach, and a plain one on loopback besides, for the jobs and the command line of this
// machine: they need no certificate to trust.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "http/server.h"

namespace atelier::cli {

struct ListenOptions {
  std::string listen = "127.0.0.1:8089";
  std::string tls_certificate{};
  std::string tls_key{};
  std::string tls_ca{};      // what clients are to trust; empty: the certificate, if it is its own
  std::string public_url{};  // as clients reach it; empty: from the address or the host's name
};

// Names what is missing or not allowed.
Result<void> check(const ListenOptions& options);

// For clients elsewhere, kept as JSON in DIR/public-endpoint while a server has TLS.
struct PublicEndpoint {
  std::string url;
  std::string ca_file;  // may be empty
};
Result<std::optional<PublicEndpoint>> read_public_endpoint(const std::filesystem::path& folder);

class Listeners {
 public:
  // Serves, and says in `folder` where: DIR/endpoint has the plain address, on the port of the
  // last time if it is free, so that programs that run find it again.
  static Result<Listeners> start(const ListenOptions& options, const std::filesystem::path& folder,
                                 http::Handler& handler);
  [[nodiscard]] const std::string& local_url() const { return local_url_; }
  // What people are told: https where there is TLS.
  [[nodiscard]] const std::string& url() const { return tls_ ? public_url_ : local_url_; }
  [[nodiscard]] bool has_tls() const { return tls_.has_value(); }
  Result<void> reload_certificate() { return tls_->reload_certificate(); }
  void stop();

 private:
  explicit Listeners(http::Server local) : local_(std::move(local)) {}
  http::Server local_;
  std::optional<http::Server> tls_;
  std::string local_url_, public_url_;
};

}  // namespace atelier::cli
