// Checkpoints as files: every bit comes back, what is damaged is passed over, what is others' is
// left alone.
#include "vision/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <bit>
#include <cmath>
#include <csignal>
#include <fstream>
#include <limits>

#include "base/file.h"
#include "base/json.h"
#include "vision/internal/fine_tune_state.h"
#include "vision/run_checkpoints.h"

namespace atelier::vision {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class CheckpointTest : public testing::Test {
 protected:
  CheckpointFolder open(const std::string& stem = "state", std::size_t kept = 2) {
    return *CheckpointFolder::open(path(), stem, kept);
  }
  Result<void> save(CheckpointFolder& folder, std::int64_t value) {
    StateWriter writer;
    writer("value", value);
    return folder.save(writer);
  }
  std::optional<std::int64_t> newest(CheckpointFolder& folder) {
    damaged_.clear();
    const std::optional<Checkpoint> found = folder.newest(damaged_);
    if (!found) return std::nullopt;
    std::int64_t value = 0;
    StateReader reader(*found);
    reader("value", value);
    EXPECT_TRUE(reader.finish());
    return value;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& entry : std::filesystem::directory_iterator(path())) {
      all.push_back(entry.path().filename().string());
    }
    std::ranges::sort(all);
    return all;
  }
  std::filesystem::path path() const { return temp_.path() / "checkpoints"; }

  TempFolder temp_ = *TempFolder::create();
  std::vector<std::string> damaged_;
};

TEST_F(CheckpointTest, EveryBitOfAStateComesBack) {
  FineTuneState state;
  state.epoch = 3;
  state.next_batch = 17;
  state.epoch_trained = true;
  state.best_accuracy = 0.1 + 0.2;
  state.epoch_loss = std::numeric_limits<double>::denorm_min();
  state.recent_loss = -0.0;
  state.result.epochs = {{.epoch = 1, .train_loss = 1.0 / 3}, {.epoch = 2, .train_loss = 0.25}};
  state.result.best.evaluation.classes = {{1, 2, 3, 4}, {5, 6, 7, 8}};
  state.result.best.evaluation.confusion = {1, 0, 0, 9};
  state.result.best.mistakes = {{1, 2, 3, 0.75F}};
  state.result.best.damaged = {{7, "a/\xff.png", Error{Code::kDataLoss, "cut \"short\""}}};
  state.result.damaged = {{"b.png", "grey"}, {"", ""}};
  std::vector<float> weights{std::bit_cast<float>(0x7fc12345U), 1e-42F, -0.0F};
  StateWriter writer;
  transfer(writer, state);
  writer("weights", std::span(weights));
  CheckpointFolder folder = open();
  ASSERT_TRUE(folder.save(writer));

  const std::optional<Checkpoint> found = folder.newest(damaged_);
  ASSERT_TRUE(found);
  FineTuneState back;
  std::vector<float> weights_back(3);
  StateReader reader(*found);
  transfer(reader, back);
  reader("weights", std::span(weights_back));
  ASSERT_TRUE(reader.finish()) << reader.finish().error().message;
  EXPECT_EQ(back.epoch, 3);
  EXPECT_EQ(back.next_batch, 17U);
  EXPECT_TRUE(back.epoch_trained);
  EXPECT_EQ(back.best_accuracy, 0.1 + 0.2);
  EXPECT_EQ(back.epoch_loss, std::numeric_limits<double>::denorm_min());
  EXPECT_TRUE(std::signbit(back.recent_loss));
  ASSERT_EQ(back.result.epochs.size(), 2U);
  EXPECT_EQ(back.result.epochs[0].train_loss, 1.0 / 3);
  EXPECT_EQ(back.result.best.evaluation.classes[1].predicted, 6U);
  EXPECT_EQ(back.result.best.evaluation.confusion, (std::vector<std::uint64_t>{1, 0, 0, 9}));
  EXPECT_EQ(back.result.best.mistakes[0].probability, 0.75F);
  EXPECT_EQ(back.result.best.damaged[0].path, "a/\xff.png");
  EXPECT_EQ(back.result.best.damaged[0].reason.message, "cut \"short\"");
  EXPECT_EQ(back.result.damaged, state.result.damaged);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(std::bit_cast<std::uint32_t>(weights_back[i]),
              std::bit_cast<std::uint32_t>(weights[i]));
  }
}

TEST_F(CheckpointTest, TheNewestIsTakenAndOnlyTheNewestAreKept) {
  CheckpointFolder folder = open();
  EXPECT_EQ(newest(folder), std::nullopt);
  for (std::int64_t value = 1; value <= 5; ++value) ASSERT_TRUE(save(folder, value));
  EXPECT_EQ(newest(folder), 5);
  EXPECT_THAT(folder.numbers(), ElementsAre(4, 5));
  CheckpointFolder again = open();
  ASSERT_TRUE(save(again, 6));
  EXPECT_THAT(again.numbers(), ElementsAre(5, 6));
}

