// Promises that a kill -9 must not break: what was acknowledged is there and whole, what was not is
// there whole or not at all, and no file lacks an object.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <map>
#include <thread>

#include "base/hash.h"
#include "base/rng.h"
#include "objects/local_store.h"

namespace atelier::objects {
namespace {

namespace fs = std::filesystem;

constexpr int kRounds = 30;
constexpr std::uint64_t kWriters = 4;
constexpr std::uint64_t kKeys = 12;  // of each writer, replaced and removed again and again
constexpr std::uint64_t kSeed = 2026;

// In two parts, the first of which is as small as it may be.
bool in_parts(std::uint64_t version) { return version % 7 == 3; }

// A body says which version of which key it is, in every 8 bytes, so that a torn or foreign one
// shows.
std::string body_of(std::uint64_t writer, std::uint64_t version) {
  constexpr std::size_t kSizes[] = {8, 1024, kInlineBytes, kInlineBytes + 8, 400'000};
  const std::size_t first_part = in_parts(version) ? kMinPartBytes : 0;
  std::string bytes(first_part + kSizes[rng(kSeed, writer, version) % std::size(kSizes)], '\0');
  for (std::size_t i = 0; i < bytes.size(); i += 8) {
    const std::uint64_t word = rng(kSeed, writer + 100, version);
    std::memcpy(bytes.data() + i, &word, 8);
  }
  return bytes;
}

std::string key_of(std::uint64_t writer, std::uint64_t version) {
  return "w" + std::to_string(writer) + "/" + std::to_string(version % kKeys);
}

bool removes(std::uint64_t version) { return version % 7 == 6; }

// What a writer tells the test by a pipe: "I start version v" and "version v is acknowledged".
struct Note {
  std::uint64_t writer;
  std::uint64_t version;
  bool acknowledged;
};

std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span{text.data(), text.size()});
}

bool write_in_parts(LocalStore& store, const std::string& key, std::string_view bytes,
                    const std::string& tags) {
  UploadRecord upload{.bucket = "bucket", .key = key, .tags = tags};
  const Result<std::string> id = store.create_upload(upload);
  if (!id) return false;
  upload.id = *id;
  CompleteUpload request{.bucket = "bucket", .key = key, .id = *id};
  const std::string_view parts[] = {bytes.substr(0, kMinPartBytes), bytes.substr(kMinPartBytes)};
  for (unsigned number = 1; number <= 2; ++number) {
    const std::string_view part = parts[number - 1];
    auto body = store.start_part(upload, number, part.size());
    if (!body || !(*body)->append(as_bytes(part))) return false;
    const std::string etag = to_hex(digest(Digest::kMd5, part));
    if (!store.put_part(upload, {.number = number, .size = 0, .etag = etag}, *std::move(body))) {
      return false;
    }
    request.parts.push_back({number, etag});
  }
  return store.complete_upload(request).has_value();
}

bool write_version(LocalStore& store, std::uint64_t writer, std::uint64_t version) {
  if (removes(version)) return store.remove("bucket", key_of(writer, version)).has_value();
  const std::string bytes = body_of(writer, version);
  if (in_parts(version)) {
    return write_in_parts(store, key_of(writer, version), bytes, std::to_string(version));
  }
  auto body = store.start_body();
  if (!body->append(as_bytes(bytes))) return false;
  NewObject object{.bucket = "bucket",
                   .key = key_of(writer, version),
                   .etag = to_hex(digest(Digest::kMd5, bytes))};
  object.tags = std::to_string(version);
  return store.put(object, std::move(body)).has_value();
}

[[noreturn]] void write_until_killed(const fs::path& folder,
                                     const std::map<std::uint64_t, std::uint64_t>& next,
                                     int notes) {
  auto store = LocalStore::open(folder, system_clock());
  if (!store) _exit(1);
  std::vector<std::thread> writers;
  for (std::uint64_t writer = 0; writer < kWriters; ++writer) {
    writers.emplace_back([&, writer] {
      for (std::uint64_t version = next.at(writer);; ++version) {
        for (const bool acknowledged : {false, true}) {
          if (acknowledged && !write_version(**store, writer, version)) _exit(2);
          const Note note{writer, version, acknowledged};
          if (write(notes, &note, sizeof note) != sizeof note) _exit(3);
        }
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  _exit(4);
}

struct Expected {
  std::map<std::string, std::uint64_t> acknowledged;  // key -> the last version that was
  std::map<std::string, std::uint64_t> started;       // key -> the one under way at the kill
  std::map<std::uint64_t, std::uint64_t> next;        // writer -> version
};

// Kills the writer after a number of notes, which is a random moment.
void run_and_kill(const fs::path& folder, Expected& expected, std::uint64_t after_notes) {
  int pipe_ends[2];
  ASSERT_EQ(pipe2(pipe_ends, O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) write_until_killed(folder, expected.next, pipe_ends[1]);
  close(pipe_ends[1]);
  const UniqueFd notes{pipe_ends[0]};
  Note note{};
  expected.started.clear();
  // What is in the pipe at the kill counts too: those writes were acknowledged.
  for (std::uint64_t seen = 0; read(notes.get(), &note, sizeof note) == sizeof note; ++seen) {
    if (seen == after_notes) kill(child, SIGKILL);
    const std::string key = key_of(note.writer, note.version);
    if (note.acknowledged) {
      expected.acknowledged[key] = note.version;
      expected.started.erase(key);
    } else {
      expected.started[key] = note.version;
    }
    expected.next[note.writer] = note.version + 1;
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status)) << "the writer ended by itself: " << WEXITSTATUS(status);
}

std::string read_all(const std::pair<ObjectRecord, Body>& found) {
  if (!found.second.file) return found.second.bytes;
  std::string bytes(found.first.size, '\0');
  EXPECT_EQ(pread(found.second.file.get(), bytes.data(), bytes.size(), 0),
            static_cast<ssize_t>(bytes.size()));
  return bytes;
}

// True when the store holds `key` as `version` left it.
bool is_version(LocalStore& store, std::uint64_t writer, const std::string& key,
                std::uint64_t version) {
  const auto found = store.get("bucket", key);
  if (removes(version)) return !found && found.error().code == Code::kNotFound;
  return found && found->first.tags == std::to_string(version) &&
         read_all(*found) == body_of(writer, version);
}

void check(const fs::path& folder, const Expected& expected) {
  const auto store = LocalStore::open(folder, system_clock());
  ASSERT_TRUE(store) << store.error().message;
  for (const auto& [key, version] : expected.acknowledged) {
    const std::uint64_t writer = static_cast<std::uint64_t>(key[1] - '0');
    const auto under_way = expected.started.find(key);
    const bool old = is_version(**store, writer, key, version);
    const bool next =
        under_way != expected.started.end() && is_version(**store, writer, key, under_way->second);
    EXPECT_TRUE(old || next) << key << " is neither version " << version << " nor the next";
  }
  // What a kill left of uploads goes when they are given up.
  const auto left = (*store)->list_uploads({.bucket = "bucket"});
  ASSERT_TRUE(left);
  for (const UploadRecord& upload : left->uploads) {
    EXPECT_TRUE((*store)->abort_upload("bucket", upload.key, upload.id));
  }
  const auto page = (*store)->list({.bucket = "bucket"});
  ASSERT_TRUE(page);
  std::size_t large = 0;
  for (const ObjectRecord& object : page->objects) large += object.size > kInlineBytes;
  std::size_t files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder / "bodies"))
    files += entry.is_regular_file();
  EXPECT_EQ(files, large) << "every file has an object";
}

TEST(LocalStoreCrash, KillsAtRandomMomentsLoseNothingAcknowledgedAndLeaveNothingTorn) {
  const TempFolder folder = *TempFolder::create();
  {
    const auto store = LocalStore::open(folder.path(), system_clock());
    ASSERT_TRUE(store);
    ASSERT_TRUE((*store)->create_bucket("bucket", ""));
  }
  Expected expected;
  for (std::uint64_t writer = 0; writer < kWriters; ++writer) expected.next[writer] = 0;
  for (std::uint64_t round = 0; round < kRounds && !HasFatalFailure(); ++round) {
    run_and_kill(folder.path(), expected, rng(kSeed, 9, round) % 80);
    check(folder.path(), expected);
    // The writers go on from what is there: what was under way may have been done.
    for (const auto& [key, version] : expected.started) expected.acknowledged.erase(key);
  }
  EXPECT_GT(expected.acknowledged.size(), kKeys);
}

}  // namespace
}  // namespace atelier::objects
