#include "channels/folds_case.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/statfs.h>

#include "base/file.h"

namespace atelier::channels {
namespace {

// From linux/magic.h and the file systems' own headers.
constexpr long kFoldingFileSystems[] = {0x4d44,
                                        0x2011bab0,
                                        0x5346544e,
                                        0x7366746e,
                                        0x517b,
                                        static_cast<long>(0xff534d42),
                                        static_cast<long>(0xfe534d42)};

}  // namespace

bool folds_case(const std::filesystem::path& folder) {
  for (std::filesystem::path path = folder; path.has_relative_path(); path = path.parent_path()) {
    const Result<UniqueFd> fd = open_file(path, O_RDONLY | O_DIRECTORY);
    if (!fd) continue;
    int flags = 0;
    if (ioctl(fd->get(), FS_IOC_GETFLAGS, &flags) == 0 && (flags & FS_CASEFOLD_FL) != 0)
      return true;
    struct statfs info {};
    if (fstatfs(fd->get(), &info) != 0) return false;
    for (const long magic : kFoldingFileSystems) {
      if (static_cast<long>(info.f_type) == magic) return true;
    }
    return false;
  }
  return false;
}

}  // namespace atelier::channels
