#include <fmt/core.h>
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "base/file.h"
#include "base/json.h"
#include "cli/connection.h"
#include "cli/listeners.h"
#include "cli/verbs.h"

namespace atelier::cli {
namespace {
namespace fs = std::filesystem;

using Variables = std::vector<std::pair<std::string, std::string>>;

// As clients elsewhere reach the server, where it has TLS.
Result<Connection> from_outside(Connection connection) {
  if (connection.data_folder.empty()) return connection;
  const auto outside = TRY(read_public_endpoint(connection.data_folder));
  if (outside) {
    connection.url = outside->url;
    connection.ca_file = outside->ca_file;
  }
  return connection;
}

Variables client_environment(const Connection& connection, const std::string& sdk_config) {
  Variables variables = {
      {"AWS_ENDPOINT_URL", connection.url},
      {"AWS_DEFAULT_REGION", connection.region},
      {"AWS_REGION", connection.region},
      {"AWS_ACCESS_KEY_ID", connection.credentials.access_key},
      {"AWS_SECRET_ACCESS_KEY", connection.credentials.secret_key},
      // Without it clients look for the metadata service of a virtual machine in Amazon's cloud
      // first.
      {"AWS_EC2_METADATA_DISABLED", "true"},
  };
  if (!connection.ca_file.empty()) variables.emplace_back("AWS_CA_BUNDLE", connection.ca_file);
  if (!sdk_config.empty()) variables.emplace_back("SAGEMAKER_USER_CONFIG_OVERRIDE", sdk_config);
  return variables;
}

std::string shell_quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'')
      quoted += "'\\''";
    else
      quoted += c;
  }
  return quoted + "'";
}

std::string as_exports(const Variables& variables) {
  std::string text;
  for (const auto& [name, value] : variables)
    text += fmt::format("export {}={}\n", name, shell_quoted(value));
  return text;
}

std::string sdk_config(const Connection& connection) {
  return fmt::format(
      "# For the SageMaker Python SDK, written by 'atelier init'. Without it the SDK asks Amazon's "
      "own STS for\n"
      "# the account, whatever endpoint is set.\n"
      "SchemaVersion: '1.0'\n"
      "SageMaker:\n"
      "  PythonSDK:\n"
      "    Modules:\n"
      "      TelemetryOptOut: true\n"
      "      Session:\n"
      "        DefaultS3Bucket: sagemaker-{}-{}\n"
      "  TrainingJob:\n"
      "    RoleArn: {}\n",
      connection.region, kAccount, kRoleArn);
}

std::string resource_metadata() {
  return json::serialize(json::object{{"ExecutionRoleArn", kRoleArn}}) + "\n";
}

// botocore's table of addresses, with STS where this server is. The SDK builds its address of STS
// from that table (https, whatever AWS_ENDPOINT_URL says), and finds a user's own table in
// ~/.aws/models before botocore's. Other services' addresses are botocore's rules, which do not
// read it.
Result<std::string> endpoints_table(const Connection& connection) {
  constexpr std::string_view kHttps = "https://";
  if (!connection.url.starts_with(kHttps)) {
    return Error{Code::kInvalidArgument,
                 fmt::format("--endpoints: the SDK speaks to STS by https alone, and this server "
                             "is {}; start it with --tls-certificate and --tls-key",
                             connection.url)};
  }
  const std::string address = connection.url.substr(kHttps.size());
  const json::object sts = {
      {"endpoints", {{connection.region, json::object{{"hostname", address}}}}}};
  const json::object partition = {
      {"partition", "aws"},
      {"partitionName", "Atelier, by 'atelier init'"},
      {"regionRegex", R"(^(us|eu|ap|sa|ca|me|af|il|mx)\-\w+\-\d+$)"},
      {"dnsSuffix", "amazonaws.com"},
      {"defaults",
       {{"hostname", "{service}.{region}.{dnsSuffix}"},
        {"protocols", json::array{"https"}},
        {"signatureVersions", json::array{"v4"}}}},
      {"regions", {{connection.region, json::object{{"description", "this server"}}}}},
      {"services", {{"sts", sts}}}};
  return pretty_json(json::object{{"version", 3}, {"partitions", json::array{partition}}}) + "\n";
}

struct InitOptions {
  std::string data_folder;
  std::string sdk_config;
  std::string metadata;
  std::string env_file;
  std::string endpoints;
  bool as_json = false;
};

// A file that init writes, when it was told where.
struct InitFile {
  std::string path;
  std::string text;
  mode_t mode = 0644;
};

Result<void> write_new(const fs::path& path, const std::string& text, mode_t mode) {
  if (path.has_parent_path()) TRY(make_folders(path.parent_path()));
  Result<void> made = create_file_durably(path, text, mode);
  if (!made && made.error().code == Code::kAlreadyExists) {
    return Error{
        Code::kAlreadyExists,
        fmt::format(
            "'{}' is there already and is left as it is; name another file, or move it away",
            path.string())};
  }
  return made;
}

