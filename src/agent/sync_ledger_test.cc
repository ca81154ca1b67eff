#include "agent/sync_ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include "agent/checkpoint_names.h"
#include "agent/folder_sync.h"
#include "agent/local_path.h"
#include "agent/sync_records.h"

namespace atelier::agent {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

SeenFile file(std::uint64_t inode, std::int64_t time, bool writer = false) {
  return {{10, inode, time, time}, writer};
}

std::vector<std::string> names(const std::vector<DueFile>& files) {
  std::vector<std::string> names;
  for (const DueFile& file : files) names.push_back(file.name);
  return names;
}

class Ledger : public testing::Test {
 protected:
  // One look, and all that is due is done.
  SyncStep look(const Look& look, ProgramState state = ProgramState::kRuns) {
    SyncStep step = ledger_.next(look, state);
    for (const DueFile& file : step.copy) ledger_.copied(file.name, file.version);
    for (const std::string& name : step.remove) ledger_.removed(name);
    return step;
  }
  SyncLedger ledger_{SyncRules{}};
};

TEST_F(Ledger, AFileIsCopiedWhenTwoLooksSeeTheSameAndNobodyWrites) {
  EXPECT_THAT(look({{"a", file(1, 5)}}).copy, IsEmpty());
  EXPECT_THAT(look({{"a", file(1, 6)}}).copy, IsEmpty());
  EXPECT_THAT(look({{"a", file(1, 6, true)}}).copy, IsEmpty());
  EXPECT_THAT(names(look({{"a", file(1, 6)}}).copy), ElementsAre("a"));
  EXPECT_THAT(look({{"a", file(1, 6)}}).copy, IsEmpty());
}

TEST_F(Ledger, AFolderThatIsRenamedToItsFinalNameIsCopiedThenAndOldestFirst) {
  const Look half{{"tmp-checkpoint-1/w", file(1, 6)}, {"tmp-checkpoint-1/latest", file(2, 7)}};
  for (int i = 0; i < 3; ++i) EXPECT_THAT(look(half).copy, IsEmpty());
  const Look whole{{"checkpoint-1/w", file(1, 6)}, {"checkpoint-1/latest", file(2, 7)}};
  EXPECT_THAT(look(whole).copy, IsEmpty());
  EXPECT_THAT(names(look(whole).copy), ElementsAre("checkpoint-1/w", "checkpoint-1/latest"));
}

TEST_F(Ledger, AnOldCheckpointGoesOnceItIsMissedTwiceAndTheNewOneIsThere) {
  ledger_.copied("old", file(1, 1).version);
  // The new one was whole before the old one went, but a look may see the first before the second.
  EXPECT_THAT(look({}).remove, IsEmpty());
  SyncStep step = look({{"new", file(2, 2)}});
  EXPECT_THAT(step.copy, IsEmpty());
  EXPECT_THAT(step.remove, IsEmpty());
  step = look({{"new", file(2, 2)}});
  EXPECT_THAT(names(step.copy), ElementsAre("new"));
  EXPECT_THAT(step.remove, ElementsAre("old"));
}

TEST_F(Ledger, AFileThatChangesAllTheTimeKeepsNoRemovalWaiting) {
  ledger_.copied("old", file(1, 1).version);
  look({{"log", file(9, 1)}});
  look({{"log", file(9, 2)}});
  EXPECT_THAT(look({{"log", file(9, 3)}}).remove, ElementsAre("old"));
}

TEST_F(Ledger, AFileThatComesBackIsNotRemoved) {
  ledger_.copied("a", file(1, 1).version);
  look({});
  EXPECT_THAT(look({{"a", file(1, 1)}}).remove, IsEmpty());
  EXPECT_THAT(look({}).remove, IsEmpty());
  EXPECT_THAT(look({}).remove, ElementsAre("a"));
}

TEST_F(Ledger, WhatAProgramLeftByItselfIsCopiedAllAtOnce) {
  ledger_.copied("old", file(1, 1).version);
  const SyncStep step = look({{"a", file(2, 2)}, {"b.tmp", file(3, 3)}}, ProgramState::kEnded);
  EXPECT_THAT(names(step.copy), ElementsAre("a", "b.tmp"));
  EXPECT_THAT(step.remove, ElementsAre("old"));
}

TEST_F(Ledger, AfterAKillOnlyWhatWasSeenWholeIsCopied) {
  ledger_.copied("old", file(1, 1).version);
  ledger_.queued("begun", file(8, 1).version);
  ledger_.queued("begun-and-changed", file(9, 1).version);
  ledger_.next({{"whole", file(2, 2)}, {"written", file(3, 3, true)}, {"changed", file(4, 4)}},
               ProgramState::kRuns);
  const SyncStep step = look({{"whole", file(2, 2)},
                              {"written", file(3, 3)},
                              {"changed", file(4, 5)},
                              {"new", file(5, 6)},
                              {"begun", file(8, 1)},
                              {"begun-and-changed", file(9, 2)}},
                             ProgramState::kCrashed);
  EXPECT_THAT(names(step.copy), ElementsAre("begun", "whole"));
  EXPECT_THAT(step.left_out, ElementsAre("begun-and-changed", "changed", "new", "written"));
  EXPECT_THAT(step.remove, IsEmpty()) << "what is left out may replace it";
  EXPECT_THAT(look({{"whole", file(2, 2)}}, ProgramState::kCrashed).remove,
              ElementsAre("begun", "old"));
}

TEST_F(Ledger, AFileIsWholeWhenItsWriterClosedItAndNotWhenItDied) {
  std::map<std::string, Fate> fates;
  const auto written = [&](const std::string& by, std::int64_t time) {
    SeenFile seen = file(1, time, true);
    seen.writers[by] = [&fates, by] { return fates.at(by); };
    return Look{{"a", seen}, {"old", file(9, 1)}};
  };
  for (const Fate fate : {Fate::kLives, Fate::kExited, Fate::kUnknown}) {
    ledger_ = SyncLedger{SyncRules{}};
    fates = {{"1", Fate::kLeaving}, {"2", Fate::kLives}};
    ledger_.copied("a", file(1, 1).version);
    ledger_.copied("old", file(9, 1).version);
    look(written("1", 2));
    look(written("2", 3));
    for (int i = 0; i < 3; ++i) {
      EXPECT_THAT(look({{"a", file(1, 4)}, {"old", file(9, 1)}}).copy, IsEmpty());
    }
    fates["1"] = fate;
    const bool whole = fate != Fate::kUnknown;
    EXPECT_EQ(names(look({{"a", file(1, 4)}}).copy),
              whole ? std::vector<std::string>{"a"} : std::vector<std::string>{});
    EXPECT_EQ(look({{"a", file(1, 4)}}).remove.empty(), !whole)
        << "what is half may be what replaces the old one";
    if (whole) continue;
    for (const ProgramState state : {ProgramState::kCrashed, ProgramState::kFailed}) {
      EXPECT_THAT(look({{"a", file(1, 4)}}, state).left_out, ElementsAre("a"));
    }
    SyncLedger ended = ledger_;
    EXPECT_THAT(names(ended.next({{"a", file(1, 4)}}, ProgramState::kEnded).copy),
                ElementsAre("a"));
    // Who writes it again, or another file in its place, makes it good.
    look({{"a", file(1, 5)}});
    EXPECT_THAT(names(look({{"a", file(1, 5)}}).copy), ElementsAre("a"));
  }
}

TEST_F(Ledger, AWriterThatCannotBeFoundMayHaveBeenKilled) {
  SeenFile seen = file(1, 2, true);
  seen.unknown_writer = true;
  look({{"a", seen}});
  for (int i = 0; i < 3; ++i) EXPECT_THAT(look({{"a", file(1, 2)}}).copy, IsEmpty());
  EXPECT_THAT(names(look({{"b", file(1, 3)}}).copy), IsEmpty()) << "a new name";
  EXPECT_THAT(names(look({{"b", file(1, 3)}}).copy), ElementsAre("b"));
}

TEST_F(Ledger, LooksForTheEndSettleNothing) {
  ledger_.copied("old", file(9, 1).version);
  for (int i = 0; i < 3; ++i) ledger_.observe({{"a", file(1, 5)}});
  SyncStep step = look({{"a", file(1, 5)}});
  EXPECT_THAT(step.copy, IsEmpty());
  EXPECT_THAT(step.remove, IsEmpty());
  ledger_.observe({{"a", file(1, 5)}});
  step = look({{"a", file(1, 5)}});
  EXPECT_THAT(names(step.copy), ElementsAre("a"));
  EXPECT_THAT(step.remove, ElementsAre("old"));
}

TEST_F(Ledger, WhatAppearsAsAProcessDiesInAStopIsNotTaken) {
  ledger_.observe({{"before", file(1, 5)}});
  ledger_.doubt_before(10);
  ledger_.observe({{"before", file(1, 5)}, {"half", file(2, 9)}, {"after", file(3, 11)}});
  const Look left{{"before", file(1, 5)}, {"half", file(2, 9)}, {"after", file(3, 11)}};
  for (int i = 0; i < 2; ++i) ledger_.next(left, ProgramState::kRuns);
  const SyncStep step = look(left, ProgramState::kCrashed);
  EXPECT_THAT(names(step.copy), ElementsAre("before", "after"));
  EXPECT_THAT(step.left_out, ElementsAre("half"));
}

TEST_F(Ledger, WhatCannotBeBesideACopiedFileGoesWhateverIsLeftOut) {
  ledger_.copied("a", file(1, 1).version);
  ledger_.copied("b/c/d", file(2, 1).version);
  ledger_.copied("b2", file(3, 1).version);
  const Look left{{"a/x", file(4, 4)}, {"b", file(5, 5)}, {"half", file(6, 6, true)}};
  ledger_.observe(left);
  const SyncStep step = look(left, ProgramState::kCrashed);
  EXPECT_THAT(names(step.copy), ElementsAre("a/x", "b"));
  EXPECT_THAT(step.left_out, ElementsAre("half"));
  EXPECT_THAT(step.remove, ElementsAre("a", "b/c/d"));
}

TEST_F(Ledger, FilesThatOnlyGrowAreCopiedWhileTheyAreOpenAndNeverRemoved) {
  ledger_ = SyncLedger{{.mirror_deletions = false, .copy_open_files = true}};
  ledger_.copied("old", file(1, 1).version);
  look({{"events", file(2, 2, true)}});
  EXPECT_THAT(names(look({{"events", file(2, 2, true)}}).copy), ElementsAre("events"));
  EXPECT_THAT(names(look({{"events", file(2, 9)}}, ProgramState::kCrashed).copy),
              ElementsAre("events"));
  EXPECT_TRUE(ledger_.is_copied("old", file(1, 1).version));
}

TEST_F(Ledger, NamesThatS3CannotHaveAreSaid) {
  const std::string bad = "a\xff";
  look({{bad, file(1, 1)}});
  EXPECT_THAT(look({{bad, file(1, 1)}}).no_key, ElementsAre(bad));
  EXPECT_THAT(look({{std::string(1025, 'x'), file(1, 1)}}, ProgramState::kEnded).no_key.size(), 1);
}

TEST(Records, ALineThatDidNotFitIsCutOffBeforeTheNext) {
  const TempFolder folder = TempFolder::create().value();
  const auto file = folder.path() / "records";
  SyncRecords records = SyncRecords::create(file, {}).value();
  records.copied("a", {1, 2, 3, 4}).value();
  // Room for half a line more.
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit full{std::filesystem::file_size(file) + 5, before.rlim_max};
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &full), 0);
  const Result<void> written = records.copied("b", {1, 2, 3, 4});
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, handler);
  ASSERT_FALSE(written);
  records.copied("c", {1, 2, 3, 4}).value();
  const SyncRecords::Read read = SyncRecords::read(file).value();
  EXPECT_EQ(read.copied.size(), 2U);
  EXPECT_TRUE(read.copied.contains("c"));
}

