// The pictures that PIL writes for the tests (pictures_test_files.py), made once a run.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <sstream>
#include <string>
#include <string_view>

#include "base/file.h"
#include "vision/image.h"

namespace atelier::vision {

inline std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text));
}

class TestPictures {
 public:
  static const TestPictures& get() {
    static const TestPictures pictures;
    return pictures;
  }
  [[nodiscard]] std::filesystem::path path(const std::string& name) const {
    return folder_.path() / name;
  }
  [[nodiscard]] std::string read(const std::string& name) const {
    return read_file(path(name)).value();
  }

  // "WIDTH HEIGHT CHANNELS\n" and pixels; gray is repeated when 3 channels are wanted.
  [[nodiscard]] Image raw(const std::string& name, int channels) const {
    const std::string bytes = read(name);
    std::istringstream head(bytes);
    Image image;
    int stored = 0;
    head >> image.width >> image.height >> stored;
    image.channels = channels;
    for (std::size_t i = bytes.find('\n') + 1; i < bytes.size(); ++i) {
      for (int c = 0; c < (stored == 1 ? channels : 1); ++c)
        image.pixels.push_back(static_cast<std::uint8_t>(bytes[i]));
    }
    return image;
  }

 private:
  TestPictures() : folder_(std::move(TempFolder::create()).value()) {
    const std::string command = ATELIER_TEST_PYTHON " " ATELIER_SOURCE_DIR
                                                    "/src/vision/pictures_test_files.py " +
                                folder_.path().string();
    if (std::system(command.c_str()) != 0) {
      ADD_FAILURE() << "Pillow, NumPy and torchvision are needed: scripts/setup run test";
    }
  }
  TempFolder folder_;
};

inline int max_difference(const Image& a, const Image& b) {
  if (a.width != b.width || a.height != b.height || a.channels != b.channels ||
      a.pixels.size() != b.pixels.size())
    return 256;
  int most = 0;
  for (std::size_t i = 0; i < a.pixels.size(); ++i)
    most = std::max(most, std::abs(a.pixels[i] - b.pixels[i]));
  return most;
}

inline double mean_difference(const Image& a, const Image& b) {
  if (a.pixels.size() != b.pixels.size()) return 256;
  double sum = 0;
  for (std::size_t i = 0; i < a.pixels.size(); ++i) sum += std::abs(a.pixels[i] - b.pixels[i]);
  return sum / static_cast<double>(a.pixels.size());
}

}  // namespace atelier::vision
