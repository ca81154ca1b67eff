#include "base/watched_file.h"

#include <sys/stat.h>

namespace atelier {

bool WatchedFile::changed() {
  Version now;
  struct stat info {};
  if (stat(path_.c_str(), &info) == 0) {
    now = {info.st_ino, info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec, info.st_size};
  }
  seen_ = now;
  return taken_ != seen_;
}

}  // namespace atelier
