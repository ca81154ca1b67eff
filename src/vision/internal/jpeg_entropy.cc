#include "vision/internal/jpeg_entropy.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace atelier::vision {

constexpr unsigned kLookahead = 10;
constexpr unsigned kLongestCode = 16;
constexpr unsigned kLongestSymbol = kLongestCode + 15;  // a code and its value

// An entry of a table: what a code means. 0: no such code, or one longer than the look-ahead.
struct Symbol {
  static constexpr std::uint32_t make(unsigned length, unsigned size, unsigned run) {
    return (length + size) | size << 8 | run << 16 | length << 24;
  }
  static unsigned total(std::uint32_t entry) { return entry & 0xff; }  // of code and value, <= 31
  static unsigned size(std::uint32_t entry) { return entry >> 8 & 0xff; }
  static unsigned run(std::uint32_t entry) { return entry >> 16 & 0xff; }
  static unsigned length(std::uint32_t entry) { return entry >> 24; }
};
constexpr unsigned kEndOfBlock = 64;  // as a run: leads behind the block's end from anywhere

struct HuffmanTable {
  JHUFF_TBL source{};  // what it was made from
  std::array<std::uint32_t, 1 << kLookahead> entries{};
  // Of each length: one more than its last code, and what makes a code its place in huffval.
  std::array<std::int32_t, kLongestCode + 1> end{};
  std::array<std::int32_t, kLongestCode + 1> offset{};
  bool is_ac = false;

  [[nodiscard]] std::uint32_t entry_of(unsigned value, unsigned length) const {
    if (!is_ac) return Symbol::make(length, value & 15, 0);
    const unsigned size = value & 15;
    const unsigned run = value >> 4;
    return Symbol::make(length, size, size == 0 && run != 15 ? kEndOfBlock : run);
  }

  void build(const JHUFF_TBL& from, bool ac) {
    source = from;
    is_ac = ac;
    entries.fill(0);
    std::int32_t code = 0;
    std::int32_t place = 0;
    for (unsigned length = 1; length <= kLongestCode; ++length) {
      offset[length] = place - code;
      for (unsigned i = 0; i < from.bits[length]; ++i, ++code, ++place) {
        if (length > kLookahead) continue;
        const unsigned spread = kLookahead - length;
        const auto first = static_cast<std::size_t>(code) << spread;
        if (first + (std::size_t{1} << spread) > entries.size()) return;  // libjpeg refused it
        std::fill_n(entries.begin() + static_cast<std::ptrdiff_t>(first), std::size_t{1} << spread,
                    entry_of(from.huffval[place & 255], length));
      }
      end[length] = code;
      code <<= 1;
    }
  }

  [[nodiscard]] bool is_of(const JHUFF_TBL& from) const {
    return std::memcmp(source.bits, from.bits, sizeof(from.bits)) == 0 &&
           std::memcmp(source.huffval, from.huffval, sizeof(from.huffval)) == 0;
  }

  // The entry of a code beyond the look-ahead, 0 if there is none. `peek`: the next 16 bits.
  [[nodiscard]] std::uint32_t long_code(unsigned peek) const {
    for (unsigned length = kLookahead + 1; length <= kLongestCode; ++length) {
      const auto code = static_cast<std::int32_t>(peek >> (kLongestCode - length));
      if (code < end[length])
        return entry_of(source.huffval[(code + offset[length]) & 255], length);
    }
    return 0;
  }
};

