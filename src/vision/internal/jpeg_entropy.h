// Huffman decoding of JPEGs with one sequential scan, in place of libjpeg's own, which takes 40 %
// of a picture's time: the bytes of the scan are unstuffed first, a code and the length of the
// value behind it come from one look into a table, and the bits are refilled eight bytes at a time
// (F. Giesen, "Reading bits in far too many ways", part 2, 2018). The inverse transform and all
// that follows stays libjpeg's. Coefficients are the same, and so is what counts as damage, but
// that a code which does not exist always does (libjpeg-turbo takes it for the end of a block, but
// near the file's end).
#pragma once

#include <cstdio>

#include <jpeglib.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace atelier::vision {

struct HuffmanTable;
enum class EntropyState { kFine, kEndOfData, kBadCode };

class JpegEntropy {
 public:
  // Takes over the scan at info.src, which must be wholly in memory, after jpeg_start_decompress:
  // from then on libjpeg calls `decode_mcu`, which is to call `decode`. False, and nothing has
  // changed, if this decoder is not for such a scan.
  bool take_over(jpeg_decompress_struct& info,
                 boolean (*decode_mcu)(j_decompress_ptr info, JBLOCKROW* blocks));

  // The next MCU, into blocks that are zero; null: into nothing.
  EntropyState decode(const jpeg_decompress_struct& info, JBLOCKROW* blocks);

 private:
  bool unstuff(jpeg_decompress_struct& info);
  void begin_segment();

  struct Block {
    const HuffmanTable* dc = nullptr;
    const HuffmanTable* ac = nullptr;
    int component = 0;
  };
  std::array<Block, D_MAX_BLOCKS_IN_MCU> blocks_{};
  std::array<std::int64_t, MAX_COMPS_IN_SCAN> last_dc_{};

  // The scan without stuffing and markers. A segment is what lies between two restart markers.
  std::unique_ptr<std::uint8_t[]> data_;
  std::vector<std::size_t> segment_ends_;
  std::size_t segment_ = 0;
  unsigned mcus_to_restart_ = 0;  // 0: there are no restarts

  const std::uint8_t* next_ = nullptr;  // first byte of which no bit is in bits_
  const std::uint8_t* begin_ = nullptr;
  std::uint64_t bits_ = 0;  // the next one highest
  unsigned count_ = 0;      // how many are sure to be there
  std::uint64_t segment_bits_ = 0;
};

}  // namespace atelier::vision
