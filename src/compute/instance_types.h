// The table of instance types: what `ml.m5.xlarge` means on this machine. Read from a TOML file; a
// built-in table is used where the user has none.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace atelier::compute {

struct InstanceType {
  std::string name;  // "ml.m5.xlarge"
  double vcpus = 1;
  double memory_gib = 1;
  int gpus = 0;
  double price_per_hour = 0;       // in the table's currency
  double spot_price_per_hour = 0;  // of managed spot training; the same where the table has none
  // How often a spot job is interrupted, besides for want of room: at a rate, drawn by job and
  // attempt, or after the seconds that a trace gives to its first, second, ... attempt.
  double interruptions_per_hour = 0;
  std::string interruption_trace_file;
  std::vector<double> interruption_trace;
};

struct InstanceTable {
  std::vector<InstanceType> types;
  std::string currency = "USD";
  std::string price_date;                         // when the prices were looked up
  std::chrono::seconds interruption_notice{120};  // from a spot job's SIGTERM to its SIGKILL
  bool strict = false;  // refuse what the host cannot give, instead of clamping
};

Result<InstanceTable> parse_instance_table(std::string_view toml);
// Reads the traces that the table names, relative to `folder`.
Result<void> read_interruption_traces(InstanceTable& table, const std::filesystem::path& folder);
// Seconds, one a line; empty lines and what follows a '#' are left out.
Result<std::vector<double>> parse_interruption_trace(std::string_view text);
// How long after it got its share the attempt (from 1) of a spot job is interrupted; nothing: not
// at all. The same for the same job (its id) and attempt, whenever it is asked.
std::optional<std::chrono::milliseconds> next_interruption(const InstanceType& type,
                                                           std::uint64_t job, int attempt);
const InstanceTable& builtin_instance_table();
// Names of the pattern ml.cpu.4x and ml.gpu.2x are understood without a line in the table.
std::optional<InstanceType> find_instance_type(const InstanceTable& table, std::string_view name);

struct HostCapacity {
  double vcpus = 0;
  double memory_gib = 0;
  int gpus = 0;
};
// GPUs are those whose device files are there.
HostCapacity host_capacity(const std::filesystem::path& devices = "/dev");

// What a job really gets: the type cut down to the host, with a sentence for each cut.
struct Allocation {
  double vcpus = 0;
  double memory_gib = 0;
  int gpus = 0;
  std::vector<std::string> warnings;
};
// kResourceExhausted in strict mode when the host is too small.
Result<Allocation> allocate(const InstanceType& type, const HostCapacity& host, bool strict);

}  // namespace atelier::compute
