// The files that hold large bodies: one a body, written once, named by chance, in numbered folders.
//
// The name of a file is "<folder>/<random id>". New files go to the newest folder until it is full.
// A file without a row in the index is an orphan of a crash: it can only be in folders from
// low_water() on, which the store writes down, so that opening a store of millions of objects looks
// at a few thousand names.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "base/file.h"
#include "base/result.h"

namespace atelier::objects::internal {

class BodyFiles {
 public:
  static constexpr std::size_t kFilesPerFolder = 2048;

  // Finds the newest folder and counts its files.
  static Result<std::unique_ptr<BodyFiles>> open(const std::filesystem::path& root);

  struct NewFile {
    std::string name;
    UniqueFd fd;
  };
  Result<NewFile> create();
  // A file that create() made, to write more into it.
  [[nodiscard]] Result<UniqueFd> open_for_writing(const std::string& name) const;
  // A second name for the body of `name`: bodies never change, so a hard link is a copy.
  Result<std::string> link(const std::string& name);
  // Makes content and name durable.
  Result<void> sync(const std::string& name, int fd);
  // The index has a row for it now: not an orphan any more.
  void adopted(const std::string& name);
  // Removes a body that has no row (any more); one that is gone already is fine.
  void remove(const std::string& name);
  // For reading; kNotFound when it was removed.
  [[nodiscard]] Result<UniqueFd> open_body(const std::string& name) const;

  // No folder below this number holds a file that lacks a row.
  [[nodiscard]] std::uint64_t low_water() const;
  // Whether there is any body at all.
  [[nodiscard]] Result<bool> any() const;

  struct Swept {
    std::size_t removed = 0;
    std::size_t aside = 0;
  };
  // Bodies in folders from `low_water` on for which `has_row` says no. Where the last stop was
  // `cut_short` and that explains them (they are few, and were written at one time), they are
  // removed. Else the index has lost what they belong to, by an older copy of it, say: then all of
  // them are moved to `aside`, under the same names, and nothing is lost.
  Result<Swept> sweep(std::uint64_t low_water,
                      const std::function<Result<bool>(const std::string&)>& has_row,
                      bool cut_short, const std::filesystem::path& aside);

 private:
  explicit BodyFiles(std::filesystem::path root) : root_(std::move(root)) {}
  Result<std::string> new_name();

  const std::filesystem::path root_;
  mutable std::mutex mutex_;
  std::uint64_t folder_ = 0;  // the newest
  std::size_t in_folder_ = 0;
  std::map<std::uint64_t, std::size_t> pending_;  // folder -> files without a row yet
};

}  // namespace atelier::objects::internal
