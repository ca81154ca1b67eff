#include "jobs/log_streams.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "agent/log_file.h"
#include "agent/spec.h"
#include "base/file.h"
#include "base/rng.h"
#include "jobs/logs.h"

namespace atelier::jobs {
namespace {

namespace fs = std::filesystem;

Time at(std::int64_t seconds) {
  return from_epoch_milliseconds(1'796'022'000'000 + seconds * 1000);
}

class LogStreamsTest : public ::testing::Test {
 protected:
  TempFolder folder_ = *TempFolder::create();
  std::unique_ptr<Store> store_ = *Store::open(folder_.path() / "jobs.db");
  std::vector<LogStreamPlace> model_;  // all streams, by time
  std::set<std::string> looked_at_;

  // A job whose record spans the times, with instances whose last lines are of those times.
  void add(const std::string& name, std::int64_t created, std::int64_t modified, bool ended,
           const std::vector<std::int64_t>& last_lines) {
    TrainingJob job = new_training_job(name, at(created));
    job.request_json = "{}";
    job.modified = at(modified);
    job.log_stream = fmt::format("{}/algo-1-{}", name, 1'796'022'000 + created);
    job.admitted = true;
    if (ended) job.status = "Completed";
    ASSERT_TRUE(store_->insert(job));
    for (std::size_t i = 0; i < last_lines.size(); ++i) {
      const std::string host = fmt::format("algo-{}", i + 1);
      const fs::path log = log_path(folder_.path() / name, host);
      ASSERT_TRUE(make_folders(log.parent_path()));
      agent::LogWriter writer = *agent::LogWriter::open(log);
      writer.append(at(std::min(created, last_lines[i])), "first");
      writer.append(at(last_lines[i]), "last");
      ASSERT_TRUE(writer.flush());
      Time place = at(last_lines[i]);
      if (ended) place = std::clamp(place, at(created), at(modified) + std::chrono::minutes{1});
      model_.push_back({place, log_stream_of(job, host)});
    }
  }

  LogStreamPage page(const LogStreamQuery& query) {
    looked_at_.clear();
    const auto found = find_log_streams(
        *store_,
        [this](const std::string& job) {
          looked_at_.insert(job);
          return folder_.path() / job;
        },
        query);
    EXPECT_TRUE(found) << found.error().message;
    return found ? *found : LogStreamPage{};
  }
  std::vector<std::string> all_pages(LogStreamQuery query) {
    std::vector<std::string> names;
    while (true) {
      const LogStreamPage found = page(query);
      EXPECT_LE(found.streams.size(), query.limit);
      for (const LogStream& stream : found.streams) names.push_back(stream.name);
      if (!found.next) return names;
      query.after = found.next;
    }
  }
  std::vector<std::string> expected(const LogStreamQuery& query) {
    std::vector<LogStreamPlace> places;
    for (const LogStreamPlace& place : model_) {
      if (place.name.starts_with(query.prefix)) {
        places.push_back({query.by_time ? place.last_event : Time{}, place.name});
      }
    }
    std::ranges::sort(places);
    if (query.descending) std::ranges::reverse(places);
    std::vector<std::string> names;
    for (const LogStreamPlace& place : places) names.push_back(place.name);
    return names;
  }
};

TEST_F(LogStreamsTest, EveryListingIsThatOfANaiveModel) {
  for (std::uint64_t i = 0; i < 150; ++i) {
    auto random = [&, index = std::uint64_t{0}](std::int64_t below) mutable {
      return static_cast<std::int64_t>(rng(5, i, index++) % static_cast<std::uint64_t>(below));
    };
    const std::int64_t created = random(2000);
    const std::int64_t modified = created + random(random(3) == 0 ? 2000 : 20);
    std::vector<std::int64_t> last_lines(static_cast<std::size_t>(random(13) % 4 * random(4)));
    // Now and then by a clock that jumped.
    for (std::int64_t& time : last_lines) time = created - 30 + random(modified - created + 200);
    add(fmt::format("{}-{}", static_cast<char>('a' + random(3)), i), created, modified,
        random(10) > 0, last_lines);
  }
  for (const bool by_time : {false, true}) {
    for (const bool descending : {false, true}) {
      for (const char* prefix : {"", "a", "b-1", "a-3/", "c-149/algo-1"}) {
        for (const std::size_t limit : {1, 7, 1000}) {
          const LogStreamQuery query{
              .prefix = prefix, .by_time = by_time, .descending = descending, .limit = limit};
          EXPECT_EQ(all_pages(query), expected(query))
              << by_time << descending << " '" << prefix << "' " << limit;
        }
      }
    }
  }
}

TEST_F(LogStreamsTest, NoPageLooksAtMoreJobsThanItHoldsAndThoseBesideIt) {
  for (int i = 0; i < 500; ++i) {
    add(fmt::format("job-{:03}", i), i * 10, i * 10 + 9, true, {i * 10 + 5});
  }
  constexpr std::size_t kPage = 10;
  // An ended job may have written for a minute after its end: those of six lie beside one.
  constexpr std::size_t kBeside = 10;
  for (const bool by_time : {false, true}) {
    for (const bool descending : {false, true}) {
      LogStreamQuery query{.by_time = by_time, .descending = descending, .limit = kPage};
      for (int pages = 1;; ++pages) {
        const LogStreamPage found = page(query);
        EXPECT_LE(looked_at_.size(), kPage + 1 + 2 * kBeside) << by_time << descending << pages;
        query.after = found.next;
        if (!found.next) {
          EXPECT_EQ(pages, 50);
          break;
        }
      }
    }
  }
}

}  // namespace
}  // namespace atelier::jobs
