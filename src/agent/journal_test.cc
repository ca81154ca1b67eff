#include "agent/journal.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <fstream>

namespace atelier::agent {
namespace {

class JournalTest : public testing::Test {
 protected:
  TempFolder folder_ = TempFolder::create().value();
  Journal open() { return Journal::open(folder_.path(), system_clock()).value(); }
};

TEST_F(JournalTest, AFolderWithoutAJournalHasNoEvents) {
  EXPECT_TRUE(read_journal(folder_.path())->empty());
}

TEST_F(JournalTest, EventsComeBackInOrderWithTheirDetail) {
  Journal journal = open();
  journal.append("started", "Starting").value();
  journal.append("warning", "line\nbreak \"quoted\"", R"({"limit":4})").value();
  const auto events = read_journal(folder_.path()).value();
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[1].sequence, 2U);
  EXPECT_EQ(events[1].message, "line\nbreak \"quoted\"");
  EXPECT_EQ(events[1].detail_json, R"({"limit":4})");
  EXPECT_EQ(read_journal(folder_.path(), 1)->front().kind, "warning");
  EXPECT_TRUE(read_journal(folder_.path(), 9)->empty());
}

TEST_F(JournalTest, ATornLastLineIsDroppedAndTheNextEventTakesItsNumber) {
  open().append("started", "").value();
  std::ofstream{folder_.path() / "journal.jsonl", std::ios::app} << R"({"sequence":2,"time":1)";
  EXPECT_EQ(read_journal(folder_.path())->size(), 1U);
  Journal journal = open();
  journal.append("training", "").value();
  const auto events = read_journal(folder_.path()).value();
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[1].sequence, 2U);
  EXPECT_EQ(journal.find("training")->sequence, 2U);
  EXPECT_EQ(journal.find("completed"), nullptr);
}

TEST_F(JournalTest, WhatAFullDiskCutShortIsTakenBackSoThatTheNextEventIsWhole) {
  Journal journal = open();
  journal.append("started", "").value();
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto ignored = signal(SIGXFSZ, SIG_IGN);
  const rlimit tight{std::filesystem::file_size(folder_.path() / "journal.jsonl") + 20,
                     before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &tight);
  const Result<void> cut = journal.append("training", "");
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, ignored);
  EXPECT_FALSE(cut);
  journal.append("training", "").value();
  const auto events = read_journal(folder_.path()).value();
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[1].kind, "training");
}

TEST_F(JournalTest, BytesThatAreNoTextDoNotBreakTheJournal) {
  open().append("failed", "caf\xc3\xa9 \xff\xe2\x82 \xed\xa0\x80 end").value();
  const auto events = read_journal(folder_.path()).value();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].message.substr(0, 9), "caf\xc3\xa9 \xEF\xBF\xBD");
  EXPECT_EQ(events[0].message.substr(events[0].message.size() - 3), "end");
}

TEST_F(JournalTest, ReadingStopsAtALineOutOfSequence) {
  const std::string second = to_json_line({2, Time{}, "started", "", ""});
  const std::string first = to_json_line({1, Time{}, "training", "", ""});
  const ParsedJournal parsed = parse_journal(second + first);
  EXPECT_EQ(parsed.events.size(), 1U);
  EXPECT_EQ(parsed.bytes, second.size());
}

TEST_F(JournalTest, AnAttemptKnowsItsOwnEventsAndGoesOnAboveWhatIsTakenIn) {
  Journal journal = open();
  journal.append("training", "").value();
  EXPECT_EQ(journal.end(), nullptr);
  journal.append("interrupted", "").value();
  ASSERT_NE(journal.end(), nullptr);
  journal.enter(2, 7);
  EXPECT_EQ(journal.end(), nullptr) << "that was the first attempt's";
  EXPECT_EQ(journal.find("training"), nullptr);
  journal.append("started", "").value();
  const auto events = read_journal(folder_.path()).value();
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(events[2].sequence, 8U);
  EXPECT_EQ(events[2].attempt, 2);
  const auto rest = read_journal(folder_.path(), 7).value();
  ASSERT_EQ(rest.size(), 2U) << "an end is told again: whether it counts is for the record to say";
  EXPECT_EQ(rest[0].kind, "interrupted");
}

}  // namespace
}  // namespace atelier::agent
