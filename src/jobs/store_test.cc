#include "jobs/store.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "base/file.h"
#include "base/hash.h"
#include "base/rng.h"
#include "sqlite/sqlite.h"

namespace atelier::jobs {
namespace {

using ::testing::ElementsAre;

Time at(std::int64_t seconds) {
  return from_epoch_milliseconds(1'796'022'000'000 + seconds * 1000);
}

class StoreTest : public ::testing::Test {
 protected:
  TempFolder folder_ = *TempFolder::create();
  std::filesystem::path file_ = folder_.path() / "jobs.db";
  std::unique_ptr<Store> store_ = *Store::open(file_);

  TrainingJob add(const std::string& name, std::int64_t created, const std::string& status = {}) {
    TrainingJob job = new_training_job(name, at(created));
    job.arn = "arn:" + name;
    job.request_json = R"({"TrainingJobName":")" + name + "\"}";
    job.log_stream = name + "/algo-1-7";
    if (!status.empty()) job.status = status;
    EXPECT_TRUE(store_->insert(job));
    return job;
  }
  std::vector<std::string> names(ListQuery query) {
    std::vector<std::string> found;
    do {
      const auto page = store_->list(query);
      EXPECT_TRUE(page) << page.error().message;
      if (!page) break;
      for (const TrainingJob& job : page->jobs) found.push_back(job.name);
      query.next_token = page->next_token;
    } while (!query.next_token.empty());
    return found;
  }
};

TEST_F(StoreTest, AJobComesBackAsItWasSaved) {
  TrainingJob job = add("a", 0);
  job.warnings = {"cut", "\"quoted\"\n"};
  job.final_metrics = {{"acc", 0.1 + 0.2, at(5)}, {"loss", std::nan(""), at(6)}};
  job.status = "Completed";
  job.secondary_status = "Completed";
  job.failure_reason = "none";
  job.started = at(1);
  job.ended = at(2);
  job.limits = "rlimits";
  job.admitted = true;
  job.stop_requested = true;
  job.journal_sequence = 7;
  job.version = 1;
  job.transitions.back().end = at(3);
  job.transitions.push_back({"Completed", "done", at(3), at(3)});
  ASSERT_TRUE(store_->save(job, 0));

  store_ = *Store::open(file_);
  const TrainingJob back = *store_->load("a");
  EXPECT_EQ(back.arn, job.arn);
  EXPECT_EQ(back.request_json, job.request_json);
  EXPECT_EQ(back.warnings, job.warnings);
  ASSERT_EQ(back.final_metrics.size(), 2u);
  EXPECT_EQ(back.final_metrics[0].value, 0.1 + 0.2);
  EXPECT_TRUE(std::isnan(back.final_metrics[1].value));
  EXPECT_EQ(back.final_metrics[1].time, at(6));
  EXPECT_EQ(back.started, job.started);
  EXPECT_EQ(back.ended, job.ended);
  EXPECT_TRUE(back.admitted && back.stop_requested);
  EXPECT_EQ(back.journal_sequence, 7u);
  EXPECT_EQ(back.version, 1u);
  EXPECT_EQ(back.log_stream, "a/algo-1-7");
  ASSERT_EQ(back.transitions.size(), 2u);
  EXPECT_EQ(back.transitions[0].end, at(3));
  EXPECT_EQ(back.transitions[1].message, "done");
  EXPECT_EQ(back.transitions[1].end, at(3));
}

TEST_F(StoreTest, OfTwoCreatesOfANameOneWins) {
  add("a", 0);
  TrainingJob second = new_training_job("a", at(1));
  second.arn = "other";
  EXPECT_EQ(store_->insert(second).error().code, Code::kAlreadyExists);
  EXPECT_EQ(store_->load("a")->arn, "arn:a");
}

TEST_F(StoreTest, ASaveOnAnOldVersionIsRefusedAndChangesNothing) {
  TrainingJob job = add("a", 0);
  TrainingJob other = job;
  job.version = 1;
  job.limits = "first";
  ASSERT_TRUE(store_->save(job, 0));
  other.version = 1;
  other.limits = "second";
  EXPECT_EQ(store_->save(other, 0).error().code, Code::kAborted);
  EXPECT_EQ(store_->load("a")->limits, "first");
}

TEST_F(StoreTest, AMissingJobIsNotFoundByName) {
  EXPECT_EQ(store_->load("nobody").error().code, Code::kNotFound);
  EXPECT_NE(store_->load("nobody").error().message.find("nobody"), std::string::npos);
  EXPECT_EQ(store_->save(new_training_job("nobody", at(0)), 0).error().code, Code::kNotFound);
}

TEST_F(StoreTest, ListsAreFilteredAndSorted) {
  add("b-one", 10, "Completed");
  add("a-two", 20, "Failed");
  add("c-one", 30);
  using enum ListQuery::SortBy;
  EXPECT_THAT(names({}), ElementsAre("c-one", "a-two", "b-one"));
  EXPECT_THAT(names({.sort_by = kName, .ascending = true}), ElementsAre("a-two", "b-one", "c-one"));
  EXPECT_THAT(names({.sort_by = kStatus, .ascending = true}),
              ElementsAre("b-one", "a-two", "c-one"));
  EXPECT_THAT(names({.name_contains = "one", .ascending = true}), ElementsAre("b-one", "c-one"));
  EXPECT_THAT(names({.status_equals = "Failed"}), ElementsAre("a-two"));
  EXPECT_THAT(names({.created_after = at(10), .created_before = at(30)}), ElementsAre("a-two"));
  EXPECT_THAT(names({.modified_after = at(20)}), ElementsAre("c-one"));
}

TEST_F(StoreTest, PagesHoldEveryJobOnceInEveryOrder) {
  std::set<std::string> all;
  for (int i = 0; i < 57; ++i) {
    const std::string name = fmt::format("job-{}", rng(1, 2, static_cast<std::uint64_t>(i)) % 1000);
    if (!all.insert(name).second) continue;
    add(name, i / 10, i % 3 == 0 ? "Failed" : "");  // many of the same moment and status
  }
  using enum ListQuery::SortBy;
  for (const auto sort_by : {kCreationTime, kName, kStatus}) {
    for (const bool ascending : {false, true}) {
      const auto found = names({.sort_by = sort_by, .ascending = ascending, .max_results = 7});
      EXPECT_EQ(found.size(), all.size());
      EXPECT_EQ((std::set<std::string>{found.begin(), found.end()}), all);
    }
  }
}

TEST_F(StoreTest, AJobThatComesWhileAListingGoesOnShiftsNoPage) {
  for (int i = 0; i < 4; ++i) add(fmt::format("job-{}", i), i);
  ListQuery query{.max_results = 2};
  const JobPage first = *store_->list(query);
  add("newcomer", 100);
  query.next_token = first.next_token;
  const JobPage second = *store_->list(query);
  ASSERT_EQ(second.jobs.size(), 2u);
  EXPECT_EQ(second.jobs[0].name, "job-1");
  EXPECT_EQ(second.jobs[1].name, "job-0");
  EXPECT_EQ(second.next_token, "");
}

TEST_F(StoreTest, ATokenOfAnotherListingIsRefused) {
  for (int i = 0; i < 4; ++i) add(fmt::format("job-{}", i), i);
  const JobPage page = *store_->list({.max_results = 2});
  for (const std::string& token :
       {page.next_token, std::string{"nonsense"}, to_base64("[]"), to_base64("{\"a\":1}")}) {
    const auto refused = store_->list({.name_contains = "job", .next_token = token});
    EXPECT_EQ(refused.error().code, Code::kInvalidArgument) << token;
  }
}

TEST_F(StoreTest, LogStreamsAreFoundByPrefix) {
  add("job", 0);
  add("job-2", 1);
  const auto found = store_->with_log_stream("job/");
  ASSERT_EQ(found->size(), 1u);
  EXPECT_EQ(found->front().name, "job");
  EXPECT_EQ(store_->with_log_stream("job")->size(), 2u);
}

TEST_F(StoreTest, ActiveJobsComeInTheOrderOfTheirCreation) {
  add("second-by-name", 5);
  add("first-by-name", 5);
  add("ended", 6, "Completed");
  const auto active = store_->load_active();
  ASSERT_EQ(active->size(), 2u);
  EXPECT_EQ((*active)[0].name, "second-by-name");
  EXPECT_EQ((*active)[0].transitions.size(), 1u);
}

TEST_F(StoreTest, AFullDiskIsSaidAndLosesNothing) {
  store_.reset();
  store_ = *Store::open(file_, {.max_pages = 40});
  std::vector<std::string> kept;
  Result<std::uint64_t> outcome = std::uint64_t{0};
  for (int i = 0; i < 1000 && outcome; ++i) {
    TrainingJob job = new_training_job(fmt::format("job-{}", i), at(i));
    job.request_json = std::string(3000, 'x');
    outcome = store_->insert(job);
    if (outcome) kept.push_back(job.name);
  }
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code, Code::kResourceExhausted);
  EXPECT_NE(outcome.error().message.find("free some space"), std::string::npos);
  EXPECT_GT(kept.size(), 5u);
  store_ = *Store::open(file_);
  for (const std::string& name : kept) EXPECT_TRUE(store_->load(name)) << name;
  EXPECT_TRUE(store_->insert(new_training_job("after", at(0)))) << "with space it goes on";
}

