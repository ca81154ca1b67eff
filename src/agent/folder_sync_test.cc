// A folder and its copy in a real S3, with trainers that write it in every way, and agents that are
// killed at any moment.
#include "agent/folder_sync.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <random>

#include "base/time.h"
#include "objects/testing.h"

namespace atelier::agent {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Files = std::map<std::string, std::string>;

// The machine's clock, and what a test puts it ahead by.
class AheadClock final : public Clock {
 public:
  [[nodiscard]] Time now() const override { return system_clock().now() + ahead.load(); }
  [[nodiscard]] std::chrono::steady_clock::time_point steady() const override {
    return system_clock().steady();
  }
  std::atomic<std::chrono::seconds> ahead = std::chrono::seconds{0};
};

class FolderSyncTest : public testing::Test {
 protected:
  FolderSyncTest() {
    store_->create_bucket("ckpt").value();
    make_folders(local_).value();
  }
  std::unique_ptr<FolderSync> open(const std::string& uri = "s3://ckpt/job-1/") {
    FolderSyncOptions options;
    options.title = "checkpoints";
    options.target = objects::parse_s3_uri(uri).value();
    options.records = folder_.path() / "records";
    return FolderSync::open(*store_, tree_, "checkpoints", options,
                            [this](std::string_view line) { notes_ += std::string{line} + "\n"; })
        .value();
  }
  void write(const std::string& name, const std::string& text) {
    make_folders((local_ / name).parent_path()).value();
    std::ofstream{local_ / name, std::ios::binary} << text;
  }
  void round(FolderSync& sync, int count = 2) {
    for (int i = 0; i < count; ++i) sync.round(ProgramState::kRuns).value();
  }
  Files remote(const std::string& prefix = "job-1/") {
    Files files;
    objects::ListOptions options;
    options.prefix = prefix;
    const objects::ListPage page = store_->list("ckpt", options).value();
    for (const objects::ObjectInfo& object : page.objects) {
      // It may be gone since it was listed.
      const auto bytes = store_->get_bytes("ckpt", object.key, 64 << 20);
      if (bytes) files[object.key.substr(prefix.size())] = *bytes;
    }
    return files;
  }
  Files local() {
    Files files;
    for (const auto& entry : fs::recursive_directory_iterator(local_)) {
      if (!entry.is_regular_file()) continue;
      files[fs::relative(entry.path(), local_).string()] = read_file(entry.path()).value();
    }
    return files;
  }
  void empty_folder() {
    fs::remove_all(local_);
    make_folders(local_).value();
  }

