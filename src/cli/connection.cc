#include "cli/connection.h"

#include <fmt/core.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <thread>

#include "base/file.h"
#include "base/hash.h"
#include "base/id.h"
#include "base/json.h"
#include "base/log.h"
#include "base/time.h"
#include "http/key_file.h"

namespace atelier::cli {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Clients of a folder's server name its region, whatever the environment says of others.
Result<std::string> region_of(const std::filesystem::path& folder) {
  const std::string named = environment("AWS_DEFAULT_REGION");
  return TRY(stored_region(folder)).value_or(named.empty() ? kDefaultRegion : named);
}

// Whether it is certain that no server listens at "http://127.0.0.1:8089": what else goes wrong is
// told by the call itself.
bool nobody_listens(const std::string& url) {
  const std::size_t host_at = url.find("://");
  const std::size_t colon = url.rfind(':');
  if (host_at == std::string::npos || colon <= host_at + 3) return false;
  std::string host = url.substr(host_at + 3, colon - host_at - 3);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), url.c_str() + colon + 1, &hints, &found) != 0) return false;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> address{found, &freeaddrinfo};
  const UniqueFd fd{::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  const timeval patience{.tv_sec = 1, .tv_usec = 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  return ::connect(fd.get(), found->ai_addr, found->ai_addrlen) != 0 && errno == ECONNREFUSED;
}

// The address that a server left in the folder, when one is there.
Result<std::string> address_in(const std::filesystem::path& folder) {
  Result<std::string> url = read_file(folder / "endpoint", 4096);
  std::string why = fmt::format("there is no '{}/endpoint'", folder.string());
  if (url) {
    while (!url->empty() && url->back() == '\n') url->pop_back();
    if (!nobody_listens(*url)) return url;
    why = fmt::format("nobody answers at {}, where the last one was", *url);
  }
  return Error{Code::kUnavailable,
               fmt::format("no server has its data in '{0}' ({1}); start one with: atelier serve "
                           "--data-dir {0}",
                           folder.string(), why)};
}

Result<Connection> from_data_folder(const std::filesystem::path& folder,
                                    std::chrono::milliseconds patience) {
  const auto since = std::chrono::steady_clock::now();
  Result<std::string> url = address_in(folder);
  while (!url && std::chrono::steady_clock::now() - since < patience) {
    std::this_thread::sleep_for(std::chrono::milliseconds{20});
    url = address_in(folder);
  }
  if (!url) return url.error();
  http::MemoryKeyStore keys;
  const http::KeyFile file = TRY(http::KeyFile::open(folder / "keys.json", keys));
  std::string region = TRY(region_of(folder));
  http::Credentials credentials = TRY(http::find_admin(file.entries())).credentials;
  return Connection{*std::move(url), std::move(region), std::move(credentials), {}, folder};
}

std::string service_of(std::string_view operation) {
  if (operation.starts_with("Atelier.")) return "atelier";
  return operation.starts_with("Logs_") ? "logs" : "sagemaker";
}

Error refusal(const http::ClientResponse& response) {
  const Result<json::value> body = parse_json(response.body);
  std::string type;
  std::string message;
  if (body) {
    type = find_string(*body, "__type").value_or("");
    message = find_string(*body, "message").value_or(find_string(*body, "Message").value_or(""));
  }
  Code code = Code::kInvalidArgument;
  if (type.find("NotFound") != std::string::npos ||
      message.find("not found") != std::string::npos) {
    code = Code::kNotFound;
  } else if (type.find("InUse") != std::string::npos) {
    code = Code::kAlreadyExists;
  } else if (response.status == 403 || type.find("Signature") != std::string::npos) {
    code = Code::kUnauthenticated;
  } else if (response.status >= 500) {
    code = Code::kUnavailable;
  }
  if (message.empty()) message = fmt::format("the server answered HTTP {}", response.status);
  return Error{code, type.empty() ? message : fmt::format("{} ({})", message, type),
               response.status >= 500 ? Retry::kYes : Retry::kNo};
}

}  // namespace

