// What an agent is told when it starts, and what it leaves in its job's folder. The folder is the
// contract between agent and control plane: both may die at any moment, and the folder tells the
// rest.
//
//   spec.json      AgentSpec; written before the agent starts, mode 0600 (it holds the job's keys)
//   agent.lock     held (flock) by the agent as long as it lives
//   journal.jsonl  JournalEvents of all attempts, fsynced before they are acted on; a torn last
//                  line is dropped
//   stop           there once the control plane wants the job stopped (written by rename); it says
//                  "again" once what is not in S3 yet is to stay here
//   interrupt      the number of the attempt that is to give its share of the host back
//   logs/          algo-1.log: LogFile (agent/log_file.h), of all attempts
//   metrics.jsonl  one matched metric a line: {"t": ms since 1970, "n": name, "v": value}
//   ml/            the job's /opt/ml, until the attempt has ended
//   *.records      which of its files are in S3 (agent/sync_records.h)
//   *.files/       folders of CheckpointConfig and such that are not below /opt/ml
//   agent.out      stderr of the agent itself
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "compute/packages.h"
#include "compute/runtimes.h"
#include "objects/s3_client.h"

namespace atelier::agent {

struct ChannelSpec {
  std::string name;
  std::string s3_uri;
  std::string s3_data_type = "S3Prefix";
  std::string distribution = "FullyReplicated";
  std::string input_mode = "File";
  std::string content_type{};  // empty: absent
  std::string record_wrapper = "None";
  std::string compression = "None";
  std::vector<std::string> attribute_names{};  // of an augmented manifest
  std::optional<std::int64_t> shuffle_seed{};
  std::vector<std::string> groups{};  // InstanceGroupNames; empty: every instance has it
  // Which part this instance gets, with distribution ShardedByS3Key.
  int shard_index = 0;
  int shard_count = 1;
};

struct MetricDefinition {
  std::string name;
  std::string regex;
};

// A folder of the program that is copied to S3 while it runs.
struct SyncedFolder {
  std::string s3_uri;      // as the request has it
  std::string local_path;  // as place_local_path() takes it
};

// The first instance of a job. Its agent leads: it starts the others, ends them, and delivers for
// all (agent/members.h).
inline constexpr std::string_view kLeader = "algo-1";

// One instance of a job: a share of a host with an agent of its own.
struct InstanceSpec {
  std::string host;  // "algo-1"
  std::string group = "homogeneousCluster";
  std::string instance_type{};
  double vcpus = 0;
  double memory_gib = 0;
  int gpus = 0;
};

struct AgentSpec {
  std::string job_name;
  std::string job_arn;
  std::string region;
  objects::S3Endpoint s3;  // with the job's own keys, for as long as its run may last
  // Where programs fetch keys of their own again and again, and what they show there
  // (AWS_CONTAINER_CREDENTIALS_FULL_URI, AWS_CONTAINER_AUTHORIZATION_TOKEN); empty: they get none.
  std::string credentials_uri;
  std::string credentials_ticket;
  compute::Runtime runtime;
  std::vector<std::string> container_entrypoint;  // replace the runtime's program when not empty
  std::vector<std::string> container_arguments;
  std::map<std::string, std::string> hyperparameters;
  std::map<std::string, std::string> environment;
  std::vector<ChannelSpec> channels;
  std::vector<MetricDefinition> metrics;
  std::optional<SyncedFolder> checkpoints;  // CheckpointConfig
  std::optional<SyncedFolder> tensorboard;  // TensorBoardOutputConfig
  std::string host = "algo-1";              // of this instance
  std::vector<InstanceSpec> instances{};    // of the job, by their number; empty: this one alone
  // Where they meet: a number that keeps jobs apart on the host's network (agent/network_slot.h),
  // and with isolation the network that they share (compute/network.h).
  int network_slot = 0;
  std::string shared_network{};
  std::string instance_type;
  double vcpus = 0;
  double memory_gib = 0;
  int gpus = 0;
  // Where the host's device files are, and where agents lock the GPUs that they have.
  std::string device_folder = "/dev";
  std::string gpu_folder;
  std::vector<int> gpu_numbers{};  // of the host's, once its agent has them; not in the JSON
  int volume_gib = 0;              // what the program may write below /opt/ml and /tmp; 0: no limit
  bool network_isolation = false;
  bool host_network = false;  // its operator wants it to share the host's, without isolation
  bool infra_check = false;  // look at the sandbox, the disk and the GPUs before the program starts
  compute::PackageSource packages;
  // Further files of /opt/ml/input/config by their name, with their text.
  std::map<std::string, std::string> config_files;
  std::string cache_folder;  // where jobs of this host share what they download; empty: nowhere
  std::uint64_t cache_bytes = 0;  // of it altogether
  // The folder of the job's warm pool, which its program shares with those of the jobs before and
  // after it: they are all the same user of the host. Empty: it has none (agent/warm_folder.h).
  std::string warm_pool;
  std::string output_s3_uri;    // of OutputDataConfig
  bool compress_output = true;  // CompressionType GZIP
  std::chrono::seconds max_runtime{86400};
  std::chrono::seconds stop_grace{120};
  // For packing one archive, from the end of the job's time on.
  std::chrono::seconds packing_time{3600};
  std::string log_stream;  // "job/algo-1-1796022355"
  // Which run of the job this is: one more after each interruption and each retry.
  int attempt = 1;
  std::chrono::seconds interruption_notice{120};  // from SIGTERM to SIGKILL
  // Events are numbered from above this. The control plane has taken in that many, also where a
  // power cut has taken the journal's tail.
  std::uint64_t journal_floor = 0;
};

std::string to_json(const AgentSpec& spec);
Result<AgentSpec> parse_agent_spec(std::string_view text);

// What happened, in order. The control plane turns each into one transition of the job.
struct JournalEvent {
  std::uint64_t sequence = 0;  // from 1, upwards
  Time time{};
  // started | downloading | training | uploading | saving (the last checkpoints of an interrupted
  // program) | warning, and as the last one of an attempt
  // completed | failed | stopped | max-runtime | interrupted
  std::string kind;
  std::string message;      // for people: StatusMessage, FailureReason or the warning
  std::string detail_json;  // optional object: exit code, final metrics, model location, limits
  int attempt = 1;
};

std::string to_json_line(const JournalEvent& event);
// Events with a sequence above `after`, and those below that end an attempt (which count whatever
// their number is: jobs/training_job.h); a torn last line is left out.
Result<std::vector<JournalEvent>> read_journal(const std::filesystem::path& job_folder,
                                               std::uint64_t after = 0);

// Where an instance keeps its own of the above: the first one in the job's folder, the others below
// it, in instances/algo-2 and so on.
std::filesystem::path instance_folder(const std::filesystem::path& job_folder,
                                      std::string_view host);
// The hosts that have one, the first in front.
std::vector<std::string> instance_hosts(const std::filesystem::path& job_folder);

// Starts `program agent --job-folder FOLDER` as a session of its own that outlives the caller;
// returns once the agent holds its lock (or has failed to). The spec must be in the folder already.
Result<void> launch_agent(const std::filesystem::path& program,
                          const std::filesystem::path& job_folder);
// Whether that failed for what the host lacks for now (processes, memory, room on its disk), and
// not for the agent itself: then it is worth another try for so long.
bool is_passing(const Error& error);
inline constexpr std::chrono::minutes kLaunchPatience{10};
// Whether an agent holds the folder's lock now.
bool agent_alive(const std::filesystem::path& job_folder);
// Whether the job has ended and its agent was killed before it had removed what the job needs no
// more; another agent on the folder does it.
bool needs_cleaning(const std::filesystem::path& job_folder);
// Asks for a stop, durably; repeated calls are fine.
Result<void> request_stop(const std::filesystem::path& job_folder);
// The stop after that one, which ends the delivery of results too: what is not in S3 yet stays in
// the folder. Repeated calls are fine.
Result<void> request_second_stop(const std::filesystem::path& job_folder);
bool second_stop_requested(const std::filesystem::path& job_folder);
// Warns the attempt of that number that its share of the host is wanted: its program gets SIGTERM,
// and SIGKILL at the end of the notice. A later attempt is not meant. Repeated calls are fine.
Result<void> request_interrupt(const std::filesystem::path& job_folder, int attempt);

// The agent itself: runs the job of the folder to its end. Returns when the journal holds the last
// event.
Result<void> run_agent(const std::filesystem::path& job_folder);

}  // namespace atelier::agent
