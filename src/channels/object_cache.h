// Objects that the jobs of a host have downloaded: each lies once on the disk, by the name of its
// content, and becomes files of many jobs.
//
//   objects/ab/abcdef...  one object, by the SHA-256 of (store, bucket, key, ETag, size)
//   claimed/              who is downloading what: locks, which end with their process
//   eviction              held while files are removed
//   boot                  the boot whose entries are whole, and the time of the last sync
//
// A file of a job is a hard link where the job's program cannot change it: the agent is root, the
// program another user, and the entry is root's and read-only. Where both are one user, or the
// folders lie on different disks, it is a clone (FICLONE) or a copy, so that a program can only
// ever change its own. Safe from many processes and threads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "objects/object_store.h"

namespace atelier::channels {

struct CacheStatus {
  std::uint64_t files = 0;
  std::uint64_t bytes = 0;
  std::uint64_t linked_files = 0;  // by jobs that are there now: not evicted
  std::uint64_t linked_bytes = 0;
};

struct CacheFile {
  objects::ObjectInfo object;  // as listed
  std::filesystem::path path;  // in a folder that is there
};

struct CacheReport {
  std::uint64_t found = 0;  // files that were there
  std::uint64_t downloaded = 0;
};

// What is shared with whom. `name` tells stores apart: an address that a server keeps when it comes
// back on another port.
struct CacheStore {
  std::string name;
  // Our own server, which is asked whether the job's key may read an object before the job gets it
  // from the disk (ObjectStore::check_readable). Of another server nobody else's rights are known:
  // `name` has to tell its keys apart as well.
  bool asks = true;
};

class ObjectCache {
 public:
  // `limit_bytes` of files altogether; 0 keeps nothing. `may_link`: see above.
  static Result<ObjectCache> open(const std::filesystem::path& folder, std::uint64_t limit_bytes,
                                  CacheStore store, bool may_link);

  // Makes every file appear whole, by rename or link: from the cache, else downloaded once for all
  // jobs that want it now. Objects for which no room can be made, and those that the job's key may
  // not read, come straight from the store (which refuses the latter).
  // `progress` counts bytes. kCancelled once `cancelled` says so.
  Result<CacheReport> fill(objects::ObjectStore& store, const std::string& bucket,
                           std::vector<CacheFile> files, const objects::Progress& progress,
                           const std::function<bool()>& cancelled);
  // Everything written so far survives a power cut. Takes as long as the disk does.
  Result<void> sync();

  static Result<CacheStatus> status(const std::filesystem::path& folder);
  // Removes what no job has linked; the bytes that were freed.
  static Result<std::uint64_t> clear(const std::filesystem::path& folder);

 private:
  friend class CacheFill;
  struct Wanted;
  ObjectCache(std::filesystem::path folder, std::uint64_t limit_bytes, CacheStore store,
              bool may_link, std::vector<UniqueFd> claims)
      : folder_(std::move(folder)),
        limit_bytes_(limit_bytes),
        store_(std::move(store)),
        may_link_(may_link),
        claims_(std::move(claims)) {}

  [[nodiscard]] std::string name_of(const std::string& bucket,
                                    const objects::ObjectInfo& object) const;
  [[nodiscard]] std::filesystem::path entry(const std::string& name) const;
  // False when there is no such entry (any more).
  Result<bool> take(const Wanted& wanted) const;
  Result<void> place(const Wanted& wanted) const;
  Result<bool> set_claim(const Wanted& wanted, short type) const;
  Result<void> make_room(std::uint64_t bytes, bool& room) const;

  std::filesystem::path folder_;
  std::uint64_t limit_bytes_;
  CacheStore store_;
  bool may_link_;
  std::vector<UniqueFd> claims_;
};

}  // namespace atelier::channels