Result<std::optional<std::string>> stored_region(const std::filesystem::path& data_folder) {
  Result<std::string> text = read_file(data_folder / "region", 256);
  if (!text && text.error().code == Code::kNotFound) return std::optional<std::string>{};
  if (!text) return text.error();
  while (!text->empty() && text->back() == '\n') text->pop_back();
  return std::optional{*std::move(text)};
}

std::filesystem::path default_data_folder() {
  if (const std::string named = environment("ATELIER_DATA_DIR"); !named.empty()) return named;
  if (const std::string data = environment("XDG_DATA_HOME"); !data.empty()) {
    return std::filesystem::path{data} / "atelier";
  }
  const std::string home = environment("HOME");
  return std::filesystem::path{home.empty() ? "/root" : home} / ".local/share/atelier";
}

Result<Connection> find_connection(const std::filesystem::path& data_folder) {
  return find_connection(data_folder, std::chrono::seconds{2});
}

Result<Connection> find_connection(const std::filesystem::path& data_folder,
                                   std::chrono::milliseconds patience) {
  if (!data_folder.empty()) return from_data_folder(data_folder, patience);
  const std::string url = environment("AWS_ENDPOINT_URL");
  const std::string key = environment("AWS_ACCESS_KEY_ID");
  if (!url.empty() && !key.empty()) {
    const std::string region = environment("AWS_DEFAULT_REGION");
    return Connection{url,
                      region.empty() ? kDefaultRegion : region,
                      {key, environment("AWS_SECRET_ACCESS_KEY"), environment("AWS_SESSION_TOKEN")},
                      environment("AWS_CA_BUNDLE")};
  }
  return from_data_folder(default_data_folder(), patience);
}

objects::S3Endpoint s3_endpoint(const Connection& connection) {
  return {connection.url, connection.region, connection.credentials, connection.ca_file, {}};
}

void ApiClient::wait_for_server(std::chrono::seconds patience, std::function<bool()> interrupted) {
  patience_ = patience;
  interrupted_ = std::move(interrupted);
}

// False when there is nothing to wait for any more.
bool ApiClient::wait_and_look_again(std::chrono::steady_clock::time_point since, const Error& why) {
  if (std::chrono::steady_clock::now() - since > patience_ || interrupted_()) return false;
  log::warning("waiting for the server: " + why.message);
  std::this_thread::sleep_for(std::chrono::seconds{1});
  if (connection_.data_folder.empty()) return true;
  Result<Connection> found = find_connection(connection_.data_folder, std::chrono::milliseconds{0});
  if (found) connection_ = *std::move(found);
  return true;
}

Result<json::value> ApiClient::call(std::string_view operation, const json::value& request) {
  const std::string body = json::serialize(request);
  // One id for every try of a call: a create whose answer got lost is recognised when it comes
  // again.
  const std::string invocation = random_id();
  const auto since = std::chrono::steady_clock::now();
  for (int attempt = 0;; ++attempt) {
    http::ClientRequest call;
    call.method = "POST";
    call.url = connection_.url + "/";
    call.body = body;
    call.timeout = std::chrono::seconds{60};
    call.headers = {{"Host", connection_.url.substr(connection_.url.find("://") + 3)},
                    {"Content-Type", "application/x-amz-json-1.1"},
                    {"X-Amz-Target", std::string{operation}},
                    {"amz-sdk-invocation-id", invocation}};
    http::sign("POST", "/", call.headers, sha256_hex(body), connection_.credentials,
               connection_.region, service_of(operation), system_clock().now());
    Result<http::ClientResponse> response = client_.send(std::move(call));
    if (response && response->status == 200) {
      // An operation without an output (StopTrainingJob) answers with nothing.
      if (response->body.empty()) return json::value(json::object{});
      return parse_json(response->body);
    }
    Error error = response ? refusal(*response) : response.error().within(connection_.url);
    if (!response && patience_.count() > 0) {
      if (!wait_and_look_again(since, error)) return error;
      continue;
    }
    if (error.retry == Retry::kNo || attempt >= 4) return error;
    std::mt19937 random{std::random_device{}()};
    const int ceiling = 100 << std::min(attempt, 4);
    std::this_thread::sleep_for(std::chrono::milliseconds{
        std::uniform_int_distribution<int>{ceiling / 2, ceiling}(random)});
  }
}

}  // namespace atelier::cli
