// Writes one gzip stream to a file, its blocks compressed by several threads at once (as pigz
// does).
#pragma once

#include <cstddef>
#include <deque>
#include <future>
#include <string>
#include <string_view>

#include "base/result.h"

namespace atelier::agent {

class GzipWriter {
 public:
  // `fd` stays the caller's. Level 1: weights hardly compress, and text does well enough.
  explicit GzipWriter(int fd, unsigned threads);
  ~GzipWriter();
  GzipWriter(const GzipWriter&) = delete;
  GzipWriter& operator=(const GzipWriter&) = delete;
  Result<void> write(std::string_view bytes);
  Result<void> finish();

 private:
  struct Block;
  void start_block();
  Result<void> write_oldest();

  int fd_;
  unsigned threads_;
  std::string buffer_;
  std::deque<std::future<Block>> running_;
  bool header_written_ = false;
  unsigned long crc_ = 0;
  std::uint32_t length_ = 0;
};

}  // namespace atelier::agent
