#include "jobs/journal_watch.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace atelier::jobs {

Result<JournalWatch> JournalWatch::create() {
  UniqueFd inotify{inotify_init1(IN_CLOEXEC | IN_NONBLOCK)};
  if (!inotify) {
    return error_from_errno("inotify (see fs.inotify.max_user_instances)", errno);
  }
  UniqueFd event{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  if (!event) return error_from_errno("eventfd", errno);
  return JournalWatch{std::move(inotify), std::move(event)};
}

Result<void> JournalWatch::add(const std::string& name, const std::filesystem::path& folder) {
  const int descriptor = inotify_add_watch(inotify_.get(), folder.c_str(),
                                           IN_CREATE | IN_MODIFY | IN_MOVED_TO | IN_CLOSE_WRITE);
  if (descriptor < 0) {
    return error_from_errno("watch '" + folder.string() + "' (see fs.inotify.max_user_watches)",
                            errno);
  }
  by_name_[name] = descriptor;
  by_descriptor_[descriptor] = name;
  return {};
}

void JournalWatch::remove(const std::string& name) {
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) return;
  inotify_rm_watch(inotify_.get(), found->second);
  by_descriptor_.erase(found->second);
  by_name_.erase(found);
}

void JournalWatch::take(int descriptor, std::string_view file, Notices& notices) const {
  const auto found = by_descriptor_.find(descriptor);
  if (found == by_descriptor_.end()) return;  // of a folder that is not watched any more
  if (file == "journal.jsonl") notices.journals.insert(found->second);
  if (file == "agent.lock") notices.ended.insert(found->second);
}

Result<JournalWatch::Notices> JournalWatch::wait(std::chrono::milliseconds limit) {
  std::array<pollfd, 2> descriptors = {pollfd{inotify_.get(), POLLIN, 0},
                                       pollfd{event_.get(), POLLIN, 0}};
  if (poll(descriptors.data(), descriptors.size(), static_cast<int>(limit.count())) < 0 &&
      errno != EINTR) {
    return error_from_errno("poll", errno);
  }
  Notices notices;
  eventfd_t count = 0;
  eventfd_read(event_.get(), &count);
  alignas(inotify_event) std::array<char, 65536> buffer;
  while (true) {
    const ssize_t got = read(inotify_.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    for (std::size_t at = 0; at < static_cast<std::size_t>(got);) {
      const auto* event = reinterpret_cast<const inotify_event*>(buffer.data() + at);
      at += sizeof(inotify_event) + event->len;
      if ((event->mask & IN_Q_OVERFLOW) != 0) {
        notices.overflow = true;
      } else if (event->len > 0) {
        // The lock file counts only when a writer has closed it: its creation is not an end.
        const std::string_view file = event->name;
        if (file != "agent.lock" || (event->mask & IN_CLOSE_WRITE) != 0) {
          take(event->wd, file, notices);
        }
      }
    }
  }
  return notices;
}

void JournalWatch::wake() const { eventfd_write(event_.get(), 1); }

}  // namespace atelier::jobs
