// Where the parts of an upload lie side by side, so that completing it joins nothing.
//
// Most clients send parts of one size. Part n of such an upload is written to (n - 1) * size of one
// file, which is then the object as it stands. The size is taken from part 1, or from the first
// part whose size is a whole number of MiB (which a last part hardly has). A part that does not fit
// in, or comes a second time, gets a file of its own, and completing copies that one into its
// place.
//
// The index says which part has which place; here is only what happens in memory: the places that
// are taken, and writers that are on their way. Safe from many threads.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "base/file.h"
#include "base/result.h"
#include "objects/internal/body_files.h"

namespace atelier::objects::internal {

// What the index knows of an upload's file.
struct StoredSlots {
  std::string file;  // "": none yet
  std::uint64_t slot_bytes = 0;
  std::set<unsigned> taken;  // numbers of parts
};

class PartSlots {
 public:
  explicit PartSlots(BodyFiles& files) : files_(files) {}

  // A place to write one part to. Let go of without stored(), it is free again.
  class Slot {
   public:
    Slot(PartSlots& slots, std::string upload, unsigned number)
        : slots_(slots), upload_(std::move(upload)), number_(number) {}
    Slot(const Slot&) = delete;
    Slot& operator=(const Slot&) = delete;
    ~Slot();
    std::string file;
    std::uint64_t slot_bytes = 0;
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
    UniqueFd fd;
    // The part has its row.
    void stored();

   private:
    PartSlots& slots_;
    const std::string upload_;
    const unsigned number_;
    bool stored_ = false;
  };
  using Load = std::function<Result<StoredSlots>()>;
  // Null when the part needs a file of its own. `load` is asked once for every upload.
  Result<std::unique_ptr<Slot>> reserve(const std::string& upload, unsigned number,
                                        std::uint64_t length, const Load& load);
  // No part is written to the file from now on; false when one is on its way, or when it was closed
  // already.
  bool close(const std::string& upload);
  // Takes back what close() did.
  void reopen(const std::string& upload);
  // The upload has ended.
  void forget(const std::string& upload);

 private:
  struct Upload {
    StoredSlots slots;
    std::size_t under_way = 0;
    bool has_row = false;  // the index names the file
    bool closed = false;
    bool ended = false;
  };
  Result<void> choose_size(Upload& upload, unsigned number, std::uint64_t length);
  void release(const std::string& upload, unsigned number, bool stored);

  BodyFiles& files_;
  std::mutex mutex_;
  std::map<std::string, Upload> uploads_;
};

}  // namespace atelier::objects::internal
