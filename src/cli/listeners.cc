#include "cli/listeners.h"

#include <fmt/core.h>
#include <unistd.h>

#include <array>

#include "base/file.h"
#include "base/json.h"
#include "cli/descriptors.h"
#include "http/certificate.h"

namespace atelier::cli {
namespace fs = std::filesystem;
namespace {

constexpr const char* kPublic = "public-endpoint";

bool is_loopback(const std::string& listen) {
  return listen.starts_with("127.") || listen.starts_with("[::1]") ||
         listen.starts_with("localhost:");
}

std::string url_of(std::string_view scheme, const std::string& address, std::uint16_t port) {
  return fmt::format("{}://{}:{}", scheme,
                     address.find(':') == std::string::npos ? address : "[" + address + "]", port);
}

http::ServerOptions server_options(std::string listen, std::size_t connections) {
  http::ServerOptions options;
  options.max_connections = connections;
  options.listen = std::move(listen);
  // Puts that wait for the same fsync share it: as many as there are workers
  // (objects/local_store.h).
  options.worker_threads = 32;
  return options;
}

// ADDR:PORT of the last time, where that was on loopback.
std::string last_local(const fs::path& folder) {
  const std::string text = read_file(folder / "endpoint", 4096).value_or("");
  constexpr std::string_view kStart = "http://127.0.0.1:";
  if (!text.starts_with(kStart)) return "127.0.0.1:0";
  return text.substr(7, text.find('\n') - 7);
}

Result<http::Server> start_local(const fs::path& folder, std::size_t connections,
                                 http::Handler& handler) {
  Result<http::Server> server =
      http::Server::start(server_options(last_local(folder), connections), handler);
  if (server) return server;
  // Somebody else has the port.
  return http::Server::start(server_options("127.0.0.1:0", connections), handler);
}

std::string name_of_host() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "localhost";
  return name.data();
}

Result<PublicEndpoint> public_endpoint(const ListenOptions& options, const http::Server& server) {
  PublicEndpoint found;
  const std::string address = server.address();
  const bool any = address == "0.0.0.0" || address == "::";
  found.url = options.public_url.empty()
                  ? url_of("https", any ? name_of_host() : address, server.port())
                  : options.public_url;
  found.ca_file = options.tls_ca;
  if (found.ca_file.empty() && TRY(http::is_self_signed(options.tls_certificate))) {
    found.ca_file = options.tls_certificate;
  }
  std::error_code failure;
  if (!found.ca_file.empty()) found.ca_file = fs::absolute(found.ca_file, failure).string();
  return found;
}

}  // namespace

Result<void> check(const ListenOptions& options) {
  if (options.tls_certificate.empty() != options.tls_key.empty()) {
    return Error{Code::kInvalidArgument, "--tls-certificate and --tls-key go together"};
  }
  if (options.tls_certificate.empty() && !(options.tls_ca.empty() && options.public_url.empty())) {
    return Error{Code::kInvalidArgument, "--tls-ca and --url need --tls-certificate"};
  }
  if (!options.public_url.empty() && !options.public_url.starts_with("https://")) {
    return Error{Code::kInvalidArgument,
                 fmt::format("--url '{}' must be https://HOST:PORT", options.public_url)};
  }
  if (options.tls_certificate.empty() && !is_loopback(options.listen)) {
    return Error{
        Code::kInvalidArgument,
        fmt::format("--listen {}: only loopback addresses are served without TLS; give "
                    "--tls-certificate and --tls-key, or use 127.0.0.1:PORT (a tunnel such "
                    "as ssh -L reaches it from elsewhere)",
                    options.listen)};
  }
  return {};
}

Result<std::optional<PublicEndpoint>> read_public_endpoint(const fs::path& folder) {
  const Result<std::string> text = read_file(folder / kPublic, 16 * 1024);
  if (!text && text.error().code == Code::kNotFound) return std::optional<PublicEndpoint>{};
  if (!text) return text.error();
  const json::value value = TRY(parse_json(*text));
  return std::optional{PublicEndpoint{find_string(value, "url").value_or(""),
                                      find_string(value, "ca_file").value_or("")}};
}

Result<Listeners> Listeners::start(const ListenOptions& options, const fs::path& folder,
                                   http::Handler& handler) {
  TRY(check(options));
  const std::size_t connections =
      connections_for(raise_descriptor_limit(), !options.tls_certificate.empty());
  http::ServerOptions wanted = server_options(options.listen, connections);
  wanted.tls_certificate = options.tls_certificate;
  wanted.tls_key = options.tls_key;
  http::Server named = TRY(http::Server::start(wanted, handler));
  if (options.tls_certificate.empty()) {
    std::error_code failure;
    fs::remove(folder / kPublic, failure);
    Listeners made{std::move(named)};
    made.local_url_ = url_of("http", made.local_.address(), made.local_.port());
    TRY(replace_file(folder / "endpoint", made.local_url_ + "\n"));
    return made;
  }
  const PublicEndpoint outside = TRY(public_endpoint(options, named));
  Listeners made{TRY(start_local(folder, connections, handler))};
  made.tls_ = std::move(named);
  made.public_url_ = outside.url;
  made.local_url_ = url_of("http", made.local_.address(), made.local_.port());
  TRY(replace_file(
      folder / kPublic,
      json::serialize(json::object{{"url", outside.url}, {"ca_file", outside.ca_file}}) + "\n"));
  TRY(replace_file(folder / "endpoint", made.local_url_ + "\n"));
  return made;
}

void Listeners::stop() {
  if (tls_) tls_->stop();
  local_.stop();
}

}  // namespace atelier::cli
