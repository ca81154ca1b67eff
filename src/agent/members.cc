#include "agent/members.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "agent/journal.h"
#include "agent/supervisor.h"
#include "base/log.h"

namespace atelier::agent {
namespace fs = std::filesystem;
namespace {

constexpr int kMaxLaunches = 3;
// Notices come by inotify; this mends one that was lost.
constexpr int kLookMilliseconds = 2000;

bool is_there(const fs::path& path) { return ::access(path.c_str(), F_OK) == 0; }

bool interrupt_asked(const fs::path& folder, int attempt) {
  const Result<std::string> text = read_file(folder / "interrupt", 32);
  return text && *text == std::to_string(attempt);
}

// The end of the attempt that the journal tells, if it does.
Result<std::optional<InstanceEnd>> end_in(const fs::path& folder, const std::string& host,
                                          int attempt) {
  for (const JournalEvent& event : TRY(read_journal(folder))) {
    if (event.attempt != attempt || !is_last_event(event.kind)) continue;
    InstanceEnd end{host, parse_outcome(event.detail_json), event.time};
    // The words of an event count: one that was written without a detail has failed in our hands.
    end.outcome.kind = event.kind;
    if (!event.message.empty()) end.outcome.message = event.message;
    return std::optional{std::move(end)};
  }
  return std::optional<InstanceEnd>{};
}

}  // namespace

Members::Members(fs::path job_folder, const AgentSpec& spec, fs::path program, const Clock& clock)
    : folder_(std::move(job_folder)),
      program_(std::move(program)),
      attempt_(spec.attempt),
      clock_(clock) {
  if (!leads(spec)) return;
  for (const InstanceSpec& instance : instances_of(spec)) {
    if (instance.host == spec.host) continue;
    Member& member = members_.emplace_back();
    member.host = instance.host;
    member.folder = instance_folder(folder_, instance.host);
  }
}

Result<std::unique_ptr<Members>> Members::open(fs::path job_folder, const AgentSpec& spec,
                                               fs::path program, const Clock& clock) {
  auto members =
      std::unique_ptr<Members>{new Members{std::move(job_folder), spec, std::move(program), clock}};
  if (!members->empty()) TRY(members->watch());
  return members;
}

Members::~Members() {
  leaving_ = true;
  if (wake_) eventfd_write(wake_.get(), 1);
  if (thread_.joinable()) thread_.join();
}

Result<void> Members::watch() {
  events_ = UniqueFd{inotify_init1(IN_CLOEXEC | IN_NONBLOCK)};
  wake_ = UniqueFd{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  if (!events_ || !wake_) return error_from_errno("watch the instances of the job", errno);
  const auto add = [this](const fs::path& folder, std::uint32_t mask) -> Result<void> {
    if (inotify_add_watch(events_.get(), folder.c_str(), mask) >= 0) return {};
    return error_from_errno("watch '" + folder.string() + "'", errno);
  };
  TRY(add(folder_, IN_CREATE | IN_MOVED_TO));
  for (const Member& member : members_) {
    TRY(make_folders(member.folder / "logs", 0700));
    // The journal grows; an agent that ends closes its lock.
    TRY(add(member.folder, IN_MODIFY | IN_CLOSE));
  }
  return {};
}

bool Members::begun() const {
  return std::ranges::any_of(members_, [this](const Member& member) {
    const auto events = read_journal(member.folder);
    return agent_alive(member.folder) ||
           (events &&
            std::ranges::find(*events, attempt_, &JournalEvent::attempt) != events->end());
  });
}

Result<void> Members::start(const AgentSpec& spec) {
  if (empty()) return {};
  for (const Member& member : members_) {
    const auto instances = instances_of(spec);
    const auto instance = std::ranges::find(instances, member.host, &InstanceSpec::host);
    // What ended it in an earlier attempt is not meant for this one.
    for (const char* file : {"stop", "interrupt"}) unlink((member.folder / file).c_str());
    AgentSpec its = spec_of_instance(spec, *instance);
    its.journal_floor = 0;  // of the leader's journal
    TRY(replace_file(member.folder / "spec.json", to_json(its), 0600));
  }
  for (Member& member : members_) launch(member);
  thread_ = std::thread([this] { loop(); });
  return {};
}

void Members::launch(Member& member) {
  const auto now = std::chrono::steady_clock::now();
  const bool out_of_patience = member.lacking && now - *member.lacking > kLaunchPatience;
  if (member.launches == kMaxLaunches || out_of_patience) {
    const std::string last = member.last_error.empty() ? "" : ": " + member.last_error;
    member.end = InstanceEnd{
        member.host,
        failed(fmt::format("InternalServerError: {} agents were started and none brought it to "
                           "its end{}",
                           member.launches, last)),
        clock_.now()};
    return;
  }
  const Result<void> launched = launch_agent(program_, member.folder);
  if (!launched) member.last_error = launched.error().message;
  if (!launched && is_passing(launched.error())) {
    if (!member.lacking) member.lacking = now;
    return;  // with the next look
  }
  member.lacking.reset();
  ++member.launches;
}

void Members::end_all() {
  ending_ = true;
  if (wake_) eventfd_write(wake_.get(), 1);
}

std::vector<InstanceEnd> Members::wait() {
  if (empty() || (!thread_.joinable() && !begun())) return {};
  if (!thread_.joinable()) {
    ending_ = true;
    thread_ = std::thread([this] { loop(); });
  }
  thread_.join();
  std::vector<InstanceEnd> ends;
  for (Member& member : members_) {
    if (member.end) ends.push_back(*std::move(member.end));
  }
  return ends;
}

// Until all have ended.
void Members::loop() {
  while (!leaving_) {
    look();
    if (std::ranges::all_of(members_,
                            [](const Member& member) { return member.end.has_value(); })) {
      return;
    }
    pollfd fds[2] = {{events_.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
    poll(fds, 2, kLookMilliseconds);
    char buffer[4096];
    while (read(events_.get(), buffer, sizeof buffer) > 0) {
    }
    eventfd_t count = 0;
    eventfd_read(wake_.get(), &count);
  }
}

void Members::look() {
  hand_on_requests();
  for (Member& member : members_) {
    if (member.end) continue;
    look_at(member);
    if (!member.end || member.end->outcome.kind == "completed" || told_) continue;
    // The first that did not come to a good end takes the others with it.
    told_ = true;
    end_others(&member);
    const Result<void> said = end_early(folder_, attempt_);
    if (!said) log::error("ending the job's first instance: " + said.error().message);
  }
}

void Members::look_at(Member& member) {
  // In this order: an agent that is gone now has written all that it ever will.
  const bool alive = agent_alive(member.folder);
  Result<std::optional<InstanceEnd>> end = end_in(member.folder, member.host, attempt_);
  if (end && *end) {
    member.end = **std::move(end);
  } else if (!alive) {
    launch(member);  // it finishes what the one that was killed had begun
  }
}

void Members::hand_on_requests() {
  const bool stop = ending_ || is_there(folder_ / "stop");
  const bool again = second_stop_requested(folder_);
  const bool interrupt = interrupt_asked(folder_, attempt_);
  for (const Member& member : members_) {
    if (member.end) continue;
    Result<void> asked;
    if (again && !second_stop_requested(member.folder)) {
      asked = request_second_stop(member.folder);
    } else if (stop && !is_there(member.folder / "stop")) {
      asked = request_stop(member.folder);
    }
    if (asked && interrupt && !interrupt_asked(member.folder, attempt_)) {
      asked = request_interrupt(member.folder, attempt_);
    }
    if (!asked) log::error(fmt::format("{}: {}", member.host, asked.error().message));
  }
}

void Members::end_others(const Member* but) {
  for (const Member& member : members_) {
    if (&member == but || member.end || is_there(member.folder / "stop")) continue;
    const Result<void> asked = request_stop(member.folder);
    if (!asked) log::error(fmt::format("{}: {}", member.host, asked.error().message));
  }
}

}  // namespace atelier::agent
