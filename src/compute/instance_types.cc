#include "compute/instance_types.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>

#include "base/file.h"
#include "base/rng.h"
#include "compute/gpus.h"

// Without exceptions a failed parse comes back as a value; header-only keeps a shared library out.
#define TOML_EXCEPTIONS 0
#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>

namespace atelier::compute {
namespace {

namespace fs = std::filesystem;

// The shape that a user's own file has. Sizes are those of the instance types' pages. Prices are
// the on-demand list of us-west-2 for training at their date, rounded, as they were remembered and
// not looked up: they serve for comparing jobs with each other, not for an invoice. There are no
// spot prices: those change by the hour and by the zone, so that none would be true.
constexpr std::string_view kBuiltin = R"(
currency = "USD"
price_date = "2024-01-01"
strict = false
[instances]
"ml.t3.medium"     = { vcpus = 2,  memory_gib = 4,    price_per_hour = 0.05 }
"ml.t3.large"      = { vcpus = 2,  memory_gib = 8,    price_per_hour = 0.10 }
"ml.t3.xlarge"     = { vcpus = 4,  memory_gib = 16,   price_per_hour = 0.20 }
"ml.m4.xlarge"     = { vcpus = 4,  memory_gib = 16,   price_per_hour = 0.24 }
"ml.m5.large"      = { vcpus = 2,  memory_gib = 8,    price_per_hour = 0.115 }
"ml.m5.xlarge"     = { vcpus = 4,  memory_gib = 16,   price_per_hour = 0.23 }
"ml.m5.2xlarge"    = { vcpus = 8,  memory_gib = 32,   price_per_hour = 0.461 }
"ml.m5.4xlarge"    = { vcpus = 16, memory_gib = 64,   price_per_hour = 0.922 }
"ml.m5.12xlarge"   = { vcpus = 48, memory_gib = 192,  price_per_hour = 2.765 }
"ml.m5.24xlarge"   = { vcpus = 96, memory_gib = 384,  price_per_hour = 5.53 }
"ml.c5.large"      = { vcpus = 2,  memory_gib = 4,    price_per_hour = 0.102 }
"ml.c5.xlarge"     = { vcpus = 4,  memory_gib = 8,    price_per_hour = 0.204 }
"ml.c5.2xlarge"    = { vcpus = 8,  memory_gib = 16,   price_per_hour = 0.408 }
"ml.c5.4xlarge"    = { vcpus = 16, memory_gib = 32,   price_per_hour = 0.816 }
"ml.c5.9xlarge"    = { vcpus = 36, memory_gib = 72,   price_per_hour = 1.836 }
"ml.c5.18xlarge"   = { vcpus = 72, memory_gib = 144,  price_per_hour = 3.672 }
"ml.g4dn.xlarge"   = { vcpus = 4,  memory_gib = 16,   gpus = 1, price_per_hour = 0.736 }
"ml.g4dn.2xlarge"  = { vcpus = 8,  memory_gib = 32,   gpus = 1, price_per_hour = 0.94 }
"ml.g4dn.12xlarge" = { vcpus = 48, memory_gib = 192,  gpus = 4, price_per_hour = 4.89 }
"ml.g5.xlarge"     = { vcpus = 4,  memory_gib = 16,   gpus = 1, price_per_hour = 1.408 }
"ml.g5.2xlarge"    = { vcpus = 8,  memory_gib = 32,   gpus = 1, price_per_hour = 1.515 }
"ml.g5.12xlarge"   = { vcpus = 48, memory_gib = 192,  gpus = 4, price_per_hour = 7.09 }
"ml.p3.2xlarge"    = { vcpus = 8,  memory_gib = 61,   gpus = 1, price_per_hour = 3.825 }
"ml.p3.8xlarge"    = { vcpus = 32, memory_gib = 244,  gpus = 4, price_per_hour = 14.688 }
"ml.p3.16xlarge"   = { vcpus = 64, memory_gib = 488,  gpus = 8, price_per_hour = 28.152 }
"ml.p4d.24xlarge"  = { vcpus = 96, memory_gib = 1152, gpus = 8, price_per_hour = 37.688 }
)";

constexpr std::size_t kMaxTypes = 1000;
constexpr std::int64_t kMaxNotice = 3600;
constexpr double kMaxLifeSeconds = 400.0 * 86400;  // longer than any job may run
constexpr std::size_t kMaxTraceBytes = std::size_t{1} << 20;
// The seed of the counter-based generator that interruptions are drawn from.
constexpr std::uint64_t kInterruptions = 0x696e74;

Error wrong(std::string_view where, std::string_view what) {
  return Error{Code::kInvalidArgument, fmt::format("instance table: {}: {}", where, what)};
}

// A number that is there must be one, finite and at least `least`.
Result<double> number(const toml::table& line, std::string_view type, std::string_view key,
                      double otherwise, double least) {
  const toml::node* node = line.get(key);
  if (node == nullptr) return otherwise;
  const std::optional<double> value = node->value<double>();
  if (!value || !std::isfinite(*value) || *value < least) {
    return wrong(type, fmt::format("{} must be a number of at least {}", key, least));
  }
  return *value;
}

Result<void> parse_interruptions(const toml::table& line, std::string_view name,
                                 InstanceType& type) {
  type.interruptions_per_hour = TRY(number(line, name, "interruptions_per_hour", 0, 0));
  const toml::node* trace = line.get("interruption_trace");
  if (trace == nullptr) return {};
  type.interruption_trace_file = trace->value_or(std::string{});
  if (type.interruption_trace_file.empty()) {
    return wrong(name, "interruption_trace must be the name of a file");
  }
  if (type.interruptions_per_hour > 0) {
    return wrong(name, "has interruptions_per_hour and interruption_trace: give one of them");
  }
  return {};
}

Result<InstanceType> parse_type(std::string_view name, const toml::node& node) {
  const toml::table* line = node.as_table();
  if (line == nullptr) return wrong(name, "must be a table such as { vcpus = 4, memory_gib = 16 }");
  for (const auto& [key, value] : *line) {
    static constexpr std::string_view kKnown[] = {"vcpus",
                                                  "memory_gib",
                                                  "gpus",
                                                  "price_per_hour",
                                                  "spot_price_per_hour",
                                                  "interruptions_per_hour",
                                                  "interruption_trace"};
    if (std::ranges::find(kKnown, key.str()) == std::end(kKnown)) {
      return wrong(
          name, fmt::format("'{}' is not known; known are {}", key.str(), fmt::join(kKnown, ", ")));
    }
  }
  for (const char* required : {"vcpus", "memory_gib"}) {
    if (!line->contains(required)) return wrong(name, fmt::format("lacks {}", required));
  }
  InstanceType type;
  type.name = name;
  type.vcpus = TRY(number(*line, name, "vcpus", 1, 0.01));
  type.memory_gib = TRY(number(*line, name, "memory_gib", 1, 0.01));
  type.price_per_hour = TRY(number(*line, name, "price_per_hour", 0, 0));
  type.spot_price_per_hour =
      TRY(number(*line, name, "spot_price_per_hour", type.price_per_hour, 0));
  if (type.spot_price_per_hour > type.price_per_hour) {
    return wrong(name,
                 fmt::format("spot_price_per_hour {} is more than price_per_hour, which is {}",
                             type.spot_price_per_hour, type.price_per_hour));
  }
  TRY(parse_interruptions(*line, name, type));
  const double gpus = TRY(number(*line, name, "gpus", 0, 0));
  if (gpus != std::floor(gpus) || gpus > 1024) return wrong(name, "gpus must be whole, up to 1024");
  type.gpus = static_cast<int>(gpus);
  return type;
}

// "ml.cpu.4x" and "ml.gpu.2x": sizes for machines that no cloud sells. A CPU comes with 4 GiB, a
// GPU with 8 CPUs and 32 GiB, as the general-purpose and GPU families have it.
std::optional<InstanceType> from_pattern(std::string_view name) {
  const bool gpu = name.starts_with("ml.gpu.");
  if (!gpu && !name.starts_with("ml.cpu.")) return std::nullopt;
  const std::string_view digits = name.substr(7);
  if (!digits.ends_with('x')) return std::nullopt;
  int count = 0;
  const char* last = digits.data() + digits.size() - 1;
  const auto [end, failure] = std::from_chars(digits.data(), last, count);
  if (failure != std::errc{} || end != last || count < 1 || count > 1024) return std::nullopt;
  InstanceType type;
  type.name = name;
  type.vcpus = gpu ? 8.0 * count : count;
  type.memory_gib = gpu ? 32.0 * count : 4.0 * count;
  type.gpus = gpu ? count : 0;
  return type;
}

std::optional<double> first_number(const fs::path& path) {
  std::ifstream file(path);
  double value = 0;
  if (file >> value) return value;
  return std::nullopt;  // not there, or "max"
}

double allowed_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  double cpus = static_cast<double>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  if (sched_getaffinity(0, sizeof set, &set) == 0) cpus = CPU_COUNT(&set);
  // The quota of the container that we may run in: v2 "QUOTA PERIOD", v1 in two files.
  double period = 0;
  double quota = 0;
  std::ifstream v2("/sys/fs/cgroup/cpu.max");
  if (v2 >> quota >> period && period > 0) return std::min(cpus, quota / period);
  const std::optional<double> v1 = first_number("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
  const std::optional<double> v1_period = first_number("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  if (v1 && v1_period && *v1 > 0 && *v1_period > 0) cpus = std::min(cpus, *v1 / *v1_period);
  return cpus;
}

double allowed_memory_gib() {
  double bytes =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  for (const char* path :
       {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    if (const std::optional<double> limit = first_number(path); limit && *limit > 0) {
      bytes = std::min(bytes, *limit);
    }
  }
  return bytes / (1024.0 * 1024.0 * 1024.0);
}

}  // namespace

Result<InstanceTable> parse_instance_table(std::string_view text) {
  const toml::parse_result parsed = toml::parse(text);
  if (!parsed) {
    const toml::source_position at = parsed.error().source().begin;
    return wrong(fmt::format("line {}, column {}", at.line, at.column),
                 parsed.error().description());
  }
  const toml::table& document = parsed.table();
  InstanceTable table;
  for (const auto& [key, value] : document) {
    if (key.str() == "currency" && value.is_string()) {
      table.currency = value.value_or(std::string{});
    } else if (key.str() == "price_date" && value.is_string()) {
      table.price_date = value.value_or(std::string{});
    } else if (key.str() == "strict" && value.is_boolean()) {
      table.strict = value.value_or(false);
    } else if (key.str() == "interruption_notice_seconds" && value.is_integer()) {
      const std::int64_t seconds = value.value_or(std::int64_t{-1});
      if (seconds < 0 || seconds > kMaxNotice) {
        return wrong(key.str(), fmt::format("{} must be from 0 to {}", seconds, kMaxNotice));
      }
      table.interruption_notice = std::chrono::seconds{seconds};
    } else if (key.str() != "instances" || !value.is_table()) {
      return wrong(key.str(),
                   "not known, or of the wrong type; known are the strings currency and "
                   "price_date, the boolean strict, the whole number interruption_notice_seconds, "
                   "and the table instances");
    }
  }
  if (const toml::table* types = document["instances"].as_table()) {
    if (types->size() > kMaxTypes) {
      return wrong("instances", fmt::format("{} types are more than {}", types->size(), kMaxTypes));
    }
    for (const auto& [name, line] : *types) {
      table.types.push_back(TRY(parse_type(name.str(), line)));
    }
  }
  return table;
}

const InstanceTable& builtin_instance_table() {
  static const InstanceTable table = [] {
    Result<InstanceTable> parsed = parse_instance_table(kBuiltin);
    ATELIER_CHECK(parsed.has_value(), "the built-in instance table is wrong");
    return *std::move(parsed);
  }();
  return table;
}

std::optional<InstanceType> find_instance_type(const InstanceTable& table, std::string_view name) {
  for (const InstanceType& type : table.types) {
    if (type.name == name) return type;
  }
  return from_pattern(name);
}

Result<std::vector<double>> parse_interruption_trace(std::string_view text) {
  std::vector<double> trace;
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string line{text.substr(0, end)};
    line.resize(std::min(line.find('#'), line.size()));
    text.remove_prefix(std::min(end + 1, text.size()));
    std::erase_if(line, [](char c) { return c == ' ' || c == '\t' || c == '\r'; });
    if (line.empty()) continue;
    double seconds = 0;
    const auto [rest, failure] = std::from_chars(line.data(), line.data() + line.size(), seconds);
    if (failure != std::errc{} || rest != line.data() + line.size() || !std::isfinite(seconds) ||
        seconds < 0) {
      return Error{Code::kInvalidArgument,
                   fmt::format("line {}: '{}' is not a number of seconds", number, line)};
    }
    trace.push_back(std::min(seconds, kMaxLifeSeconds));
  }
  return trace;
}

Result<void> read_interruption_traces(InstanceTable& table, const fs::path& folder) {
  for (InstanceType& type : table.types) {
    if (type.interruption_trace_file.empty()) continue;
    const fs::path path = folder / type.interruption_trace_file;
    const Result<std::string> text = read_file(path, kMaxTraceBytes);
    if (!text) return text.error().within(type.name);
    Result<std::vector<double>> trace = parse_interruption_trace(*text);
    if (!trace) return trace.error().within(path.string());
    type.interruption_trace = *std::move(trace);
  }
  return {};
}

std::optional<std::chrono::milliseconds> next_interruption(const InstanceType& type,
                                                           std::uint64_t job, int attempt) {
  double seconds = 0;
  const auto index = static_cast<std::size_t>(attempt - 1);
  if (index < type.interruption_trace.size()) {
    seconds = type.interruption_trace[index];
  } else if (type.interruptions_per_hour > 0) {
    // The time to the next event of a Poisson process.
    const double u = rng_uniform(kInterruptions, job, static_cast<std::uint64_t>(attempt));
    seconds = std::min(-std::log1p(-u) * 3600 / type.interruptions_per_hour, kMaxLifeSeconds);
  } else {
    return std::nullopt;
  }
  return std::chrono::milliseconds{static_cast<std::int64_t>(seconds * 1000)};
}

HostCapacity host_capacity(const fs::path& devices) {
  return HostCapacity{allowed_cpus(), allowed_memory_gib(),
                      static_cast<int>(find_gpus(devices).numbers.size())};
}

Result<Allocation> allocate(const InstanceType& type, const HostCapacity& host, bool strict) {
  Allocation allocation{type.vcpus, type.memory_gib, type.gpus, {}};
  const auto cut = [&](auto& wanted, auto there, std::string_view what) {
    if (wanted <= there) return;
    allocation.warnings.push_back(
        fmt::format("{} has {:.4g} {}; this host has {:.4g}, which is "
                    "what the job gets.",
                    type.name, static_cast<double>(wanted), what, static_cast<double>(there)));
    wanted = there;
  };
  cut(allocation.vcpus, host.vcpus, "vCPUs");
  cut(allocation.memory_gib, host.memory_gib, "GiB of memory");
  cut(allocation.gpus, host.gpus, "GPUs");
  if (strict && !allocation.warnings.empty()) {
    return Error{Code::kResourceExhausted,
                 fmt::format("{} needs {:.4g} vCPUs, {:.4g} GiB of memory and {} GPUs; this host "
                             "has {:.4g}, {:.4g} and {}, and the instance table is strict",
                             type.name, type.vcpus, type.memory_gib, type.gpus, host.vcpus,
                             host.memory_gib, host.gpus)};
  }
  return allocation;
}

}  // namespace atelier::compute
