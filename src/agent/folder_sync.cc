#include "agent/folder_sync.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "agent/sync_look.h"
#include "base/parallel.h"
#include "channels/file_channel.h"

namespace atelier::agent {
namespace {

constexpr std::size_t kCopies = 16;  // at once
constexpr int kLookShare = 50;
constexpr const char* kTimeKey = "mtime";
// Above it the time is the object's own, from the listing: a question a file takes too long.
constexpr std::size_t kMaxTimes = 10'000;
constexpr std::size_t kMaxRecordLines = 100'000;
constexpr std::size_t kRemoveBatch = 1000;
constexpr int kMaxFailures = 16;
constexpr int kFinalRounds = 5;

// Of a time since 1970; before it the seconds go down and the nanoseconds up.
template <typename Duration>
timespec moment_of(Duration time) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(time);
  return {seconds.count(), std::chrono::nanoseconds{time - seconds}.count()};
}

}  // namespace

std::string time_words(std::int64_t nanoseconds) {
  constexpr std::int64_t kSecond = 1'000'000'000;
  std::int64_t seconds = nanoseconds / kSecond;
  std::int64_t rest = nanoseconds % kSecond;
  if (rest < 0) {
    rest += kSecond;
    --seconds;
  }
  return fmt::format("{}.{:09}", seconds, rest);
}

std::optional<std::int64_t> parse_time_words(std::string_view text) {
  std::int64_t seconds = 0;
  const char* end = text.data() + text.size();
  const auto whole = std::from_chars(text.data(), end, seconds);
  // 9e9 seconds are the year 2255, still in range as nanoseconds.
  if (whole.ec != std::errc{} || seconds < -9'000'000'000 || seconds > 9'000'000'000) return {};
  std::string_view rest{whole.ptr, end};
  if (rest.empty()) return seconds * 1'000'000'000;
  if (rest.front() != '.' || rest.size() > 30) return {};
  rest.remove_prefix(1);
  if (rest.find_first_not_of("0123456789") != std::string_view::npos) return {};
  std::string digits{rest.substr(0, 9)};
  digits.resize(9, '0');
  std::int64_t nanoseconds = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), nanoseconds);
  return seconds * 1'000'000'000 + nanoseconds;
}

FolderSync::FolderSync(objects::ObjectStore& store, MlTree& tree, std::string folder,
                       FolderSyncOptions options, std::function<void(std::string_view)> note)
    : store_(store),
      tree_(tree),
      folder_(std::move(folder)),
      options_(std::move(options)),
      note_(std::move(note)),
      ledger_(options_.rules) {}

FolderSync::~FolderSync() { stop(); }

Result<std::unique_ptr<FolderSync>> FolderSync::open(objects::ObjectStore& store, MlTree& tree,
                                                     std::string folder, FolderSyncOptions options,
                                                     std::function<void(std::string_view)> note) {
  options.rules.prefix_bytes = options.target.key.size();
  std::unique_ptr<FolderSync> sync{
      new FolderSync{store, tree, std::move(folder), std::move(options), std::move(note)}};
  const Result<SyncRecords::Read> read = SyncRecords::read(sync->options_.records);
  if (read) {
    for (const auto& [name, version] : read->copied) sync->ledger_.copied(name, version);
    for (const auto& [name, version] : read->queued) sync->ledger_.queued(name, version);
    sync->restoring_ = read->restoring;
  } else if (read.error().code != Code::kNotFound) {
    return read.error();
  }
  return sync;
}

std::string FolderSync::path_of(const std::string& name) const {
  return folder_.empty() ? name : folder_ + "/" + name;
}

Result<void> FolderSync::restore(const objects::Progress& progress) {
  restoring_ = true;
  // A bucket that is not there is an error, a prefix without objects is the first start.
  objects::ListOptions first;
  first.prefix = options_.target.key;
  first.max_keys = 1;
  const objects::ListPage page = TRY(store_.list(options_.target.bucket, first));
  SyncRecords::Read begun;
  begun.restoring = true;
  records_ = TRY(SyncRecords::create(options_.records, begun));
  const std::filesystem::path inside = tree_.folder() / folder_;
  if (!page.objects.empty()) {
    channels::ChannelSource source;
    source.s3_uri = options_.target.uri();
    source.newer_wins = true;
    const auto filled = channels::fill_file_channel(store_, source, inside, nullptr, progress);
    // Markers of folders alone are no files.
    if (!filled && filled.error().code != Code::kNotFound) return filled.error();
    if (filled) {
      note_(fmt::format("[atelier] {}: {} files, {} bytes restored from {}", options_.title,
                        filled->files, filled->bytes, options_.target.uri()));
    }
  }
  const std::lock_guard lock{mutex_};
  const auto unknown = [](std::string_view, const FileVersion&) { return true; };
  std::vector<std::string> names;
  for (const auto& [name, seen] : TRY(look_at_folder(tree_, folder_, unknown))) {
    names.push_back(name);
  }
  set_times(names);
  TRY(tree_.give_all(folder_));
  for (const auto& [name, seen] : TRY(look_at_folder(tree_, folder_, unknown))) {
    ledger_.copied(name, seen.version);
  }
  records_ = TRY(SyncRecords::create(options_.records, {ledger_.copied(), ledger_.queued()}));
  restoring_ = false;
  return {};
}

