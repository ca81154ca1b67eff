#include <fmt/core.h>
#include <sys/prctl.h>
#include <unistd.h>
#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <memory>

#include "agent/instances.h"
#include "api/credentials.h"
#include "api/front_door.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/time.h"
#include "cli/connection.h"
#include "cli/listeners.h"
#include "cli/verbs.h"
#include "compute/instance_types.h"
#include "compute/packages.h"
#include "compute/program_libraries.h"
#include "compute/sandbox.h"
#include "compute/socket_users.h"
#include "http/live_keys.h"
#include "http/session_keys.h"
#include "jobs/job_access.h"
#include "jobs/request_instances.h"
#include "jobs/service.h"
#include "objects/s3_service.h"

namespace atelier::cli {
namespace {
namespace fs = std::filesystem;

struct ServeOptions {
  std::string data_folder;
  ListenOptions listen;
  std::string region;    // empty: that of the data folder, else kDefaultRegion
  std::string python;    // empty: compute::choose_python
  std::string packages;  // empty: as before
  bool host_network = false;
  bool audit_reads = false;
  std::optional<std::uint64_t> cache_bytes;
  int abandoned_uploads_days = 7;
  bool verbose = false;
  bool as_json = false;
};

// Holds the folder for this server alone, and says who holds it if another does.
Result<UniqueFd> take_folder(const fs::path& folder) {
  TRY(make_folders(folder, 0700));
  Result<UniqueFd> lock = lock_file(folder / "server.lock");
  if (!lock) {
    if (lock.error().code != Code::kFailedPrecondition) return lock;
    const Result<std::string> owner = read_file(folder / "server.lock", 64);
    return Error{
        Code::kFailedPrecondition,
        fmt::format("another server (process {}) has its data in '{}'; stop it, or name another "
                    "folder with --data-dir",
                    owner ? owner->substr(0, owner->find('\n')) : "unknown", folder.string())};
  }
  if (ftruncate(lock->get(), 0) != 0) return error_from_errno("server.lock", errno);
  TRY(write_all(lock->get(), fmt::format("{}\n", getpid())));
  return lock;
}

// A folder belongs to one region: the ARNs of its jobs and the requests of its clients carry it.
Result<std::string> take_region(const fs::path& folder, const std::string& wanted) {
  const std::optional<std::string> stored = TRY(stored_region(folder));
  if (stored && !wanted.empty() && *stored != wanted) {
    return Error{Code::kFailedPrecondition,
                 fmt::format("--region {}: '{}' was made for {}, which the ARNs of its jobs carry; "
                             "leave --region out, or name another folder with --data-dir",
                             wanted, folder.string(), *stored)};
  }
  if (stored) return *stored;
  const std::string region = wanted.empty() ? kDefaultRegion : wanted;
  const bool plain =
      !region.empty() && region.size() <= 64 && std::ranges::all_of(region, [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
      });
  if (!plain) {
    return Error{Code::kInvalidArgument,
                 fmt::format("--region '{}': write it as us-west-2 is written: small letters, "
                             "digits and hyphens",
                             region)};
  }
  TRY(write_file_durably(folder / "region", region + "\n"));
  return region;
}

// What the user compares with; the built-in list where the folder has no file of that name.
Result<std::vector<compute::PriceList>> price_lists(const fs::path& folder) {
  const fs::path path = folder / "prices.toml";
  const Result<std::string> text = read_file(path, std::size_t{1} << 20);
  if (!text && text.error().code == Code::kNotFound) return compute::builtin_price_lists();
  if (!text) return text.error();
  auto lists = compute::parse_price_lists(*text);
  if (!lists) return lists.error().within(path.string());
  return lists;
}

Result<compute::InstanceTable> instance_table(const fs::path& folder) {
  const fs::path path = folder / "instances.toml";
  Result<std::string> text = read_file(path, std::size_t{1} << 20);
  if (!text) {
    if (text.error().code == Code::kNotFound) return compute::builtin_instance_table();
    return text.error();
  }
  Result<compute::InstanceTable> table = compute::parse_instance_table(*text);
  if (!table) return table.error().within(path.string());
  TRY(compute::read_interruption_traces(*table, folder));
  return table;
}

// What --packages says, which later starts keep; else what an earlier start was told.
Result<compute::PackageSource> package_source(const ServeOptions& options, const fs::path& folder) {
  if (options.packages.empty()) return compute::load_package_source(folder);
  std::string words = options.packages;
  std::error_code failure;
  if (fs::is_directory(words, failure)) words = fs::absolute(words, failure).string();
  Result<compute::PackageSource> source = compute::parse_package_source(words);
  if (!source) return source.error().within("--packages");
  if (source->kind == compute::PackageSource::Kind::kFolder && !fs::is_directory(words, failure)) {
    return Error{Code::kInvalidArgument, fmt::format("--packages '{}' is no folder", words)};
  }
  // Where the server is root, each job is a user of its own.
  const fs::perms readable = fs::perms::others_read | fs::perms::others_exec;
  if (source->kind == compute::PackageSource::Kind::kFolder && geteuid() == 0 &&
      (fs::status(words, failure).permissions() & readable) != readable) {
    return Error{
        Code::kInvalidArgument,
        fmt::format("--packages '{0}': the users that jobs run as can not read it; chmod -R "
                    "a+rX '{0}'",
                    words)};
  }
  TRY(compute::store_package_source(folder, *source));
  return source;
}

// A fifth of the disk, unless --cache-size says otherwise.
std::uint64_t cache_bytes(const ServeOptions& options, const fs::path& folder) {
  if (options.cache_bytes) return *options.cache_bytes;
  std::error_code unknown;
  const fs::space_info disk = fs::space(folder, unknown);
  return unknown ? 0 : disk.capacity / 5;
}

// What atelier-vision needs to see besides the system's folders: itself, its libraries, and the
// folder of pretrained weights, which it looks for in the same places (vision/pretrained.h).
compute::RuntimeTable runtimes(const std::string& python, const fs::path& self) {
  const fs::path vision = self.parent_path() / "atelier-vision";
  std::error_code ignored;
  compute::RuntimeTable table;
  table.python = python;
  if (!fs::exists(vision, ignored)) return table;
  table.vision_program = vision.string();
  table.vision_folders = {vision.string()};
  std::vector<fs::path> weights = {self.parent_path().parent_path() / "share/weights"};
  if (const char* named = std::getenv("ATELIER_WEIGHTS_DIR")) weights.emplace_back(named);
  for (fs::path above = self.parent_path(); above.has_relative_path();
       above = above.parent_path()) {
    weights.push_back(above / ".cache/weights");
  }
  for (const fs::path& folder : weights) {
    if (fs::is_directory(folder, ignored)) table.vision_folders.push_back(folder.string());
  }
  if (!ATELIER_TORCH_ELSEWHERE) return table;
  const auto libraries = compute::library_folders(vision);
  if (libraries) {
    table.vision_folders.insert(table.vision_folders.end(), libraries->begin(), libraries->end());
  } else {
    log::warning(fmt::format("image-classification cannot run: {}", libraries.error().message));
  }
  return table;
}

// The job's own keys: the agent's, for as long as its run may last, and the ticket by which
// programs fetch theirs. Both end with the job.
void give_keys(const jobs::TrainingJob& job, const http::SessionKeys& sessions,
               const std::string& url, Time now, agent::AgentSpec& spec) {
  // What there is to deliver may wait for a server that is away.
  constexpr std::chrono::hours kDelivery{7 * 24};
  const http::SessionClaims claims{job.name, to_epoch_milliseconds(job.created),
                                   now + spec.max_runtime + spec.stop_grace + kDelivery};
  spec.s3.credentials = sessions.issue(claims);
  spec.credentials_uri = url + api::kCredentialsPath;
  spec.credentials_ticket = sessions.issue_ticket(claims);
}

std::vector<access::Authority::Grant> grants_of(const http::LiveKeys& keys,
                                                const std::string& arn) {
  std::vector<access::Authority::Grant> grants;
  for (const http::KeyStore::Entry& entry : keys.with_arn(arn)) {
    if (entry.expires && *entry.expires <= system_clock().now()) continue;
    const auto& more = entry.principal.authority.grants();
    grants.insert(grants.end(), more.begin(), more.end());
  }
  return grants;
}

// A rotated key is of the same user as the one before it.
std::vector<std::string> user_ids_of(const http::LiveKeys& keys, const std::string& arn) {
  std::vector<std::string> ids;
  for (const http::KeyStore::Entry& entry : keys.with_arn(arn)) {
    if (entry.expires && *entry.expires <= system_clock().now()) continue;
    ids.push_back(entry.principal.user_id);
  }
  return ids;
}

// A ticket that another job has picked up is of no use to it: where the server is root each job is
// a user of its own, and so is who passes on what its network sends. The socket says whose it is.
bool is_program_of(jobs::Service& service, std::string_view job, std::string_view peer) {
  const Result<std::vector<uid_t>> users = compute::users_of_socket(peer);
  if (!users) {
    log::error(fmt::format("whose socket '{}' is: {}", peer, users.error().message));
    return false;
  }
  // Programs of a job with a warm pool are the pool's user.
  std::vector<std::string> names{std::string{job}};
  if (const auto record = service.describe(names[0]); record && !record->warm.name.empty()) {
    names.push_back(record->warm.name);
  }
  const auto is_theirs = [&](uid_t user) {
    if (user == geteuid()) return true;  // who runs the server may do all of this anyway
    if (user == compute::program_identity(agent::network_identity(job)).uid) return true;
    for (const std::string& name : names) {
      for (std::int64_t i = 1; i <= jobs::kMaxInstances; ++i) {
        const std::string host = fmt::format("algo-{}", i);
        if (compute::program_identity(agent::sandbox_name(name, host)).uid == user) return true;
      }
    }
    return false;
  };
  return !users->empty() && std::ranges::all_of(*users, is_theirs);
}

Result<void> serve(const ServeOptions& options) {
  TRY(check(options.listen));
  std::error_code failure;
  const fs::path self = fs::read_symlink("/proc/self/exe", failure);
  const std::string python =
      options.python.empty() ? compute::choose_python("/usr/bin/python3", self) : options.python;
  if (::access(python.c_str(), X_OK) != 0) {
    return error_from_errno(fmt::format("--python '{}'", python), errno);
  }
  // Signals are taken by sigwait below; every thread started from here on leaves them alone.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  if (!options.listen.tls_certificate.empty()) sigaddset(&signals, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  const fs::path folder = fs::absolute(options.data_folder, failure).lexically_normal();
  const UniqueFd lock = TRY(take_folder(folder));
  const std::string region = TRY(take_region(folder, options.region));
  const std::unique_ptr<http::LiveKeys> keys = TRY(http::LiveKeys::open(folder / "keys.json"));
  const Clock& clock = system_clock();
  const std::unique_ptr<objects::S3Service> s3 = TRY(objects::S3Service::open(
      folder / "objects", clock, region,
      {.abandoned_uploads = std::chrono::days{options.abandoned_uploads_days}}));

  auto url = std::make_shared<std::string>();
  jobs::ServiceOptions job_options;
  job_options.folder = folder / "jobs";
  job_options.agent_program = self;
  job_options.region = region;
  job_options.account = kAccount;
  job_options.instances = TRY(instance_table(folder));
  job_options.price_lists = TRY(price_lists(folder));
  job_options.runtimes = runtimes(python, self);
  job_options.cache_folder = folder / "cache";
  job_options.cache_bytes = cache_bytes(options, folder);
  job_options.packages = TRY(package_source(options, folder));
  job_options.host_network = options.host_network;
  job_options.s3 = [url, folder, region] {
    return objects::S3Endpoint{*url, region, {}, {}, (folder / "endpoint").string()};
  };
  const http::SessionKeys sessions =
      TRY(http::SessionKeys::open_or_create(folder / "sessions.secret"));
  job_options.user_ids = [&keys](const std::string& arn) { return user_ids_of(*keys, arn); };
  job_options.give_keys = [url, &sessions, &clock](const jobs::TrainingJob& job,
                                                   agent::AgentSpec& spec) {
    give_keys(job, sessions, *url, clock.now(), spec);
  };
  const std::unique_ptr<jobs::Roles> roles =
      TRY(jobs::Roles::open(folder / "roles.json", kAccount));
  const std::unique_ptr<jobs::Service> jobs =
      TRY(jobs::Service::open(std::move(job_options), clock));

  const jobs::JobAccess job_access{
      *jobs, *roles, [&](const std::string& arn) { return grants_of(*keys, arn); }, kAccount};
  const http::SessionKeyStore session_keys{*keys, sessions, [&](const http::SessionClaims& claims) {
                                             return job_access.principal_of(claims);
                                           }};
  const std::unique_ptr<api::AuditLog> audit = TRY(api::AuditLog::open(folder / "audit"));
  const std::unique_ptr<http::Handler> front_door = api::make_front_door(
      {session_keys, *s3, *jobs, clock, &session_keys, audit.get(), options.audit_reads,
       [&](std::string_view job, std::string_view peer) { return is_program_of(*jobs, job, peer); },
       region, kAccount});
  Listeners listeners = TRY(Listeners::start(options.listen, folder, *front_door));
  *url = listeners.local_url();
  jobs->run();
  if (options.as_json) {
    std::cout << json::serialize(json::object{
                     {"ready", listeners.url()}, {"data_dir", folder.string()}, {"pid", getpid()}})
              << std::endl;
  } else {
    std::cout << "ready " << listeners.url() << std::endl;
  }

  int received = 0;
  while (sigwait(&signals, &received) == 0 && received == SIGHUP) {
    const Result<void> reloaded = listeners.reload_certificate();
    log::info(reloaded ? "the certificate was read again"
                       : "the certificate stays as it was: " + reloaded.error().message);
  }
  log::info(fmt::format("{}: stopping; jobs that run go on by themselves", strsignal(received)));
  listeners.stop();
  return {};
}

}  // namespace

void add_serve(CLI::App& program, Outcome& outcome) {
  auto options = std::make_shared<ServeOptions>();
  options->data_folder = default_data_folder().string();
  CLI::App* verb = program.add_subcommand("serve", "Starts the server: API, object store and jobs");
  verb->add_option("--cache-size", options->cache_bytes,
                   "What jobs may share of their downloaded data, such as 200GB; 0: nothing. "
                   "Without it a fifth of the disk")
      ->transform(CLI::AsSizeValue(true));
  verb->add_option("--data-dir", options->data_folder, "Where keys, objects and jobs are kept")
      ->capture_default_str();
  verb->add_option("--listen", options->listen.listen, "ADDR:PORT; port 0 picks a free one")
      ->capture_default_str();
  verb->add_option("--tls-certificate", options->listen.tls_certificate,
                   "Certificate (chain) as PEM: the address is served by TLS, and may be any");
  verb->add_option("--tls-key", options->listen.tls_key, "Its key as PEM; SIGHUP reads both again");
  verb->add_option(
      "--tls-ca", options->listen.tls_ca,
      "What clients are to trust, for atelier env; a certificate that is its own needs "
      "none");
  verb->add_option("--url", options->listen.public_url,
                   "https://HOST:PORT as clients reach it, for atelier env");
  verb->add_option("--region", options->region,
                   "Region that clients name; us-west-2 for a new data folder, and kept with it");
  verb->add_option("--python", options->python,
                   "Python that runs users' scripts; without it /usr/bin/python3, or where that "
                   "has no PyTorch the one that set-up gave it (.venv)");
  verb->add_option("--packages", options->packages,
                   "Where pip of the jobs finds packages: none (at first), host (as pip of this "
                   "host), the address of an index, or a folder of wheels; kept for later starts");
  verb->add_flag("--host-network", options->host_network,
                 "Jobs share this machine's network, with all that listens on its loopback, other "
                 "jobs included: for those that need a service there");
  verb->add_flag("--audit-reads", options->audit_reads,
                 "Record calls that only look, too (DIR/audit; see atelier audit)");
  verb->add_option("--abandoned-uploads-days", options->abandoned_uploads_days,
                   "Days after which S3 uploads in parts that nobody completes are given up")
      ->check(CLI::Range(1, 36'500))
      ->capture_default_str();
  verb->add_flag("--verbose", options->verbose, "Log more");
  verb->add_flag("--json", options->as_json, "The line that says ready as a JSON object");
  verb->footer(
      "Example: atelier serve --data-dir ./data --listen 127.0.0.1:8089\n"
      "Prints 'ready http://ADDR:PORT' once it answers, and writes it to DIR/endpoint. SIGTERM "
      "ends it;\n"
      "jobs go on, and are taken up again by the next start.");
  verb->callback([options, &outcome] {
    if (options->verbose) log::set_level(log::Level::kDebug);
    const Result<void> done = serve(*options);
    outcome.exit_code = done ? kOk : report_error(done.error());
  });
}

}  // namespace atelier::cli
