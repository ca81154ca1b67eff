#include "vision/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/file.h"
#include "base/json.h"
#include "vision/encode.h"

namespace atelier::vision {

Result<Image> mistake_sheet(const ImageFolder& folder, const std::vector<Mistake>& mistakes,
                            const std::string& title) {
  std::vector<Tile> tiles;
  std::vector<std::byte> buffer;
  for (const Mistake& mistake : mistakes) {
    const auto bytes =
        TRY(read_picture(folder, folder.samples[mistake.index], ImageLimits{}.max_bytes, buffer));
    Tile tile;
    TRY(decode_image(bytes, {}, tile.picture));
    tile.captions = {folder.classes[mistake.truth],
                     fmt::format("> {} {:.0f}%", folder.classes[mistake.guess],
                                 static_cast<double>(mistake.probability) * 100)};
    tile.frame = {200, 60, 60};
    tiles.push_back(std::move(tile));
  }
  return contact_sheet(tiles, {.columns = 8, .title = title});
}

Image confusion_picture(const Evaluation& evaluation, const std::vector<std::string>& classes) {
  const int count = static_cast<int>(classes.size());
  const int cell = count <= 24 ? 36 : std::max(2, 864 / count);
  const bool labels = cell >= 20;
  int margin = 8;
  if (labels) {
    for (const std::string& name : classes) margin = std::max(margin, text_width(name) + 12);
  }
  const int header = labels ? 16 : 8;
  Image picture;
  picture.width = margin + count * cell + 8;
  picture.height = header + count * cell + 8;
  picture.pixels.assign(picture.row_bytes() * static_cast<std::size_t>(picture.height), 255);
  for (int truth = 0; truth < count; ++truth) {
    const auto row = static_cast<std::size_t>(truth);
    if (labels)
      draw_text(picture, 4, header + truth * cell + cell / 2 - 4, classes[row], {0, 0, 0});
    const auto support = std::max<double>(1, static_cast<double>(evaluation.classes[row].support));
    for (int guess = 0; guess < count; ++guess) {
      const std::uint64_t value =
          evaluation.confusion[row * classes.size() + static_cast<std::size_t>(guess)];
      const double share = static_cast<double>(value) / support;
      // Mistakes are few: the root makes a percent visible.
      const auto light = static_cast<std::uint8_t>(255 - 215 * std::min(1.0, std::sqrt(share)));
      const Colour colour = truth == guess ? Colour{light, 235, light} : Colour{255, light, light};
      const Rect area{margin + guess * cell, header + truth * cell, cell - 1, cell - 1};
      fill_rect(picture, area, colour);
      if (labels && value > 0) {
        const std::string text = std::to_string(value);
        draw_text(picture, area.x + (cell - text_width(text)) / 2, area.y + cell / 2 - 4, text,
                  {0, 0, 0});
      }
    }
  }
  return picture;
}

json::array damaged_to_json(const std::vector<DamagedPicture>& damaged) {
  json::array array;
  for (const DamagedPicture& picture : damaged) {
    array.push_back({{"path", picture.path}, {"reason", picture.reason.message}});
  }
  return array;
}

Result<void> write_reports(const std::filesystem::path& folder,
                           const std::vector<NamedEvaluation>& parts,
                           const std::vector<std::string>& classes) {
  TRY(make_folders(folder));
  json::object all;
  for (const NamedEvaluation& part : parts) {
    json::object one = evaluation_to_json(part.run->evaluation, classes);
    one["damaged"] = damaged_to_json(part.run->damaged);
    all[part.name] = std::move(one);
  }
  TRY(write_file_durably(folder / "evaluation.json", pretty_json(all) + "\n"));
  const NamedEvaluation& shown = parts.front();
  // With several labels a picture nothing is taken for something else.
  if (shown.run->evaluation.multi_label) return {};
  const Image sheet =
      TRY(mistake_sheet(*shown.folder, shown.run->mistakes,
                        fmt::format("most confident mistakes on the {} pictures", shown.name)));
  TRY(write_file_durably(folder / "mistakes.png", TRY(encode_png(sheet))));
  const Image confusion = confusion_picture(shown.run->evaluation, classes);
  return write_file_durably(folder / "confusion.png", TRY(encode_png(confusion)));
}

}  // namespace atelier::vision
