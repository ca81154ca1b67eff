#include "jobs/store.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <map>
#include <thread>

#include "base/file.h"
#include "base/rng.h"
#include "jobs/internal/store_schema.h"
#include "sqlite/sqlite.h"

namespace atelier::jobs {
namespace {

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
    job.created_by = "arn:ann";
    if (!status.empty()) job.status = status;
    EXPECT_TRUE(store_->insert(job));
    return job;
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
  EXPECT_EQ(back.created_by, "arn:ann");
  EXPECT_EQ(back.log_stream, "a/algo-1-7");
  ASSERT_EQ(back.transitions.size(), 2u);
  EXPECT_EQ(back.transitions[0].end, at(3));
  EXPECT_EQ(back.transitions[1].message, "done");
  EXPECT_EQ(back.transitions[1].end, at(3));
}

// All of a record, as a text.
std::string contents_of(const TrainingJob& job) {
  std::string text = fmt::format("{} {} {} {} {}", job.name, job.status, job.limits,
                                 job.request_json, to_epoch_milliseconds(job.modified));
  for (const Transition& transition : job.transitions) text += transition.message;
  return text;
}

TEST_F(StoreTest, ARecordsIdAndVersionTellItsContentsForEver) {
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::string> known;
  const auto draw = [](std::uint64_t stream, std::uint64_t index, std::uint64_t sides) {
    return rng(5, stream, index) % sides;
  };
  std::size_t removed = 0;
  for (std::uint64_t i = 0; i < 600; ++i) {
    const std::string name = fmt::format("job-{}", draw(1, i, 3));
    const auto loaded = store_->load(name);
    if (!loaded) {
      add(name, 0);  // at the same moment as any before
    } else if (draw(2, i, 6) == 0) {
      ASSERT_TRUE(store_->remove(name, loaded->version));
      ++removed;
      continue;
    } else if (draw(2, i, 6) < 3) {
      ASSERT_TRUE(store_->replace_request(name, loaded->version, fmt::format("{{\"n\":{}}}", i),
                                          std::nullopt, loaded->warm));
    } else {
      TrainingJob job = *loaded;
      job.limits = std::to_string(i);
      job.transitions.push_back({"Training", std::to_string(i), at(1), std::nullopt});
      ++job.version;
      ASSERT_TRUE(store_->save(job, loaded->version));
    }
    const TrainingJob job = *store_->load(name);
    EXPECT_EQ(*store_->version(name), (RecordVersion{job.id, job.version}));
    const auto [at, is_new] = known.emplace(std::pair{job.id, job.version}, contents_of(job));
    EXPECT_TRUE(is_new) << "each of these steps changed the record";
  }
  EXPECT_GT(removed, 20u);
  EXPECT_EQ(store_->version("nobody").error().code, Code::kNotFound);
}

TEST_F(StoreTest, AVersionThatWasAskedForBeforeIsNeverAnOldOne) {
  TrainingJob job = add("b", 0);
  job.version = store_->version("b")->version + 1;
  ASSERT_TRUE(store_->save(job, job.version - 1));
  EXPECT_EQ(store_->version("b")->version, job.version);
  ASSERT_TRUE(store_->replace_request("b", job.version, "{}", std::nullopt, {}));
  EXPECT_EQ(store_->version("b")->version, job.version + 1);
  const std::uint64_t id = store_->version("b")->id;
  ASSERT_TRUE(store_->remove("b", job.version + 1));
  EXPECT_EQ(store_->version("b").error().code, Code::kNotFound);
  add("b", 9);
  EXPECT_NE(store_->version("b")->id, id);
}

TEST_F(StoreTest, WhoHeardOfAChangeReadsItsVersion) {
  TrainingJob job = add("a", 0);
  std::atomic<std::uint64_t> saved = 0;
  std::atomic<bool> ended = false;
  std::vector<std::thread> readers;
  std::atomic<int> old = 0;
  std::atomic<std::uint64_t> reads = 0;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] {
      while (!ended) {
        const std::uint64_t heard = saved;
        if (store_->version("a")->version < heard) ++old;
        ++reads;
      }
    });
  }
  for (std::uint64_t version = 1; version <= 300 || reads < 1000; ++version) {
    job.version = version;
    ASSERT_TRUE(store_->save(job, version - 1));
    saved = version;
  }
  ended = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(old, 0);
}

