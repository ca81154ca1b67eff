#include "agent/gzip_writer.h"

#include <zlib.h>

#include <memory>
#include <system_error>

#include "base/file.h"

namespace atelier::agent {
namespace {

constexpr std::size_t kBlockBytes = std::size_t{1} << 20;

std::string little_endian(std::uint32_t value) {
  std::string bytes;
  for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(value >> shift);
  return bytes;
}

}  // namespace

struct GzipWriter::Block {
  std::string deflated;  // ends at a byte boundary, and is not the stream's last block
  unsigned long crc = 0;
  std::size_t length = 0;
  bool good = false;
};

namespace {

template <typename Block>
Block compress_block(const std::string& bytes) {
  Block block;
  block.length = bytes.size();
  const auto* input = reinterpret_cast<const Bytef*>(bytes.data());
  block.crc = crc32(0, input, static_cast<uInt>(bytes.size()));
  z_stream stream{};
  if (deflateInit2(&stream, 1, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK) return block;
  block.deflated.resize(deflateBound(&stream, static_cast<uLong>(bytes.size())) + 16);
  stream.next_in = const_cast<Bytef*>(input);
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(block.deflated.data());
  stream.avail_out = static_cast<uInt>(block.deflated.size());
  block.good = deflate(&stream, Z_SYNC_FLUSH) == Z_OK && stream.avail_in == 0;
  block.deflated.resize(block.deflated.size() - stream.avail_out);
  deflateEnd(&stream);
  return block;
}

}  // namespace

GzipWriter::GzipWriter(int fd, unsigned threads) : fd_(fd), threads_(threads < 1 ? 1 : threads) {}
GzipWriter::~GzipWriter() = default;

Result<void> GzipWriter::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const std::size_t take = std::min(bytes.size(), kBlockBytes - buffer_.size());
    buffer_.append(bytes.substr(0, take));
    bytes.remove_prefix(take);
    if (buffer_.size() < kBlockBytes) continue;
    if (running_.size() >= threads_) TRY(write_oldest());
    start_block();
  }
  return {};
}

void GzipWriter::start_block() {
  const auto compress = [bytes = std::make_shared<const std::string>(std::move(buffer_))] {
    return compress_block<Block>(*bytes);
  };
  buffer_.clear();
  try {
    running_.push_back(std::async(std::launch::async, compress));
  } catch (const std::system_error&) {
    // The host gives no more threads: by this one, when it is to be written.
    running_.push_back(std::async(std::launch::deferred, compress));
  }
}

Result<void> GzipWriter::write_oldest() {
  const Block block = running_.front().get();
  running_.pop_front();
  if (!block.good) return Error{Code::kInternal, "zlib could not compress a block"};
  if (!header_written_) {
    // Method 8, no flags, no time (so that equal contents give equal files), fastest, Unix.
    TRY(write_all(fd_, std::string_view{"\x1f\x8b\x08\x00\x00\x00\x00\x00\x04\x03", 10}));
    header_written_ = true;
  }
  crc_ = crc32_combine(crc_, block.crc, static_cast<z_off_t>(block.length));
  length_ += static_cast<std::uint32_t>(block.length);
  return write_all(fd_, block.deflated);
}

Result<void> GzipWriter::finish() {
  if (!buffer_.empty() || (running_.empty() && !header_written_)) start_block();
  while (!running_.empty()) TRY(write_oldest());
  // An empty last block (fixed codes), then the trailer.
  TRY(write_all(fd_, std::string_view{"\x03\x00", 2}));
  return write_all(fd_, little_endian(static_cast<std::uint32_t>(crc_)) + little_endian(length_));
}

}  // namespace atelier::agent