// Refuses before the first write, so that a run writes all that it was told or nothing.
Result<void> all_are_new(const std::vector<InitFile>& files) {
  std::error_code ignored;
  for (const InitFile& file : files) {
    if (fs::exists(fs::symlink_status(file.path, ignored))) {
      return Error{Code::kAlreadyExists,
                   fmt::format("'{}' is there already and is left as it is; nothing was written",
                               file.path)};
    }
  }
  return {};
}

Result<std::vector<InitFile>> files_of(const InitOptions& options, const Connection& connection) {
  std::vector<InitFile> files;
  if (!options.sdk_config.empty()) {
    files.push_back({options.sdk_config, sdk_config(connection)});
  }
  if (!options.metadata.empty()) files.push_back({options.metadata, resource_metadata()});
  if (!options.endpoints.empty()) {
    files.push_back({options.endpoints, TRY(endpoints_table(connection))});
  }
  if (!options.env_file.empty()) {
    std::error_code failure;
    const std::string config =
        options.sdk_config.empty() ? "" : fs::absolute(options.sdk_config, failure).string();
    files.push_back({options.env_file, as_exports(client_environment(connection, config)), 0600});
  }
  return files;
}

void show_what_there_is(const Connection& connection) {
  const Result<std::string> endpoints = endpoints_table(connection);
  std::cout << "Nothing is written until you say where. What unmodified SDK code needs:\n\n"
            << "1. the variables that 'atelier env' prints      --env-file FILE\n"
            << "2. the SDK's configuration                      --sdk-config "
               "~/.config/sagemaker/config.yaml\n\n"
            << sdk_config(connection) << "\n"
            << "3. for get_execution_role() without a call      --metadata "
               "/opt/ml/metadata/resource-metadata.json\n\n"
            << resource_metadata() << "\n"
            << "4. for what the SDK asks STS itself             --endpoints "
               "~/.aws/models/endpoints.json\n\n"
            << (endpoints ? *endpoints : "(" + endpoints.error().message + ")\n");
}

Result<void> init(const InitOptions& options) {
  const Connection connection = TRY(from_outside(TRY(find_connection(options.data_folder))));
  const std::vector<InitFile> files = TRY(files_of(options, connection));
  TRY(all_are_new(files));
  json::array written;
  for (const InitFile& file : files) {
    TRY(write_new(file.path, file.text, file.mode));
    written.emplace_back(file.path);
    if (!options.as_json) std::cout << "wrote " << file.path << '\n';
  }
  if (options.as_json) {
    std::cout << json::serialize(json::object{{"wrote", written}}) << '\n';
  } else if (files.empty()) {
    show_what_there_is(connection);
  }
  return {};
}

}  // namespace

void add_env(CLI::App& program, Outcome& outcome) {
  auto folder = std::make_shared<std::string>();
  auto as_json = std::make_shared<bool>(false);
  CLI::App* verb = program.add_subcommand(
      "env", "Prints what boto3, the AWS CLI and the SDK need in their environment");
  verb->add_option("--data-dir", *folder, "Data folder of the server");
  verb->add_flag("--json", *as_json, "As a JSON object");
  verb->footer("Example: eval \"$(atelier env --data-dir ./data)\" && aws s3 ls");
  verb->callback([folder, as_json, &outcome] {
    Result<Connection> connection = find_connection(*folder);
    if (connection) connection = from_outside(*std::move(connection));
    if (!connection) {
      outcome.exit_code = report_error(connection.error());
      return;
    }
    const Variables variables = client_environment(*connection, "");
    if (!*as_json) {
      std::cout << as_exports(variables);
      return;
    }
    json::object object;
    for (const auto& [name, value] : variables) object[name] = value;
    std::cout << pretty_json(object) << '\n';
  });
}

void add_init(CLI::App& program, Outcome& outcome) {
  auto options = std::make_shared<InitOptions>();
  CLI::App* verb = program.add_subcommand(
      "init", "Writes the configuration that unmodified SDK code needs, where you say");
  verb->add_option("--data-dir", options->data_folder, "Data folder of the server");
  verb->add_option("--sdk-config", options->sdk_config,
                   "Write the SageMaker SDK's config.yaml here");
  verb->add_option("--metadata", options->metadata, "Write resource-metadata.json here");
  verb->add_option("--env-file", options->env_file,
                   "Write the exports of 'atelier env' here (mode 0600)");
  verb->add_option("--endpoints", options->endpoints,
                   "Write botocore's endpoints.json here, for the SDK's own calls of STS; of a "
                   "server with TLS");
  verb->add_flag("--json", options->as_json, "What was written as a JSON object");
  verb->footer(
      "A file that is there is never written over. Without options it shows what it would write.\n"
      "Example: atelier init --data-dir ./data --sdk-config ./sdk.yaml --env-file ./atelier.env");
  verb->callback([options, &outcome] {
    const Result<void> done = init(*options);
    outcome.exit_code = done ? kOk : report_error(done.error());
  });
}

}  // namespace atelier::cli