TEST_F(CheckpointTest, ADamagedOneIsNamedAndTheOneBeforeItIsTaken) {
  CheckpointFolder folder = open();
  ASSERT_TRUE(save(folder, 1));
  ASSERT_TRUE(save(folder, 2));
  const std::filesystem::path last = path() / "state-000002.safetensors";
  const std::string whole = *read_file(last);
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 4);
    std::ofstream(last, std::ios::binary) << damaged;
    // A flipped bit in a blank behind the header changes nothing that is read.
    const auto value = newest(folder);
    EXPECT_TRUE(value == 1 || value == 2) << at;
    EXPECT_EQ(value == 1, damaged_.size() == 1) << at;
  }
  for (std::size_t size = 0; size < whole.size(); size += 7) {
    std::ofstream(last, std::ios::binary) << whole.substr(0, size);
    EXPECT_EQ(newest(folder), 1) << size;
    ASSERT_EQ(damaged_.size(), 1U);
    EXPECT_THAT(damaged_[0], HasSubstr("state-000002.safetensors"));
  }
  // It is not written over, and goes when it is the oldest.
  ASSERT_TRUE(save(folder, 3));
  EXPECT_EQ(newest(folder), 3);
  EXPECT_THAT(folder.numbers(), ElementsAre(2, 3));
}

TEST_F(CheckpointTest, LeavesWhatIsNotItsOwnAndRemovesItsOwnHalfDoneFiles) {
  ASSERT_TRUE(make_folders(path()));
  for (const char* name : {"state-000009.txt", "statement-000001.safetensors", "last.ckpt",
                           ".state-000001.safetensors.ab.tmp", ".other-1.tmp"}) {
    std::ofstream(path() / name) << "x";
  }
  CheckpointFolder folder = open();
  for (std::int64_t value = 1; value <= 3; ++value) ASSERT_TRUE(save(folder, value));
  EXPECT_THAT(names(), ElementsAre(".other-1.tmp", "last.ckpt", "state-000002.safetensors",
                                   "state-000003.safetensors", "state-000009.txt",
                                   "statement-000001.safetensors"));
}

TEST_F(CheckpointTest, WhatAStateLacksIsNamed) {
  CheckpointFolder folder = open();
  ASSERT_TRUE(save(folder, 1));
  const std::optional<Checkpoint> found = folder.newest(damaged_);
  bool flag = false;
  StateReader wrong_kind(*found);
  wrong_kind("value", flag);
  EXPECT_THAT(wrong_kind.finish().error().message, HasSubstr("'value' is neither true nor false"));
  std::vector<float> floats(2);
  StateReader missing(*found);
  missing("weights", std::span(floats));
  EXPECT_THAT(missing.finish().error().message, HasSubstr("'weights' is missing"));
}

TEST_F(CheckpointTest, ACountThatIsALieIsNamedAndTakesNoMemory) {
  StateWriter writer;
  writer("damaged.count", std::numeric_limits<std::uint64_t>::max());
  writer("damaged.0.index", std::int64_t{5});
  writer("negative", std::int64_t{-1});
  CheckpointFolder folder = open();
  ASSERT_TRUE(folder.save(writer));
  const std::optional<Checkpoint> found = folder.newest(damaged_);
  std::uint64_t count = 0;
  StateReader numbers(*found);
  numbers("damaged.count", count);
  EXPECT_TRUE(numbers.finish());
  EXPECT_EQ(count, std::numeric_limits<std::uint64_t>::max());
  numbers("negative", count);
  EXPECT_THAT(numbers.finish().error().message, HasSubstr("'negative' is no integer from 0"));

  std::vector<DamagedPicture> damaged;
  StateReader reader(*found);
  transfer(reader, "damaged", damaged);
  EXPECT_THAT(reader.finish().error().message, HasSubstr("'damaged.0.path' is missing"));
  EXPECT_EQ(damaged.size(), 1U);
}