TEST_F(StoreTest, AStoreThatAnotherProcessHoldsIsUnavailableAndWorthATry) {
  store_.reset();
  store_ = *Store::open(file_, {.busy_timeout_ms = 1});
  auto other = *sqlite::Database::open(file_);
  auto held = *sqlite::Transaction::begin(other);
  const auto outcome = store_->insert(new_training_job("a", at(0)));
  EXPECT_EQ(outcome.error().code, Code::kUnavailable);
  EXPECT_EQ(outcome.error().retry, Retry::kYes);
  EXPECT_EQ(store_->load("a").error().code, Code::kNotFound) << "readers do not wait for a writer";
  ASSERT_TRUE(held.commit());
  EXPECT_TRUE(store_->insert(new_training_job("a", at(0))));
}

TEST_F(StoreTest, AFileThatIsNoStoreIsNotTouched) {
  const auto path = folder_.path() / "other";
  ASSERT_TRUE(write_file_durably(path, std::string(5000, 'x')));
  EXPECT_EQ(Store::open(path).error().code, Code::kDataLoss);
  EXPECT_EQ(*read_file(path), std::string(5000, 'x'));
}

TEST_F(StoreTest, AStoreOfALaterVersionIsRefused) {
  store_.reset();
  {
    auto database = *sqlite::Database::open(file_);
    ASSERT_TRUE(database.script("PRAGMA user_version=99"));
  }
  const auto outcome = Store::open(file_);
  EXPECT_EQ(outcome.error().code, Code::kFailedPrecondition);
  EXPECT_NE(outcome.error().message.find("99"), std::string::npos);
}

TEST_F(StoreTest, AFilterOfTheCallersReadsOnUntilThePageIsFull) {
  for (int i = 0; i < 50; ++i) add(fmt::format("job-{:02}", i), i);
  ListQuery query;
  query.sort_by = ListQuery::SortBy::kModifiedTime;
  query.max_results = 2;
  query.filter_id = "tens";
  query.filter = [](const TrainingJob& job) {
    EXPECT_FALSE(job.request_json.empty()) << "a filter sees whole jobs";
    return job.name.ends_with('0');
  };
  EXPECT_THAT(names(query), ElementsAre("job-40", "job-30", "job-20", "job-10", "job-00"));
  query.next_token = store_->list(query)->next_token;
  query.filter_id = "others";
  EXPECT_EQ(store_->list(query).error().code, Code::kInvalidArgument);
}

}  // namespace
}  // namespace atelier::jobs
