#include "agent/attempt_clock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>

namespace atelier::agent {
namespace {

constexpr std::chrono::seconds kInterval{2};
constexpr const char* kFile = "attempt-clock";
constexpr std::int64_t kMostMilliseconds = std::int64_t{400} * 24 * 3600 * 1000;

}  // namespace

AttemptClock::AttemptClock(UniqueFd fd, int attempt, std::chrono::milliseconds begin)
    : fd_(std::move(fd)), attempt_(attempt), began_(std::chrono::steady_clock::now() - begin) {}

Result<std::unique_ptr<AttemptClock>> AttemptClock::start(const std::filesystem::path& job_folder,
                                                          int attempt,
                                                          std::chrono::milliseconds begin) {
  std::unique_ptr<AttemptClock> clock{new AttemptClock{
      TRY(open_file(job_folder / kFile, O_WRONLY | O_CREAT, 0600)), attempt, begin}};
  TRY(clock->write());
  clock->thread_ = std::thread{[self = clock.get()] { self->loop(); }};
  return clock;
}

AttemptClock::~AttemptClock() {
  {
    const std::lock_guard lock{mutex_};
    leaving_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

std::chrono::milliseconds AttemptClock::elapsed() const {
  return std::chrono::ceil<std::chrono::milliseconds>(std::chrono::steady_clock::now() - began_);
}

// Always of one size, in one call: it is never seen half.
Result<void> AttemptClock::write() const {
  const std::string text = fmt::format("{:>10} {:>20}\n", attempt_, elapsed().count());
  if (pwrite(fd_.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size())) {
    return {};
  }
  return error_from_errno("write the time of the attempt", errno);
}

void AttemptClock::loop() {
  std::unique_lock lock{mutex_};
  while (!wake_.wait_for(lock, kInterval, [this] { return leaving_; })) {
    ignore_error(write(), "the time before this one stands");
  }
}

std::optional<std::chrono::milliseconds> AttemptClock::read(const std::filesystem::path& job_folder,
                                                            int attempt) {
  const std::string text = read_file(job_folder / kFile, 64).value_or("");
  const auto number = [&](std::size_t start, std::size_t size) -> std::optional<std::int64_t> {
    const std::size_t digits = text.find_first_not_of(' ', start);
    if (digits >= start + size) return {};
    std::int64_t value = 0;
    const char* end = text.data() + start + size;
    const auto [stop, failure] = std::from_chars(text.data() + digits, end, value);
    if (failure != std::errc{} || stop != end || value < 0) return {};
    return value;
  };
  if (text.size() != 32) return {};
  const auto milliseconds = number(11, 20);
  if (number(0, 10) != attempt || !milliseconds || *milliseconds > kMostMilliseconds) return {};
  return std::chrono::milliseconds{*milliseconds};
}

void AttemptClock::remove(const std::filesystem::path& job_folder) {
  unlink((job_folder / kFile).c_str());
}

}  // namespace atelier::agent
