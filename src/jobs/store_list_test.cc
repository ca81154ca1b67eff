#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "base/file.h"
#include "base/hash.h"
#include "base/rng.h"
#include "jobs/internal/listing.h"
#include "jobs/store.h"
#include "sqlite/sqlite.h"

namespace atelier::jobs {
namespace {

using ::testing::ElementsAre;

Time at(std::int64_t seconds) {
  return from_epoch_milliseconds(1'796'022'000'000 + seconds * 1000);
}

class StoreListTest : public ::testing::Test {
 protected:
  TempFolder folder_ = *TempFolder::create();
  std::unique_ptr<Store> store_ = *Store::open(folder_.path() / "jobs.db");

  void add(const std::string& name, std::int64_t created, const std::string& status = {}) {
    TrainingJob job = new_training_job(name, at(created));
    job.request_json = "{}";
    if (!status.empty()) job.status = status;
    EXPECT_TRUE(store_->insert(job));
  }
  std::vector<std::string> names(ListQuery query) {
    std::vector<std::string> found;
    do {
      const auto page = store_->list(query);
      EXPECT_TRUE(page) << page.error().message;
      if (!page) break;
      EXPECT_LE(page->jobs.size(), query.max_results);
      for (const JobSummary& job : page->jobs) found.push_back(job.name);
      query.next_token = page->next_token;
    } while (!query.next_token.empty());
    return found;
  }
};

TEST_F(StoreListTest, ListsAreFilteredAndSorted) {
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

TEST_F(StoreListTest, PagesHoldEveryJobOnceInEveryOrder) {
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

// What a listing has to give, without pages, indices and SQL.
std::vector<std::string> listed(const std::vector<TrainingJob>& jobs, const ListQuery& query) {
  std::vector<TrainingJob> found;
  for (const TrainingJob& job : jobs) {
    if (job.name.find(query.name_contains) != std::string::npos &&
        (query.status_equals.empty() || job.status == query.status_equals) &&
        (!query.created_after || job.created > *query.created_after) &&
        (!query.created_before || job.created < *query.created_before) &&
        (!query.modified_after || job.modified > *query.modified_after) &&
        (!query.modified_before || job.modified < *query.modified_before)) {
      found.push_back(job);
    }
  }
  const auto place = [&](const TrainingJob& job) {
    using enum ListQuery::SortBy;
    return std::tuple{query.sort_by == kCreationTime   ? job.created
                      : query.sort_by == kModifiedTime ? job.modified
                                                       : Time{},
                      query.sort_by == kName     ? job.name
                      : query.sort_by == kStatus ? job.status
                                                 : "",
                      job.id};
  };
  std::ranges::sort(found, [&](const TrainingJob& a, const TrainingJob& b) {
    return query.ascending ? place(a) < place(b) : place(b) < place(a);
  });
  std::vector<std::string> list;
  for (const TrainingJob& job : found) list.push_back(job.name);
  return list;
}

TEST_F(StoreListTest, EveryListingIsThatOfANaiveModel) {
  std::vector<TrainingJob> jobs;
  const auto draw = [](std::uint64_t stream, std::uint64_t index, std::uint64_t sides) {
    return rng(11, stream, index) % sides;
  };
  const char* const statuses[] = {"InProgress", "Completed", "Failed", "Stopping", "Stopped"};
  for (std::uint64_t i = 0; i < 120; ++i) {
    TrainingJob job = new_training_job(fmt::format("{}-{}", draw(1, i, 2) == 0 ? "ab" : "ba", i),
                                       at(static_cast<std::int64_t>(draw(2, i, 12))));
    job.modified = job.created + std::chrono::seconds{draw(3, i, 9)};
    job.status = statuses[draw(4, i, 5)];
    job.id = *store_->insert(job);
    jobs.push_back(job);
  }
  const auto maybe_time = [&](std::uint64_t stream, std::uint64_t i) {
    return draw(stream, i, 3) > 0
               ? std::nullopt
               : std::optional{at(static_cast<std::int64_t>(draw(stream + 50, i, 16)))};
  };
  for (std::uint64_t i = 0; i < 400; ++i) {
    ListQuery query;
    query.sort_by = static_cast<ListQuery::SortBy>(draw(20, i, 4));
    query.ascending = draw(21, i, 2) == 0;
    query.max_results = 1 + draw(22, i, 40);
    if (draw(23, i, 3) == 0) query.name_contains = draw(24, i, 2) == 0 ? "ab-1" : "a";
    if (draw(25, i, 3) == 0) query.status_equals = statuses[draw(26, i, 5)];
    query.created_after = maybe_time(27, i);
    query.created_before = maybe_time(28, i);
    query.modified_after = maybe_time(29, i);
    query.modified_before = maybe_time(30, i);
    ASSERT_EQ(names(query), listed(jobs, query)) << "query " << i;
  }
}

// Sorting makes each page cost as much as the whole listing.
TEST_F(StoreListTest, NoListingSortsWhateverItsOrderItsStatusAndItsPage) {
  auto database = *sqlite::Database::open(folder_.path() / "jobs.db");
  for (const int sort_by : {0, 1, 2, 3}) {
    for (const bool ascending : {false, true}) {
      for (const char* const status : {"", "Failed"}) {
        for (const auto part :
             {internal::Part::kAll, internal::Part::kSameKey, internal::Part::kPastKey}) {
          const ListQuery query{.status_equals = status,
                                .sort_by = static_cast<ListQuery::SortBy>(sort_by),
                                .ascending = ascending};
          const internal::Position after{"1", 1};
          const internal::Sql sql = internal::listing_sql("id, arn", query, part, after, 10);
          auto rows = *database.query("EXPLAIN QUERY PLAN " + sql.text, sql.values);
          int steps = 0;
          for (; *rows.step(); ++steps) {
            EXPECT_EQ(rows.text(3).find("TEMP B-TREE"), std::string::npos) << sql.text;
          }
          EXPECT_GT(steps, 0);
        }
      }
    }
  }
}

TEST_F(StoreListTest, ASummarySaysWhatTheWholeJobSays) {
  TrainingJob job = new_training_job("a", at(3));
  job.arn = "arn:a";
  job.status = "Failed";
  job.secondary_status = "Interrupted";
  job.modified = at(5);
  job.ended = at(4);
  ASSERT_TRUE(store_->insert(job));
  for (const JobSummary& one :
       {store_->list({})->jobs.at(0), summary_of(store_->find({}, every_job)->jobs.at(0))}) {
    EXPECT_EQ(one.name, "a");
    EXPECT_EQ(one.arn, "arn:a");
    EXPECT_EQ(one.status, "Failed");
    EXPECT_EQ(one.secondary_status, "Interrupted");
    EXPECT_EQ(one.created, at(3));
    EXPECT_EQ(one.modified, at(5));
    EXPECT_EQ(one.ended, at(4));
  }
}

TEST_F(StoreListTest, AJobThatComesWhileAListingGoesOnShiftsNoPage) {
  for (int i = 0; i < 4; ++i) add(fmt::format("job-{}", i), i);
  ListQuery query{.max_results = 2};
  const Page<JobSummary> first = *store_->list(query);
  add("newcomer", 100);
  query.next_token = first.next_token;
  const Page<JobSummary> second = *store_->list(query);
  ASSERT_EQ(second.jobs.size(), 2u);
  EXPECT_EQ(second.jobs[0].name, "job-1");
  EXPECT_EQ(second.jobs[1].name, "job-0");
  EXPECT_EQ(second.next_token, "");
}

TEST_F(StoreListTest, ATokenOfAnotherListingIsRefused) {
  for (int i = 0; i < 4; ++i) add(fmt::format("job-{}", i), i);
  const Page<JobSummary> page = *store_->list({.max_results = 2});
  for (const std::string& token :
       {page.next_token, std::string{"nonsense"}, to_base64("[]"), to_base64("{\"a\":1}")}) {
    const auto refused = store_->list({.name_contains = "job", .next_token = token});
    EXPECT_EQ(refused.error().code, Code::kInvalidArgument) << token;
  }
}

TEST_F(StoreListTest, AFilterOfTheCallersReadsOnUntilThePageIsFull) {
  for (int i = 0; i < 50; ++i) add(fmt::format("job-{:02}", i), i);
  ListQuery query;
  query.sort_by = ListQuery::SortBy::kModifiedTime;
  query.max_results = 2;
  query.filter_id = "tens";
  const auto tens = [](const TrainingJob& job) {
    EXPECT_FALSE(job.request_json.empty() || job.transitions.empty()) << "a filter sees whole jobs";
    return job.name.ends_with('0');
  };
  std::vector<std::string> found;
  do {
    const Page<TrainingJob> page = *store_->find(query, tens);
    for (const TrainingJob& job : page.jobs) found.push_back(job.name);
    query.next_token = page.next_token;
  } while (!query.next_token.empty());
  EXPECT_THAT(found, ElementsAre("job-40", "job-30", "job-20", "job-10", "job-00"));
  query.next_token = store_->find(query, tens)->next_token;
  query.filter_id = "others";
  EXPECT_EQ(store_->find(query, tens).error().code, Code::kInvalidArgument);
}

}  // namespace
}  // namespace atelier::jobs