namespace {

// jpegint.h, which is not installed, declares the decoder's methods so since 1991 (libjpeg-turbo
// up to 3.1 included).
struct EntropyMethods {
  void (*start_pass)(j_decompress_ptr info);
  boolean (*decode_mcu)(j_decompress_ptr info, JBLOCKROW* blocks);
  boolean insufficient_data;
};
#if defined(LIBJPEG_TURBO_VERSION_NUMBER) && LIBJPEG_TURBO_VERSION_NUMBER < 4000000
constexpr bool kMethodsAreKnown = true;
#else
constexpr bool kMethodsAreKnown = false;
#endif

// A block reads at most 64 x 31 bits, and the refill eight bytes more.
constexpr std::size_t kSlack = 64 * 31 / 8 + 16;

// Where the coefficient of a zigzag place lies. A run may lead beyond the block: libjpeg then
// writes the last coefficient.
constexpr std::array<std::uint8_t, 128> kPlaces = [] {
  std::array<std::uint8_t, 128> places{};
  places.fill(63);
  int x = 0;
  int y = 0;
  for (std::size_t i = 0; i < 64; ++i) {
    places[i] = static_cast<std::uint8_t>(8 * y + x);
    const bool rising = (x + y) % 2 == 0;
    int& ahead = rising ? x : y;
    int& back = rising ? y : x;
    if (ahead == 7) {
      ++back;
    } else {
      ++ahead;
      if (back > 0) --back;
    }
  }
  return places;
}();

// Most pictures of a data set have the same tables: they are kept for the thread's next one.
const HuffmanTable& table_of(const JHUFF_TBL& source, bool ac, std::size_t number) {
  thread_local std::unique_ptr<std::array<HuffmanTable, 2 * NUM_HUFF_TBLS>> tables;
  if (!tables) tables = std::make_unique<std::array<HuffmanTable, 2 * NUM_HUFF_TBLS>>();
  HuffmanTable& table = (*tables)[2 * number + (ac ? 1 : 0)];
  if (!table.is_of(source)) table.build(source, ac);
  return table;
}

std::uint64_t load_big_endian(const std::uint8_t* bytes) {
  std::uint64_t value = 0;
  std::memcpy(&value, bytes, sizeof(value));
  return std::endian::native == std::endian::big ? value : __builtin_bswap64(value);
}

// At least 56 bits after `refill`. What the next one adds is loaded already, so that it waits for
// no memory.
struct BitReader {
  const std::uint8_t* next;
  std::uint64_t bits;
  unsigned count;
  std::uint64_t ahead = load_big_endian(next);

  void refill() {
    bits |= ahead >> count;
    next += (63 - count) >> 3;
    count |= 56;
    ahead = load_big_endian(next);
  }
  [[nodiscard]] std::uint32_t symbol(const HuffmanTable& table) const {
    const std::uint32_t entry = table.entries[bits >> (64 - kLookahead)];
    if (entry != 0) [[likely]]
      return entry;
    return table.long_code(static_cast<unsigned>(bits >> 48));  // 0: no such code
  }
  // The value behind the code (T.81, figure F.12), and past both.
  int value(std::uint32_t entry) {
    const std::uint64_t from = bits << Symbol::length(entry);
    const unsigned size = Symbol::size(entry);
    const auto magnitude = static_cast<int>(from >> 1 >> (63 - size));
    const int negative = -static_cast<int>(~from >> 63);
    bits <<= Symbol::total(entry);
    count -= Symbol::total(entry);
    return magnitude - (negative & ((1 << size) - 1));
  }
};

bool decode_block(BitReader& reader, const HuffmanTable& dc, const HuffmanTable& ac,
                  std::int64_t& last_dc, JCOEF* block) {
  reader.refill();
  const std::uint32_t first = reader.symbol(dc);
  if (first == 0) return false;
  last_dc += reader.value(first);
  if (last_dc != static_cast<int>(last_dc)) return false;  // libjpeg's limit
  block[0] = static_cast<JCOEF>(last_dc);
  for (unsigned k = 1; k < DCTSIZE2; ++k) {
    if (reader.count < kLongestSymbol) reader.refill();
    std::uint32_t entry = reader.symbol(ac);
    if (entry == 0) [[unlikely]]
      return false;
    k += Symbol::run(entry);
    block[kPlaces[k]] = static_cast<JCOEF>(reader.value(entry));
    if (++k >= DCTSIZE2) break;
    reader.refill();
    entry = reader.symbol(ac);
    if (entry == 0) [[unlikely]]
      return false;
    k += Symbol::run(entry);
    block[kPlaces[k]] = static_cast<JCOEF>(reader.value(entry));
  }
  return true;
}

}  // namespace

