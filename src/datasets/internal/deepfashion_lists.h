// The list files of DeepFashion: row 1 a count, row 2 the columns' names, then as many rows,
// aligned by blanks.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace atelier::datasets {

struct Category {
  std::string name;
  int type = 0;  // 1 upper body, 2 lower body, 3 full body
};
// list_category_cloth.txt; the position is the category's id, from 1.
Result<std::vector<Category>> parse_categories(std::string_view text);

template <typename Value>
struct Listed {
  std::string path;  // "img/Item_Name/img_00000001.jpg"
  Value value;
};
// list_category_img.txt: ids from 1 to `categories`.
Result<std::vector<Listed<int>>> parse_category_images(std::string_view text,
                                                       std::size_t categories);
// list_eval_partition.txt: "train", "val" or "test".
Result<std::vector<Listed<std::string>>> parse_partition(std::string_view text);
// list_bbox.txt: x1 y1 x2 y2.
Result<std::vector<Listed<std::array<int, 4>>>> parse_boxes(std::string_view text);

}  // namespace atelier::datasets
