// Decode, crop, resize, flip, normalise on one core, for bench/t3: pictures_bench FOLDER train|eval
// COUNT prints "PICTURES CPU_SECONDS" for COUNT pictures, taken from the folder again and again.
// Files are read beforehand.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "vision/preprocess.h"

namespace {

using namespace atelier;

double cpu_seconds() {
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

Result<double> run(const std::vector<std::string>& pictures, bool train, std::uint64_t count) {
  const vision::Preprocess spec;
  const vision::Augmentation augmentation;
  std::vector<float> out(spec.output_floats());
  vision::Scratch scratch;
  double begin = 0;
  const std::uint64_t warm_up = std::min<std::uint64_t>(count, pictures.size());
  for (std::uint64_t i = 0; i < warm_up + count; ++i) {
    if (i == warm_up) begin = cpu_seconds();
    const auto bytes = std::as_bytes(std::span(pictures[i % pictures.size()]));
    if (train) {
      TRY(vision::preprocess_augmented(bytes, spec, augmentation, {1, 0, i}, out, scratch));
    } else {
      TRY(vision::preprocess(bytes, spec, out, scratch));
    }
  }
  return cpu_seconds() - begin;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1]))
    paths.push_back(entry.path());
  std::ranges::sort(paths);
  std::vector<std::string> pictures;
  for (const auto& path : paths) pictures.push_back(read_file(path).value());
  const auto count = static_cast<std::uint64_t>(std::atoll(argv[3]));
  const auto seconds = run(pictures, std::string_view(argv[2]) == "train", count);
  if (!seconds) {
    fmt::print(stderr, "{}\n", seconds.error().message);
    return 1;
  }
  fmt::print("{} {}\n", count, *seconds);
  return 0;
}
