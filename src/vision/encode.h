// Pictures to bytes, and a sheet of captioned tiles, for reports and importers.
//
//   Image sheet = contact_sheet(tiles, {.columns = 8, .title = "ankle-boot taken for sneaker"});
//   TRY(write_file_durably("mistakes.png", TRY(encode_png(sheet))));
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "vision/image.h"

namespace atelier::vision {

// `level` is zlib's, 0..9. The bytes depend only on the picture and the level.
Result<std::string> encode_png(const Image& image, int level = 6);
Result<std::string> encode_jpeg(const Image& image, int quality = 90);

using Colour = std::array<std::uint8_t, 3>;

// Writes `text` with its upper left corner at (x, y), in a built-in font of 6 x 8 cells times
// `scale`. Printable ASCII; other characters show as a box, one for each UTF-8 sequence. Parts
// outside of the picture are cut off.
void draw_text(Image& image, int x, int y, std::string_view text, Colour colour, int scale = 1);
int text_width(std::string_view text, int scale = 1);
void fill_rect(Image& image, const Rect& rect, Colour colour);

struct Tile {
  Image picture = {};                      // fitted into the tile, aspect kept
  std::vector<std::string> captions = {};  // one a line below it, shortened to fit
  Colour frame = {200, 200, 200};
};

struct SheetOptions {
  int columns = 8;
  int tile_width = 112;
  int tile_height = 112;
  std::string title = {};
};

// An RGB picture of all tiles, row by row, on white.
Image contact_sheet(std::span<const Tile> tiles, const SheetOptions& options);

}  // namespace atelier::vision
