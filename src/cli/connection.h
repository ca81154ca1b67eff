// How the command line finds and calls a server: the same signed API that every other client uses.
#pragma once

#include <boost/json/fwd.hpp>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "http/client.h"
#include "http/sigv4.h"
#include "objects/s3_client.h"

namespace atelier::cli {

inline constexpr const char* kDefaultRegion = "us-west-2";
inline constexpr const char* kAccount = "000000000000";
inline constexpr const char* kRoleArn = "arn:aws:iam::000000000000:role/atelier";

// $ATELIER_DATA_DIR, else $XDG_DATA_HOME/atelier, else ~/.local/share/atelier.
std::filesystem::path default_data_folder();

// The region that a data folder was made for, from its file `region`; nothing when it has none.
Result<std::optional<std::string>> stored_region(const std::filesystem::path& data_folder);

struct Connection {
  std::string url;  // "http://127.0.0.1:8089"
  std::string region;
  http::Credentials credentials;
  std::string ca_file = {};                // to verify an https server with; empty: the system's
  std::filesystem::path data_folder = {};  // empty when the environment named the server
};

// A named data folder is asked first; without one AWS_ENDPOINT_URL with the AWS keys of the
// environment; then the default data folder. The error says how to start or name a server. One that
// is just being started in a folder is waited for, two seconds if nothing else is said.
Result<Connection> find_connection(const std::filesystem::path& data_folder);
Result<Connection> find_connection(const std::filesystem::path& data_folder,
                                   std::chrono::milliseconds patience);

objects::S3Endpoint s3_endpoint(const Connection& connection);

// Calls operations of the AWS JSON protocol.
class ApiClient {
 public:
  explicit ApiClient(Connection connection)
      : connection_(std::move(connection)),
        client_(http::Client::Options{.ca_file = connection_.ca_file}) {}
  // `operation`: "SageMaker.DescribeTrainingJob", "Logs_20140328.GetLogEvents". A refusal by the
  // server becomes an Error whose message is the server's own.
  Result<boost::json::value> call(std::string_view operation, const boost::json::value& request);
  // From now on a server that does not answer is waited for, and found again by its data folder on
  // another port: for calls that only look. Ends early when `interrupted` says so.
  void wait_for_server(std::chrono::seconds patience, std::function<bool()> interrupted);
  [[nodiscard]] const Connection& connection() const { return connection_; }

 private:
  bool wait_and_look_again(std::chrono::steady_clock::time_point since, const Error& why);

  Connection connection_;
  http::Client client_;
  std::chrono::seconds patience_{0};
  std::function<bool()> interrupted_;
};

}  // namespace atelier::cli