  TempFolder folder_ = TempFolder::create().value();
  AheadClock clock_;
  objects::testing::EmbeddedS3 s3_{folder_.path() / "s3", {}, clock_};
  std::unique_ptr<objects::ObjectStore> store_ = objects::make_s3_client(s3_.endpoint());
  MlTree tree_ = MlTree::open(folder_.path() / "ml", {geteuid(), getegid()}).value();
  fs::path local_ = folder_.path() / "ml/checkpoints";
  std::string notes_;
};

TEST_F(FolderSyncTest, WhatWasCopiedIsRestoredByteForByteWithItsTimes) {
  auto sync = open();
  sync->restore({}).value();
  write("checkpoint-1/weights", std::string(3 << 20, 'w'));
  write("checkpoint-1/empty", "");
  write("latest", "checkpoint-1");
  const timespec times[2] = {{1'600'000'000, 123'456'789}, {1'600'000'000, 123'456'789}};
  ASSERT_EQ(utimensat(AT_FDCWD, (local_ / "latest").c_str(), times, 0), 0);
  round(*sync);
  const Files before = local();
  EXPECT_EQ(remote(), before);
  sync.reset();

  empty_folder();
  fs::remove(folder_.path() / "records");
  sync = open();
  sync->restore({}).value();
  EXPECT_EQ(local(), before);
  struct stat info {};
  ASSERT_EQ(stat((local_ / "latest").c_str(), &info), 0);
  EXPECT_EQ(info.st_mtim.tv_sec, 1'600'000'000);
  EXPECT_EQ(info.st_mtim.tv_nsec, 123'456'789);
  sync->finish(ProgramState::kEnded).value();
  EXPECT_EQ(sync->report().files, 0U) << "what was restored is not copied again";
}

TEST_F(FolderSyncTest, APrefixIsAFolder) {
  store_->put("ckpt", "job-10/other", "x", {}).value();
  store_->put("ckpt", "job-1/mine", "y", {}).value();
  open()->restore({}).value();
  EXPECT_EQ(local(), (Files{{"mine", "y"}}));
}

TEST_F(FolderSyncTest, DeletionsAreMirroredOfWhatThisFolderHadOnly) {
  auto sync = open();
  sync->restore({}).value();
  write("a", "1");
  write("b", "2");
  round(*sync);
  store_->put("ckpt", "job-1/added-by-others", "3", {}).value();
  fs::remove(local_ / "a");
  round(*sync, 2);
  EXPECT_EQ(remote(), (Files{{"added-by-others", "3"}, {"b", "2"}}));
}

TEST_F(FolderSyncTest, AFolderThatIsNotThereIsNoDeletion) {
  store_->put("ckpt", "job-1/a", "1", {}).value();
  for (const std::string folder : {"checkpoints", ""}) {
    fs::remove_all(folder_.path() / "records");
    const fs::path root = folder_.path() / ("tree" + folder);
    MlTree tree = MlTree::open(root, {geteuid(), getegid()}).value();
    if (!folder.empty()) tree.make_folder(folder).value();
    FolderSyncOptions options;
    options.target = objects::parse_s3_uri("s3://ckpt/job-1/").value();
    options.records = folder_.path() / "records";
    const auto sync =
        FolderSync::open(*store_, tree, folder, options, [](std::string_view) {}).value();
    sync->restore({}).value();
    fs::remove_all(root / folder);
    for (int i = 0; i < 4; ++i) EXPECT_FALSE(sync->round(ProgramState::kRuns));
    sync->finish(ProgramState::kEnded).value();
    EXPECT_TRUE(sync->report().folder_gone);
    EXPECT_EQ(remote(), (Files{{"a", "1"}})) << "'" << folder << "'";
  }
}

TEST_F(FolderSyncTest, AfterARestoreThatHasNotEndedNothingIsCopiedByTheSuccessorEither) {
  store_->put("ckpt", "job-1/latest", "newer, of another instance", {}).value();
  store_->put("ckpt", "job-1/no//file", "that a folder can have", {}).value();
  auto sync = open();
  EXPECT_FALSE(sync->restore({}));
  write("latest", "restored before the stop");
  sync->finish(ProgramState::kEnded).value();
  EXPECT_TRUE(sync->report().unrestored);
  sync = open();
  sync->finish(ProgramState::kEnded).value();
  EXPECT_TRUE(sync->report().unrestored);
  EXPECT_EQ(remote()["latest"], "newer, of another instance");
}

TEST_F(FolderSyncTest, ARenamedFolderIsThereUnderItsNewNameBeforeTheOldOneGoes) {
  auto sync = open();
  sync->restore({}).value();
  write("tmp-checkpoint-5/w", "weights");
  round(*sync, 3);
  EXPECT_THAT(remote(), IsEmpty());
  fs::rename(local_ / "tmp-checkpoint-5", local_ / "checkpoint-5");
  round(*sync);
  EXPECT_EQ(remote(), (Files{{"checkpoint-5/w", "weights"}}));
  fs::rename(local_ / "checkpoint-5", local_ / "best");
  for (int i = 0; i < 4; ++i) {
    round(*sync, 1);
    EXPECT_FALSE(remote().empty());
  }
  EXPECT_EQ(remote(), (Files{{"best/w", "weights"}}));
}

TEST_F(FolderSyncTest, AFileThatIsOpenForWritingWaitsHoweverQuietItIs) {
  auto sync = open();
  sync->restore({}).value();
  write("last.pt", "whole");
  round(*sync);
  std::ofstream writer{local_ / "last.pt", std::ios::binary | std::ios::trunc};
  writer << "half" << std::flush;
  round(*sync, 5);
  EXPECT_EQ(remote()["last.pt"], "whole");
  writer << " and half" << std::flush;
  writer.close();
  round(*sync, 3);
  EXPECT_EQ(remote()["last.pt"], "half and half");
}

TEST_F(FolderSyncTest, AfterAKillHalfAFileDoesNotReplaceAWholeOne) {
  auto sync = open();
  sync->restore({}).value();
  write("last.pt", "whole");
  round(*sync);
  write("next.pt", "seen whole before the kill");
  std::ofstream writer{local_ / "last.pt", std::ios::binary | std::ios::trunc};
  writer << "half" << std::flush;
  sync->look();
  writer.close();  // as the kernel does it for a killed process
  sync->finish(ProgramState::kCrashed).value();
  EXPECT_EQ(remote(), (Files{{"last.pt", "whole"}, {"next.pt", "seen whole before the kill"}}));
  EXPECT_THAT(sync->report().left_out, ElementsAre("last.pt"));
}

TEST_F(FolderSyncTest, TimesBefore1970AndFarAheadAreNoTrouble) {
  auto sync = open();
  sync->restore({}).value();
  const auto set_time = [&](const char* name, timespec time) {
    write(name, name);
    const timespec times[2] = {time, time};
    ASSERT_EQ(utimensat(AT_FDCWD, (local_ / name).c_str(), times, 0), 0);
  };
  set_time("early", {-1, 500'000'000});
  set_time("late", {13'569'465'600, 5});  // the year 2400: more nanoseconds than 64 bits count
  set_time("usual", {1'600'000'000, 7});
  const auto time_of = [&](const char* name) {
    struct stat info {};
    EXPECT_EQ(stat((local_ / name).c_str(), &info), 0);
    return std::pair{info.st_mtim.tv_sec, info.st_mtim.tv_nsec};
  };
  auto late = time_of("late");  // some file systems end sooner
  late.first = std::min(late.first, 9'000'000'000L);
  round(*sync);
  const Files before = local();
  EXPECT_EQ(remote(), before);
  sync.reset();

  empty_folder();
  fs::remove(folder_.path() / "records");
  sync = open();
  sync->restore({}).value();
  EXPECT_EQ(local(), before);
  EXPECT_EQ(notes_.find("times of restored files"), std::string::npos) << notes_;
  EXPECT_EQ(time_of("early"), (std::pair{-1L, 500'000'000L}));
  EXPECT_EQ(time_of("late"), late);
  EXPECT_EQ(time_of("usual"), (std::pair{1'600'000'000L, 7L}));
}

TEST_F(FolderSyncTest, LooksOfTheAgentsThreadGoBesideThoseOfTheWatchingOne) {
  auto sync = open();
  sync->restore({}).value();
  sync->begin().value();
  write("last.pt", "whole");
  while (remote().empty()) sync->look();
  sync->finish(ProgramState::kEnded).value();
  EXPECT_EQ(remote(), (Files{{"last.pt", "whole"}}));
}

// A process that has the file open, or mapped, for writing.
class Writer {
 public:
  enum class How { kOpen, kMapped };
  Writer(const fs::path& file, How how) {
    pid_ = fork();
    if (pid_ != 0) return;
    signal(SIGUSR1, [](int) { _exit(3); });
    const int fd = open(file.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (write(fd, "half", 4) != 4) _exit(1);
    void* map = how == How::kMapped ? mmap(nullptr, 4, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                                    : MAP_FAILED;
    if (map != MAP_FAILED) close(fd);
    while (true) pause();
  }
  void end(int number) {
    kill(pid_, number);
    waitpid(pid_, nullptr, 0);
  }

 private:
  pid_t pid_ = -1;
};

TEST_F(FolderSyncTest, AFileWhoseWriterWasKilledIsNotTaken) {
  for (const Writer::How how : {Writer::How::kOpen, Writer::How::kMapped}) {
    empty_folder();
    auto sync = open(fmt::format("s3://ckpt/job-1{}/", static_cast<int>(how)));
    sync->restore({}).value();
    write("a", "whole");
    round(*sync);
    Writer writer{local_ / "a", how};
    while (read_file(local_ / "a").value() != "half") usleep(1000);
    round(*sync);
    writer.end(SIGKILL);
    round(*sync, 4);
    EXPECT_EQ(remote(fmt::format("job-1{}/", static_cast<int>(how))), (Files{{"a", "whole"}}));
    fs::remove(folder_.path() / "records");
  }
}

TEST_F(FolderSyncTest, AFileWhoseWriterEndedByItselfIsTakenWhereTheKernelTells) {
  auto sync = open();
  sync->restore({}).value();
  Writer writer{local_ / "a", Writer::How::kOpen};
  while (read_file(local_ / "a").value_or("") != "half") usleep(1000);
  round(*sync);
  EXPECT_THAT(remote(), IsEmpty());
  writer.end(SIGUSR1);
  round(*sync, 4);
  if (remote().empty()) GTEST_SKIP() << "Linux before 6.15";
  EXPECT_EQ(remote(), (Files{{"a", "half"}}));
}

TEST_F(FolderSyncTest, OfAFileAndAFolderOfOneNameTheNewerIsRestored) {
  store_->put("ckpt", "job-1/a", "older", {}).value();
  store_->put("ckpt", "job-1/b/c/d", "older", {}).value();
  store_->put("ckpt", "job-1/ab", "beside them", {}).value();
  clock_.ahead = std::chrono::seconds{2};  // listings have seconds
  store_->put("ckpt", "job-1/a/x", "newer", {}).value();
  store_->put("ckpt", "job-1/b", "newer", {}).value();
  open()->restore({}).value();
  EXPECT_EQ(local(), (Files{{"a/x", "newer"}, {"ab", "beside them"}, {"b", "newer"}}));
}

TEST_F(FolderSyncTest, LinksLeadNowhereAndSpecialFilesAreLeft) {
  std::ofstream{folder_.path() / "secret"} << "key";
  write("a", "1");
  fs::create_symlink(folder_.path() / "secret", local_ / "link");
  fs::create_directory_symlink(folder_.path(), local_ / "folder");
  ASSERT_EQ(mkfifo((local_ / "fifo").c_str(), 0600), 0);
  auto sync = open();
  sync->finish(ProgramState::kEnded).value();
  EXPECT_EQ(remote(), (Files{{"a", "1"}}));
  // The folder itself may have become a link.
  fs::rename(local_, folder_.path() / "away");
  fs::create_directory_symlink(folder_.path(), local_);
  EXPECT_FALSE(open()->finish(ProgramState::kEnded));
  EXPECT_EQ(remote(), (Files{{"a", "1"}})) << "and a look that failed removes nothing";
}

TEST_F(FolderSyncTest, ManySmallFilesAreCopiedAndABadNameIsSaid) {
  auto sync = open();
  sync->restore({}).value();
  for (int i = 0; i < 300; ++i) write(fmt::format("d{}/f{}", i % 7, i), std::to_string(i));
  write("not utf-8 \xff", "x");
  round(*sync);
  EXPECT_EQ(remote().size(), 300U);
  EXPECT_THAT(sync->report().no_key, ElementsAre("not utf-8 \xff"));
}

TEST_F(FolderSyncTest, ABucketThatIsNotThereIsAnErrorWithItsName) {
  const auto restored = open("s3://no-such-bucket/x/")->restore({});
  ASSERT_FALSE(restored);
  EXPECT_THAT(restored.error().message, HasSubstr("no-such-bucket"));
  write("a", "1");
  auto sync = open("s3://no-such-bucket/x/");
  EXPECT_FALSE(sync->finish(ProgramState::kEnded));
}

// A trainer whose every file says which version it is and whether it is whole.
class Trainer {
 public:
  Trainer(fs::path folder, unsigned seed) : folder_(std::move(folder)), random_(seed) {}

  void step() {
    switch (pick(8)) {
      case 0:
      case 1:
        return write_in_pieces(name());
      case 2:
      case 3:
        return write_and_rename();
      case 4:
        return save_folder();
      case 5:
        fs::remove(folder_ / name());
        return;
      case 6:
        return rename_file();
      default:
        usleep(static_cast<useconds_t>(pick(4000)));
    }
  }
  // The version of a whole text; 0 when it is none that this trainer ever finished under the name.
  int version_of(const std::string& name, const std::string& text) const {
    const auto found = whole_.find(text);
    return found != whole_.end() && found->second.contains(name) ? found->second.at(name) : 0;
  }

 private:
  unsigned pick(unsigned count) { return static_cast<unsigned>(random_() % count); }
  std::string name() { return fmt::format("file-{}", pick(4)); }
  std::string text() {
    const std::size_t size = pick(5) == 0 ? 1'500'000 + pick(1'000'000) : 20 + pick(3000);
    std::string text = fmt::format("version {} ", ++version_);
    while (text.size() < size)
      text += fmt::format("{} ", version_ * 7919 + static_cast<int>(text.size()));
    return text + "end";
  }
  void finished(const std::string& name, const std::string& text) { whole_[text][name] = ++time_; }

  void write_in_pieces(const std::string& name) {
    const std::string all = text();
    std::ofstream file{folder_ / name, std::ios::binary | std::ios::trunc};
    const std::size_t piece = all.size() / (1 + pick(4)) + 1;
    for (std::size_t at = 0; at < all.size(); at += piece) {
      file << all.substr(at, piece) << std::flush;
      usleep(static_cast<useconds_t>(pick(6000)));
    }
    finished(name, all);  // before it can be seen without a writer
  }
  void write_and_rename() {
    const std::string target = name();
    const std::string all = text();
    std::ofstream{folder_ / (target + ".tmp"), std::ios::binary} << all;
    finished(target, all);
    fs::rename(folder_ / (target + ".tmp"), folder_ / target);
  }
  void save_folder() {
    const std::string final_name = fmt::format("checkpoint-{}", pick(3));
    fs::create_directories(folder_ / "tmp-save");
    for (const char* part : {"weights", "optimizer"}) {
      const std::string all = text();
      std::ofstream{folder_ / "tmp-save" / part, std::ios::binary} << all;
      finished(final_name + "/" + part, all);
    }
    fs::remove_all(folder_ / final_name);
    fs::rename(folder_ / "tmp-save", folder_ / final_name);
  }
  void rename_file() {
    const std::string from = name();
    const std::string to = name();
    std::error_code missing;
    const Result<std::string> all = read_file(folder_ / from);
    // A text that comes back to a name would make it unclear which of its times one sees.
    if (!all || whole_[*all].contains(to)) return;
    finished(to, *all);
    fs::rename(folder_ / from, folder_ / to, missing);
  }

  fs::path folder_;
  std::mt19937 random_;
  int version_ = 0;
  int time_ = 0;
  std::map<std::string, std::map<std::string, int>> whole_;  // text -> name -> when
};

class KilledAgents : public FolderSyncTest, public testing::WithParamInterface<unsigned> {
 protected:
  pid_t start_agent() {
    const std::string program =
        fs::read_symlink("/proc/self/exe").parent_path() / "folder_sync_under_test";
    std::vector<std::string> words{program, s3_.endpoint().url, (folder_.path() / "ml").string(),
                                   (folder_.path() / "records").string(), "s3://ckpt/job-1/"};
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_t pid = -1;
    EXPECT_EQ(posix_spawn(&pid, program.c_str(), nullptr, nullptr, argv.data(), environ), 0);
    return pid;
  }
  // Each object is one whole version of its file, and never an older one than it was.
  void check(const Trainer& trainer) {
    for (const auto& [name, text] : remote()) {
      const int version = trainer.version_of(name, text);
      EXPECT_GT(version, 0) << name << " was never whole like that: " << text.substr(0, 40);
      EXPECT_GE(version, newest_[name]) << name << " went back";
      newest_[name] = version;
    }
  }
  std::map<std::string, int> newest_;
};

TEST_P(KilledAgents, LeaveWholeFilesThatNeverGoBackAndTheLastOneBringsTheLastState) {
  std::mt19937 random{GetParam()};
  Trainer trainer{local_, GetParam()};
  open()->restore({}).value();
  for (int life = 0; life < 8; ++life) {
    const pid_t agent = start_agent();
    const auto steps = 5 + random() % 25;
    // The first one lives until it has copied something: a busy machine starts it slowly.
    for (unsigned i = 0; i < steps || (life == 0 && newest_.empty() && i < 5000); ++i) {
      trainer.step();
      if (i % 5 == 0) check(trainer);
    }
    kill(agent, SIGKILL);
    waitpid(agent, nullptr, 0);
    check(trainer);
  }
  EXPECT_FALSE(newest_.empty());
  // What the last agent, killed with the program, leaves to the next one.
  open()->finish(ProgramState::kCrashed).value();
  check(trainer);
  open()->finish(ProgramState::kEnded).value();
  EXPECT_EQ(remote(), local());
}

INSTANTIATE_TEST_SUITE_P(AtRandom, KilledAgents, testing::Values(1U, 2U, 3U));

}  // namespace
}  // namespace atelier::agent