TEST(CheckpointNames, OfUnfinishedFilesAreKnown) {
  for (const char* name :
       {"w.tmp", "w_tmp", "w.pt.part", "w.partial", "tmp-checkpoint-500/optimizer.pt",
        ".metadata.tmp", "7.orbax-checkpoint-tmp-17/d/0", "w.ckpt.tmp-ab12", "model.tempstate83/x",
        "w.incomplete", "a/tmpab3d_x9q", "w~", ".w.swp", "x_temp/part-0"}) {
    EXPECT_TRUE(is_temporary_name(name)) << name;
  }
  for (const char* name :
       {"checkpoint-500/optimizer.pt", "last.ckpt", "epoch=1-step=20.ckpt", "template.json",
        "tmpl.pt", "tmp/state.pt", "tmpAB3DX9QQ", "attempt", ".metadata", "latest", "partial.pt",
        "temperature.json", "__0_0.distcp"}) {
    EXPECT_FALSE(is_temporary_name(name)) << name;
  }
}

TEST(LocalPaths, AreBelowOptMlOrFoldersOfTheirOwn) {
  EXPECT_EQ(place_local_path("/opt/ml/checkpoints/")->in_ml, "checkpoints");
  EXPECT_EQ(place_local_path("/opt/ml/model/ck")->in_ml, "model/ck");
  EXPECT_EQ(place_local_path("/tmp/ck")->outside, "/tmp/ck");
  EXPECT_EQ(place_local_path("/opt/ml/sagemaker/ck")->in_ml, "sagemaker/ck");
  EXPECT_EQ(place_local_path("/checkpoints")->outside, "/checkpoints");
  for (const char* path : {"",
                           "checkpoints",
                           "/",
                           "//x",
                           "/a/../b",
                           "/a/./b",
                           "/a//b",
                           "/opt/ml",
                           "/opt/ml/",
                           "/opt",
                           "/etc/x",
                           "/usr",
                           "/proc/1",
                           "/opt/ml/input/data",
                           "/opt/ml/code",
                           "/tmp",
                           "/tmp/",
                           "/var/tmp/x",
                           "/opt/warm",
                           "/opt/packages/a",
                           "/opt/ml/sagemaker",
                           "/opt/ml/sagemaker/warmpoolcache",
                           "/opt/ml/sagemaker/warmpoolcache/x"}) {
    EXPECT_FALSE(place_local_path(path)) << path;
  }
  EXPECT_THAT(place_local_path("/usr/x").error().message, HasSubstr("'/usr/x' is or lies below"));
  EXPECT_FALSE(place_local_path("/" + std::string(300, 'n')));
  EXPECT_FALSE(place_local_path("/" + std::string(5000, 'n')));
}

TEST(FileTimes, AreKeptToTheNanosecondAndReadFromAnyText) {
  for (const std::int64_t time :
       {std::int64_t{0}, std::int64_t{1}, std::int64_t{-1}, std::int64_t{1'700'000'000'123'456'789},
        std::int64_t{-500'000'000}}) {
    EXPECT_EQ(parse_time_words(time_words(time)), time) << time_words(time);
  }
  EXPECT_EQ(parse_time_words("1700000000"), 1'700'000'000'000'000'000);
  EXPECT_EQ(parse_time_words("1.5"), 1'500'000'000);
  EXPECT_EQ(parse_time_words("1.0123456789999"), 1'012'345'678);
  for (const char* text : {"", ".", "x", "1.x", "1 ", "99999999999", "1.-5", "1e9", "1,5"}) {
    EXPECT_FALSE(parse_time_words(text)) << text;
  }
}

}  // namespace
}  // namespace atelier::agent