// Trainers look for their newest checkpoint by its time. It is no reason to fail.
void FolderSync::set_times(const std::vector<std::string>& names) {
  if (names.size() > kMaxTimes) return;
  const auto set_time = [&](std::size_t i) -> Result<void> {
    const objects::ObjectInfo info =
        TRY(store_.head(options_.target.bucket, options_.target.key + names[i]));
    const auto kept = info.metadata.find(kTimeKey);
    std::optional<std::int64_t> time;
    if (kept != info.metadata.end()) time = parse_time_words(kept->second);
    const UniqueFd fd = TRY(tree_.open_file(path_of(names[i])));
    const timespec moment = time ? moment_of(std::chrono::nanoseconds{*time})
                                 : moment_of(info.last_modified.time_since_epoch());
    const timespec times[2] = {moment, moment};
    if (futimens(fd.get(), times) != 0) return error_from_errno("futimens", errno);
    return {};
  };
  const Result<void> done = for_each_parallel(names.size(), kCopies, set_time);
  if (!done) note_("[atelier] times of restored files: " + done.error().message);
}

Result<void> FolderSync::begin() {
  if (!records_)
    records_ = TRY(SyncRecords::create(options_.records, {ledger_.copied(), ledger_.queued()}));
  thread_ = std::thread{[this] { watch(); }};
  return {};
}

void FolderSync::watch() {
  std::unique_lock lock{stop_mutex_};
  while (!stopping_) {
    lock.unlock();
    say(round(ProgramState::kRuns));
    const std::chrono::milliseconds pause = pause_after_a_look();
    lock.lock();
    stop_asked_.wait_for(lock, pause, [this] { return stopping_; });
  }
}

std::chrono::milliseconds FolderSync::pause_after_a_look() const {
  const std::lock_guard lock{mutex_};
  return std::max(options_.interval, look_cost_ * kLookShare);
}

void FolderSync::stop() {
  {
    const std::lock_guard lock{stop_mutex_};
    stopping_ = true;
  }
  stop_asked_.notify_all();
  if (thread_.joinable()) thread_.join();
}

// Once for each trouble, and once when it is over.
void FolderSync::say(const Result<bool>& outcome) {
  std::string words = outcome ? std::string{} : outcome.error().message;
  if (words == trouble_) return;
  trouble_ = std::move(words);
  note_(trouble_.empty()
            ? fmt::format("[atelier] {}: copied to S3 again", options_.title)
            : fmt::format("[atelier] {}: not copied to S3 for now: {}", options_.title, trouble_));
}

void FolderSync::look(const std::function<std::int64_t()>& died_before) {
  const std::lock_guard lock{mutex_};
  died_before_ = died_before;
  const Result<Look> look = look_now();
  if (look) {
    ledger_.observe(*look);
  } else {
    ignore_error(look, "the look at the end says the same, with an error");
  }
}

Result<Look> FolderSync::look_now() {
  using Steady = std::chrono::steady_clock;
  const Steady::time_point begin = Steady::now();
  Result<Look> look =
      look_at_folder(tree_, folder_, [this](std::string_view name, const FileVersion& version) {
        return ledger_.is_copied(name, version);
      });
  report_.folder_gone = !look && look.error().code == Code::kNotFound;
  look_cost_ = std::chrono::duration_cast<std::chrono::milliseconds>(Steady::now() - begin);
  // After the look: a writer that died during it has closed its files.
  if (died_before_) ledger_.doubt_before(died_before_());
  return look;
}

Result<SyncStep> FolderSync::next_step(ProgramState state) {
  const std::lock_guard lock{mutex_};
  const Look look = TRY(look_now());
  SyncStep step = ledger_.next(look, state);
  report_.left_out = step.left_out;
  report_.no_key = step.no_key;
  return step;
}

