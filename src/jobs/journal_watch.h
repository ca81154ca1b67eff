// Tells when agents have written to their journals, and when one has ended, by inotify on the job
// folders: a closed agent.lock is an agent's end, whatever ended it. Notices may be lost or
// spurious; whoever acts on them looks at the folder. One thread uses it; wake() is for the others.
#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/result.h"

namespace atelier::jobs {

class JournalWatch {
 public:
  struct Notices {
    std::set<std::string> journals;  // names of jobs whose journal has grown
    std::set<std::string> ended;     // names of jobs whose agent may have ended
    bool overflow = false;           // notices were lost: look at every folder
  };

  static Result<JournalWatch> create();
  // Watches the folder of job `name`; again is fine.
  Result<void> add(const std::string& name, const std::filesystem::path& folder);
  void remove(const std::string& name);
  [[nodiscard]] bool watches(const std::string& name) const { return by_name_.contains(name); }
  // Waits for a notice, a wake() or the end of `limit`.
  Result<Notices> wait(std::chrono::milliseconds limit);
  void wake() const;

 private:
  JournalWatch(UniqueFd inotify, UniqueFd event)
      : inotify_(std::move(inotify)), event_(std::move(event)) {}
  void take(int descriptor, std::string_view file, Notices& notices) const;
  UniqueFd inotify_;
  UniqueFd event_;
  std::map<std::string, int> by_name_;
  std::map<int, std::string> by_descriptor_;
};

}  // namespace atelier::jobs