TEST_F(StoreTest, AJobAndTheOneWhosePoolItTakesAreSavedTogetherOrNotAtAll) {
  add("a", 0);
  TrainingJob left = *store_->load("a");
  const std::uint64_t version = left.version;
  left.warm = {"Reused",    "a.f00d",
               "AKIAOWNER", std::chrono::seconds{60},
               at(1),       std::chrono::milliseconds{5},
               "before",    "b"};
  ++left.version;
  TrainingJob next = new_training_job("b", at(2));
  next.warm = {"InUse", "a.f00d", "AKIAOWNER", std::chrono::seconds{0}, std::nullopt, {}, "a", ""};
  EXPECT_EQ(store_->insert(next, Store::Change{left, version + 1}).error().code, Code::kAborted);
  EXPECT_EQ(store_->load("b").error().code, Code::kNotFound);
  ASSERT_TRUE(store_->insert(next, Store::Change{left, version}));
  EXPECT_EQ(store_->load("a")->warm, left.warm);
  EXPECT_EQ(store_->load("b")->warm, next.warm);

  next = *store_->load("b");
  next.warm.status = "Available";
  next.status = "Completed";
  EXPECT_EQ(store_->save(next, next.version, Store::Change{left, version}).error().code,
            Code::kAborted);
  EXPECT_EQ(store_->load("b")->warm.status, "InUse");
  EXPECT_TRUE(store_->load_warm()->empty());
  ASSERT_TRUE(store_->save(next, next.version));
  ASSERT_EQ(store_->load_warm()->size(), 1u);
  const auto listed = *store_->list({.warm_status_equals = "Reused"});
  ASSERT_EQ(listed.jobs.size(), 1u);
  EXPECT_EQ(listed.jobs[0].warm.reused_by, "b");
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

TEST_F(StoreTest, LogStreamsAreFoundByPrefix) {
  add("job", 0);
  add("job-2", 1);
  const auto found = [&](const std::string& prefix) {
    std::vector<std::string> names;
    EXPECT_TRUE(store_->scan_log_streams({.first = prefix, .last = prefix + "\x7f"},
                                         [&](const StreamRow& row) -> Result<bool> {
                                           names.push_back(row.job);
                                           return true;
                                         }));
    return names;
  };
  EXPECT_EQ(found("job/"), std::vector<std::string>{"job"});
  EXPECT_EQ(found("job").size(), 2u);
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

// A store as versions of this program before `version` left it, with these statements run in it.
void make_old_store(const std::filesystem::path& file, std::size_t version,
                    const std::string& statements) {
  const std::vector<std::string>& steps = internal::store_schema();
  ASSERT_LT(version, steps.size());
  auto database = *sqlite::Database::open(file);
  ASSERT_TRUE(sqlite::migrate(
      database, {steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(version)}));
  const auto done = database.script(statements);
  ASSERT_TRUE(done) << done.error().message;
}

constexpr const char* kOldJobs = R"(
  INSERT INTO jobs(id, name, arn, status, secondary_status, failure_reason, created, modified,
    started, ended, model_uri, limits, warnings, final_metrics, invocation_id, log_stream, vcpus,
    memory_gib, gpus, admitted, stop_requested, journal_sequence, version)
  SELECT value, 'job-' || value, 'arn:' || value, 'Completed', 'Completed', '', 1000 * value,
    2000 * value, 3000, 5000, 's3://m', 'rlimits', '["cut"]', '', 'id', 'job/algo-1-7', 2, 4, 0, 1,
    0, 7, 3 FROM json_each('[1, 2, 3, 4]');
  INSERT INTO transitions SELECT id, 0, 'Starting', 'starts', 1000 FROM jobs;
  INSERT INTO transitions SELECT id, 1, 'Completed', 'done', 5000 FROM jobs;
  INSERT INTO requests(job, body) VALUES
    (1, '{"TrainingJobName":"job-1","lr":1E-1,"text":"\"\u00e9é\\/","AtelierCreatedBy":"arn:ann"}'),
    (2, '{"TrainingJobName":"job-2"}'),
    (3, 'no JSON, "AtelierCreatedBy"'),
    (4, '{"AtelierCreatedBy":"arn:bob","Tags":[{"Key":"AtelierCreatedBy","Value":"x"}]}');
)";

TEST(StoreMigration, AStoreOfEachOldSchemaOpensAndKeepsItsJobs) {
  for (std::size_t version = 1; version < internal::store_schema().size(); ++version) {
    SCOPED_TRACE(version);
    const TempFolder folder = *TempFolder::create();
    make_old_store(folder.path() / "jobs.db", version, kOldJobs);
    for (int opened = 0; opened < 2; ++opened) {
      const auto store = Store::open(folder.path() / "jobs.db");
      ASSERT_TRUE(store) << store.error().message;
      const TrainingJob job = *(*store)->load("job-1");
      EXPECT_EQ(job.status, "Completed");
      EXPECT_EQ(job.created, from_epoch_milliseconds(1000));
      EXPECT_EQ(job.warnings, std::vector<std::string>{"cut"});
      EXPECT_EQ(job.attempts.trained, std::chrono::seconds{2}) << "of its one attempt";
      EXPECT_EQ(job.version, 3u);
      ASSERT_EQ(job.transitions.size(), 2u);
      EXPECT_EQ(job.transitions[1].message, "done");
      EXPECT_EQ((*store)->list({})->jobs.size(), 4u);
    }
  }
}

TEST(StoreMigration, WhoMadeAJobMovesOutOfItsRequestWhichStaysByteForByte) {
  const TempFolder folder = *TempFolder::create();
  make_old_store(folder.path() / "jobs.db", 3,
                 std::string{kOldJobs} +
                     "UPDATE requests SET created_as = '{\"AtelierCreatedBy\":\"arn:bob\"}' "
                     "WHERE job = 4");
  const auto store = *Store::open(folder.path() / "jobs.db");
  EXPECT_EQ(store->load("job-1")->created_by, "arn:ann");
  EXPECT_EQ(store->load("job-1")->request_json,
            R"({"TrainingJobName":"job-1","lr":1E-1,"text":"\"\u00e9é\\/"})");
  EXPECT_EQ(*store->created_as("job-1"), store->load("job-1")->request_json)
      << "a create that is retried over the upgrade is still the same";
  EXPECT_EQ(store->load("job-2")->created_by, "");
  EXPECT_EQ(store->load("job-2")->request_json, R"({"TrainingJobName":"job-2"})");
  EXPECT_EQ(store->load("job-3")->created_by, "");
  EXPECT_EQ(store->load("job-3")->request_json, R"(no JSON, "AtelierCreatedBy")");
  EXPECT_EQ(store->load("job-4")->created_by, "arn:bob");
  EXPECT_EQ(store->load("job-4")->request_json,
            R"({"Tags":[{"Key":"AtelierCreatedBy","Value":"x"}]})");
  EXPECT_EQ(*store->created_as("job-4"), "{}");
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

}  // namespace
}  // namespace atelier::jobs
