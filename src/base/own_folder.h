// Folders in which things are found, and removed, by their names: opened through no link, since
// what one leads to may be anybody's, and by names of a form that we make ourselves alone.
//
//   const UniqueFd folder = TRY(open_own_folder(path));
//   for (const std::string& name : TRY(names_in(folder.get()))) {
//     if (is_random_id(name)) TRY(remove_tree_at(folder.get(), name));
//   }
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/result.h"

namespace atelier {

// A link is refused by its path: kFailedPrecondition, as for anything else that is no folder.
// kNotFound when nothing is there.
Result<UniqueFd> open_own_folder(const std::filesystem::path& path);
// The refusal alone: fine when nothing is there.
Result<void> check_own_folder(const std::filesystem::path& path);

// Names in an open folder, in no order.
Result<std::vector<std::string>> names_in(int folder);

// remove_tree() of `name` in an open folder, so that no link can lead the way to it elsewhere.
Result<void> remove_tree_at(int folder, const std::string& name);

// Whether `text` has the form of a random_id(bytes).
bool is_random_id(std::string_view text, std::size_t bytes = 16);

}  // namespace atelier
