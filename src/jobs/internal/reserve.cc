#include "jobs/internal/reserve.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/log.h"

namespace atelier::jobs::internal {
namespace {

// What SQLite's log grows to before it is moved into the database.
constexpr off_t kBytes = off_t{4} << 20;

}  // namespace

Result<Reserve> Reserve::open(const std::filesystem::path& path) {
  Reserve reserve{TRY(open_file(path, O_RDWR | O_CREAT | O_NOFOLLOW, 0600))};
  reserve.keep();
  return reserve;
}

bool Reserve::give_up() {
  if (!kept_) return false;
  kept_ = false;
  if (ftruncate(file_.get(), 0) == 0) return true;
  log::warning("the reserve of the job store could not be given up");
  return false;
}

void Reserve::keep() {
  if (kept_) return;
  kept_ = posix_fallocate(file_.get(), 0, kBytes) == 0;
  // Half of it would only take from what is free.
  if (!kept_ && ftruncate(file_.get(), 0) != 0) log::warning("the reserve of the job store is odd");
}

}  // namespace atelier::jobs::internal