bool JpegEntropy::take_over(jpeg_decompress_struct& info,
                            boolean (*decode_mcu)(j_decompress_ptr info, JBLOCKROW* blocks)) {
  if (!kMethodsAreKnown || info.progressive_mode || info.arith_code ||
      jpeg_has_multiple_scans(&info)) {
    return false;
  }
  for (int i = 0; i < info.blocks_in_MCU; ++i) {
    const int component = info.MCU_membership[i];
    const jpeg_component_info& about = *info.cur_comp_info[component];
    blocks_[static_cast<std::size_t>(i)] = {
        &table_of(*info.dc_huff_tbl_ptrs[about.dc_tbl_no], false,
                  static_cast<std::size_t>(about.dc_tbl_no)),
        &table_of(*info.ac_huff_tbl_ptrs[about.ac_tbl_no], true,
                  static_cast<std::size_t>(about.ac_tbl_no)),
        component};
  }
  if (!unstuff(info)) return false;
  begin_segment();
  auto* methods = reinterpret_cast<EntropyMethods*>(info.entropy);
  methods->decode_mcu = decode_mcu;
  return true;
}

// Copies the scan without its stuffing and moves info.src to the marker behind it. False if markers
// or filling are not exactly where they belong: what then happens is libjpeg's.
bool JpegEntropy::unstuff(jpeg_decompress_struct& info) {
  const std::uint64_t mcus = std::uint64_t{info.MCUs_per_row} * info.MCU_rows_in_scan;
  const std::uint64_t segments =
      info.restart_interval == 0 ? 1 : (mcus + info.restart_interval - 1) / info.restart_interval;
  const JOCTET* from = info.src->next_input_byte;
  const JOCTET* const end = from + info.src->bytes_in_buffer;
  data_ = std::make_unique_for_overwrite<std::uint8_t[]>(info.src->bytes_in_buffer + kSlack);
  std::uint8_t* out = data_.get();
  while (true) {
    const auto* mark =
        static_cast<const JOCTET*>(std::memchr(from, 0xff, static_cast<std::size_t>(end - from)));
    if (mark == nullptr) return false;
    out = std::copy(from, mark, out);
    const JOCTET* const behind =
        std::find_if(mark + 1, end, [](JOCTET byte) { return byte != 0xff; });  // filling is 0xff
    if (behind == end) return false;
    const JOCTET kind = *behind;
    from = behind + 1;
    if (kind == 0) {
      if (behind != mark + 1) return false;  // filling belongs before markers only
      *out++ = 0xff;
      continue;
    }
    const std::size_t ended = segment_ends_.size();
    segment_ends_.push_back(static_cast<std::size_t>(out - data_.get()));
    if (kind == JPEG_RST0 + ended % 8 && ended + 1 < segments) continue;
    if ((kind >= JPEG_RST0 && kind < JPEG_RST0 + 8) || ended + 1 != segments) return false;
    std::memset(out, 0, kSlack);
    mcus_to_restart_ = info.restart_interval;
    info.src->bytes_in_buffer = static_cast<std::size_t>(end - mark);
    info.src->next_input_byte = mark;
    return true;
  }
}

void JpegEntropy::begin_segment() {
  const std::size_t begin = segment_ == 0 ? 0 : segment_ends_[segment_ - 1];
  segment_bits_ = 8 * (segment_ends_[segment_] - begin);
  next_ = begin_ = data_.get() + begin;
  bits_ = 0;
  count_ = 0;
  last_dc_.fill(0);
}

EntropyState JpegEntropy::decode(const jpeg_decompress_struct& info, JBLOCKROW* blocks) {
  if (info.restart_interval != 0) {
    if (mcus_to_restart_ == 0) {
      if (++segment_ == segment_ends_.size()) return EntropyState::kEndOfData;
      begin_segment();
      mcus_to_restart_ = info.restart_interval;
    }
    --mcus_to_restart_;
  }
  BitReader reader{.next = next_, .bits = bits_, .count = count_};
  std::array<JCOEF, DCTSIZE2> unwanted;
  for (int i = 0; i < info.blocks_in_MCU; ++i) {
    const Block& block = blocks_[static_cast<std::size_t>(i)];
    JCOEF* into = blocks == nullptr ? unwanted.data() : *blocks[i];
    const bool known = decode_block(reader, *block.dc, *block.ac,
                                    last_dc_[static_cast<std::size_t>(block.component)], into);
    const auto taken = 8 * static_cast<std::uint64_t>(reader.next - begin_) - reader.count;
    if (taken > segment_bits_) return EntropyState::kEndOfData;
    if (!known) return EntropyState::kBadCode;
  }
  next_ = reader.next;
  bits_ = reader.bits;
  count_ = reader.count;
  return EntropyState::kFine;
}

}  // namespace atelier::vision
