// Whether a file system takes "A" and "a" for one name.
#pragma once

#include <filesystem>

namespace atelier::channels {

// Of the folder, or, while it is not there, of the nearest one above it. Known are folders of ext4
// and f2fs with the casefold attribute, and FAT, exFAT, NTFS and SMB.
bool folds_case(const std::filesystem::path& folder);

}  // namespace atelier::channels