TEST(CheckState, ANumberThatLeadsOutOfTheRunIsRefusedByName) {
  const StateBounds bounds{.classes = 2, .trained_pictures = 10, .validation_pictures = 4};
  FineTuneState begun;
  EXPECT_TRUE(check_state(begun, bounds));
  FineTuneState state;
  state.epoch = 2;
  state.result.best_epoch = 1;
  state.result.best.evaluation.classes.resize(2);
  state.result.best.evaluation.confusion.resize(4);
  state.result.best.mistakes = {{3, 1, 0, 0.5F}};
  EXPECT_TRUE(check_state(state, bounds));

  const auto refused = [&](const char* name, auto change) {
    FineTuneState changed = state;
    change(changed);
    const Result<void> outcome = check_state(changed, bounds);
    ASSERT_FALSE(outcome) << name;
    EXPECT_EQ(outcome.error().code, Code::kDataLoss);
    EXPECT_THAT(outcome.error().message, HasSubstr(name));
  };
  refused("'epoch'", [](FineTuneState& s) { s.epoch = 0; });
  refused("'steps'", [](FineTuneState& s) { s.steps = -9; });
  refused("'epoch_pictures'", [](FineTuneState& s) { s.epoch_pictures = 11; });
  refused("'best_epoch'", [](FineTuneState& s) { s.result.best_epoch = 3; });
  refused("'best.classes'", [](FineTuneState& s) { s.result.best.evaluation.classes.resize(3); });
  refused("'best.classes'", [](FineTuneState& s) { s.result.best.evaluation.multi_label = true; });
  refused("'best.classes'", [](FineTuneState& s) { s.result.best_epoch = 0; });
  refused("'best.confusion'",
          [](FineTuneState& s) { s.result.best.evaluation.confusion.pop_back(); });
  refused("'best.mistakes'", [](FineTuneState& s) { s.result.best.mistakes[0].index = 4; });
  refused("'best.mistakes'", [](FineTuneState& s) { s.result.best.mistakes[0].guess = 2; });
}

TEST_F(CheckpointTest, ASaveThatFailsLeavesTheOneBeforeItAndNothingHalfDone) {
  CheckpointFolder folder = open();
  ASSERT_TRUE(save(folder, 1));
  // A file may have 16 bytes only: writing stops in the middle, as on a full disk.
  StateWriter writer;
  writer("value", std::int64_t{2});
  struct rlimit before {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  struct rlimit small = before;
  small.rlim_cur = 16;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const Result<void> refused = folder.save(writer);
  std::signal(SIGXFSZ, handler);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ASSERT_FALSE(refused);
  EXPECT_THAT(names(), ElementsAre("state-000001.safetensors"));
  EXPECT_EQ(newest(folder), 1);
}

TEST(CheckpointPace, CostsAtMostAHundredthUnlessAnIntervalIsAsked) {
  CheckpointPace pace({}, 0);
  EXPECT_FALSE(pace.due(29, false));
  EXPECT_FALSE(pace.due(29, true));
  EXPECT_TRUE(pace.due(30, false));
  pace.saved(30, 31);
  EXPECT_FALSE(pace.due(130, true));
  EXPECT_TRUE(pace.due(131, true));
  pace.saved(131, 131.1);
  EXPECT_TRUE(pace.due(142, true));
  EXPECT_FALSE(pace.due(142, false));
  EXPECT_TRUE(pace.due(162, false));
  EXPECT_EQ(pace.count(), 2U);
  CheckpointPace asked(5.0, 0);
  asked.saved(0, 3);
  EXPECT_TRUE(asked.due(3, true));
  EXPECT_FALSE(asked.due(7, false));
  EXPECT_TRUE(asked.due(8, false));
}

TEST_F(CheckpointTest, ARunKnowsItsOwnCheckpointsAndSaysHowOthersDiffer) {
  Budget budget({}, 1);
  std::vector<std::string> lines;
  const auto run = [&](const char* epochs) {
    return RunCheckpoints::open(
        {.folder = path(),
         .identity = {{"data", "d"}, {"hyperparameters", {{"epochs", epochs}}}},
         .interval = {},
         .budget = &budget,
         .print = [&](const std::string& line) { lines.push_back(line); }});
  };
  Result<RunCheckpoints> first = run("3");
  ASSERT_TRUE(first);
  EXPECT_EQ(first->host(), nullptr);
  ASSERT_TRUE(first->begin({{"engine", "fused-fp32"}}));
  StateWriter state;
  state("x", std::int64_t{1});
  first->save_state(state);
  EXPECT_THAT(lines, IsEmpty());

  Result<RunCheckpoints> same = run("3");
  ASSERT_TRUE(same);
  ASSERT_NE(same->host(), nullptr);
  EXPECT_EQ(*find_string(*same->host(), "engine"), "fused-fp32");
  EXPECT_TRUE(same->newest_state());

  Result<RunCheckpoints> other = run("4");
  ASSERT_TRUE(other);
  EXPECT_FALSE(other->newest_state());
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_THAT(lines[0], HasSubstr("hyperparameters epochs (\"3\", here \"4\")"));
  EXPECT_TRUE(run("3")->newest_state());
}

}  // namespace
}  // namespace atelier::vision
