#include "vision/host_probe.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <sched.h>
#include <torch/version.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>

#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "vision/job_folders.h"

namespace atelier::vision {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Whether bfloat16 products run at least about as fast as fp32 ones. Where they are emulated they
// take ten times as long, and one training step would take minutes; this takes milliseconds.
bool bf16_is_real() {
  const at::Tensor a = at::rand({256, 256});
  const at::Tensor b = a.to(at::kBFloat16);
  const auto best = [](const at::Tensor& m) {
    double shortest = 1e9;
    for (int i = 0; i < 3; ++i) {
      const auto start = Clock::now();
      at::matmul(m, m);
      shortest = std::min(shortest, seconds_since(start));
    }
    return shortest;
  };
  return best(b) < 1.2 * best(a);
}

// Training steps a second of a throw-away network.
double measure(const ProbeOptions& options, Engine engine, std::int64_t batch) {
  Result<Network> network = make_network(options.backbone, 10, 1);
  if (!network) return 0;
  network->set_trained(0);
  const at::Tensor pictures = at::rand({batch, 3, options.image_size, options.image_size})
                                  .contiguous(at::MemoryFormat::ChannelsLast);
  const at::Tensor labels = at::zeros({batch}, at::kLong);
  const Pass pass{.train = true, .engine = engine};
  double shortest = 1e9;
  for (int step = 0; step < 3; ++step) {
    const auto start = Clock::now();
    at::cross_entropy_loss(network->logits(network->features(pictures, pass)), labels).backward();
    if (step > 0) shortest = std::min(shortest, seconds_since(start));
    for (NamedValue& value : network->values()) value.tensor.mutable_grad().reset();
  }
  return static_cast<double>(batch) / shortest;
}

std::filesystem::path cache_folder() {
  if (const auto named = environment("ATELIER_CACHE_DIR")) return *named;
  if (const auto home = environment("HOME"))
    return std::filesystem::path(*home) / ".cache" / "atelier";
  return {};
}

std::filesystem::path cache_file(const ProbeOptions& options, int threads) {
  const std::filesystem::path folder = cache_folder();
  if (folder.empty()) return {};
  const std::string key = fmt::format("{}|{}|{}|{}|{}|{}|{}", processor_name(), torch_version(),
                                      options.backbone, options.image_size, options.batch_size,
                                      threads, static_cast<int>(options.precision));
  return folder / fmt::format("probe-{}.json", sha256_hex(key).substr(0, 16));
}

Result<HostChoice> read_cached(const std::filesystem::path& file, int threads) {
  const json::value kept = TRY(read_json_file(file));
  HostChoice choice;
  choice.engine = TRY(parse_engine(find_string(kept, "engine").value_or("")));
  choice.threads = threads;
  choice.from_cache = true;
  if (const json::array* candidates = find_array(kept, "candidates")) {
    for (const json::value& c : *candidates) {
      choice.candidates.push_back({TRY(parse_engine(find_string(c, "engine").value_or(""))),
                                   find_number(c, "images_per_second").value_or(0),
                                   find_string(c, "note").value_or("")});
    }
  }
  return choice;
}

HostChoice try_candidates(const ProbeOptions& options, int threads) {
  HostChoice choice;
  choice.threads = threads;
  // About as much work at every size: 32 pictures of 64 x 64.
  const std::int64_t area = std::int64_t{options.image_size} * options.image_size;
  const std::int64_t batch = std::clamp<std::int64_t>(
      32 * 64 * 64 / area, 4, std::min<std::int64_t>(32, options.batch_size));
  const bool fp32 = options.precision != Precision::kBfloat16;
  const bool bf16 = options.precision != Precision::kFloat32;
  std::vector<Candidate> tried{{Engine::kFused, 0, ""}, {Engine::kAten, 0, ""}};
  if (bf16) tried.push_back({Engine::kAtenBf16, 0, ""});
  double best = 0;
  for (Candidate& candidate : tried) {
    if (candidate.engine == Engine::kAtenBf16 && !bf16_is_real()) {
      candidate.note = "bfloat16 is emulated on this processor";
    } else if (candidate.engine == Engine::kAten && !fp32) {
      candidate.note = "precision_dtype asks for bfloat16";
    } else {
      try {
        candidate.images_per_second = measure(options, candidate.engine, batch);
      } catch (const c10::Error& error) {
        // libtorch 1.13 has no bfloat16 for the gradients of some activations.
        candidate.note = fmt::format("libtorch: {}", error.what_without_backtrace());
      }
    }
    if (candidate.images_per_second > best) {
      best = candidate.images_per_second;
      choice.engine = candidate.engine;
    }
  }
  choice.candidates = std::move(tried);
  return choice;
}

}  // namespace

int available_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  const int allowed = std::max(1, CPU_COUNT(&set));
  // An agent says so what a job's instance type has, on a host that has more.
  const int asked = std::atoi(environment("OMP_NUM_THREADS").value_or("0").c_str());
  return asked > 0 ? std::min(asked, allowed) : allowed;
}

std::string processor_name() {
  std::ifstream info("/proc/cpuinfo");
  std::string name;
  std::string flags;
  for (std::string line; std::getline(info, line);) {
    const std::size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    if (name.empty() && line.starts_with("model name")) name = line.substr(colon + 2);
    if (flags.empty() && line.starts_with("flags")) flags = line.substr(colon + 2);
  }
  const auto has = [&](const char* flag) {
    return (" " + flags + " ").find(flag) != std::string::npos;
  };
  return name + (has(" avx512_bf16 ") ? " avx512_bf16"
                 : has(" avx512f ")   ? " avx512"
                 : has(" avx2 ")      ? " avx2"
                                      : "");
}

std::string torch_version() { return TORCH_VERSION; }

Result<HostChoice> choose_engine(const ProbeOptions& options) {
  const int threads =
      options.threads > 0 ? static_cast<int>(options.threads) : available_processors();
  at::set_num_threads(threads);
  if (options.engine != "auto") {
    HostChoice choice;
    choice.engine = TRY(parse_engine(options.engine));
    choice.threads = threads;
    return choice;
  }
  const std::filesystem::path file = cache_file(options, threads);
  if (!file.empty()) {
    Result<HostChoice> kept = read_cached(file, threads);
    if (kept) return kept;
    ignore_error(kept, "a probe that cannot be read is made again");
  }
  HostChoice choice = try_candidates(options, threads);
  if (!file.empty() && make_folders(file.parent_path())) {
    ignore_error(write_file_durably(file, pretty_json(host_choice_to_json(choice))),
                 "the next job probes again");
  }
  return choice;
}

json::object host_choice_to_json(const HostChoice& choice) {
  json::array candidates;
  for (const Candidate& c : choice.candidates) {
    json::object one{{"engine", engine_name(c.engine)}, {"images_per_second", c.images_per_second}};
    if (!c.note.empty()) one["note"] = c.note;
    candidates.push_back(std::move(one));
  }
  return {{"engine", engine_name(choice.engine)},
          {"threads", choice.threads},
          {"candidates", std::move(candidates)}};
}

}  // namespace atelier::vision