Result<bool> FolderSync::round(ProgramState state) {
  const SyncStep step = TRY(next_step(state));
  const bool all = TRY(copy(step.copy));
  if (all) TRY(remove(step.remove));
  TRY(shorten_records());
  return all;
}

// The newest file goes last and alone: where it points to the others, it arrives after them.
Result<bool> FolderSync::copy(const std::vector<DueFile>& files) {
  if (files.empty()) return true;
  std::atomic<bool> all = true;
  std::atomic<int> failures = 0;
  std::mutex mutex;
  std::optional<Error> first;
  // What is wrong with one file must not keep the others; what is wrong with all of them is not
  // asked a thousand times.
  const auto one = [&](std::size_t i) -> Result<void> {
    const Result<bool> copied = copy_file(files[i]);
    if (copied && !*copied) all = false;
    if (copied) return {};
    const std::lock_guard lock{mutex};
    if (!first) first = copied.error();
    if (copied.error().code == Code::kCancelled || ++failures >= kMaxFailures) return *first;
    return {};
  };
  TRY(for_each_parallel(files.size() - 1, kCopies, one));
  TRY(one(files.size() - 1));
  if (first) return *first;
  return all.load();
}

// True when the file is in S3 as it was seen; false when it is another one by now.
Result<bool> FolderSync::copy_file(const DueFile& file) {
  const Result<UniqueFd> fd = tree_.open_file(path_of(file.name));
  if (!fd && fd.error().code == Code::kPermissionDenied) return fd.error();
  if (!fd) return false;
  if (file.version.size > options_.largest.bytes) {
    return options_.largest.error(file.name, file.version.size);
  }
  const auto unchanged = [&]() -> Result<void> {
    if (TRY(version_of(fd->get())) == file.version) return {};
    return Error{Code::kAborted, "'" + file.name + "' changed while it was copied"};
  };
  if (!unchanged()) return false;
  {
    const std::lock_guard lock{mutex_};
    ledger_.queued(file.name, file.version);
    TRY(records_->queued(file.name, file.version));
  }
  objects::PutOptions options;
  options.metadata[kTimeKey] = time_words(file.version.modified);
  options.before_visible = unchanged;
  // The store opens a path; one into the program's folder could lead anywhere.
  const std::filesystem::path path = "/proc/self/fd/" + std::to_string(fd->get());
  const std::string key = options_.target.key + file.name;
  const auto put = store_.put_file(options_.target.bucket, key, path, options, {});
  if (!put && !unchanged()) return false;
  if (!put) return put.error().within("copy of '" + file.name + "'");
  const std::lock_guard lock{mutex_};
  ledger_.copied(file.name, file.version);
  ++report_.files;
  report_.bytes += file.version.size;
  TRY(records_->copied(file.name, file.version));
  return true;
}

Result<void> FolderSync::remove(const std::vector<std::string>& names) {
  for (std::size_t start = 0; start < names.size(); start += kRemoveBatch) {
    std::vector<std::string> keys;
    const std::size_t end = std::min(start + kRemoveBatch, names.size());
    for (std::size_t i = start; i < end; ++i) keys.push_back(options_.target.key + names[i]);
    TRY(store_.remove_many(options_.target.bucket, keys));
    const std::lock_guard lock{mutex_};
    for (std::size_t i = start; i < end; ++i) {
      ledger_.removed(names[i]);
      TRY(records_->removed(names[i]));
    }
  }
  return {};
}

Result<void> FolderSync::shorten_records() {
  const std::lock_guard lock{mutex_};
  if (records_->lines() < kMaxRecordLines + 4 * ledger_.copied().size()) return {};
  records_ = TRY(SyncRecords::create(options_.records, {ledger_.copied(), ledger_.queued()}));
  return {};
}

Result<void> FolderSync::finish(ProgramState state) {
  stop();
  if (restoring_) {
    report_.unrestored = true;
    return {};
  }
  if (!records_)
    records_ = TRY(SyncRecords::create(options_.records, {ledger_.copied(), ledger_.queued()}));
  for (int attempt = 0; attempt < kFinalRounds; ++attempt) {
    const Result<bool> done = round(state);
    if (report().folder_gone) {
      ignore_error(done, "report() says it");
      return {};
    }
    if (!done) return done.error();
    if (*done) return {};
  }
  return Error{Code::kAborted,
               "files of '" + folder_ + "' still change, though the program has ended"};
}

SyncReport FolderSync::report() const {
  const std::lock_guard lock{mutex_};
  return report_;
}

}  // namespace atelier::agent
