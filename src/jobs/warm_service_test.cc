// Warm pools from job to job, with real agents' processes (jobs/fake_agent.cc).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "agent/journal.h"
#include "base/file.h"
#include "base/id.h"
#include "base/json.h"
#include "base/rng.h"
#include "jobs/request.h"
#include "jobs/service_test.h"
#include "jobs/store.h"

namespace atelier::jobs {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::TestJob;
using testing::wait_for_end;
using testing::wait_until;

class WarmServiceTest : public testing::ServiceTest {
 protected:
  void create(const TestJob& job) {
    const auto arn = service_->create({testing::request_for(job), "", "arn:aws:iam::0:user/ada"});
    ASSERT_TRUE(arn) << arn.error().message;
  }
  TrainingJob job(const std::string& name) { return *service_->describe(name); }
  TrainingJob run(const TestJob& wanted) {
    create(wanted);
    return wait_for_end(*service_, wanted.name);
  }
  TrainingJob wait_for_pool(const std::string& name, std::string_view status) {
    return wait_until(*service_, name,
                      [&](const TrainingJob& job) { return job.warm.status == status; });
  }
  fs::path pool(const TrainingJob& job) { return folder_.path() / "warm" / job.warm.name; }
  // Whose programs have used it, in their order.
  std::string users(const TrainingJob& job) { return read_file(pool(job) / "jobs").value_or("-"); }
  // Removals come after the commit, on the engine's thread; the test's time-out is the limit.
  void wait_until_gone(const fs::path& path) {
    while (fs::exists(path))
      service_->wait_for_change(~std::uint64_t{0}, std::chrono::milliseconds{5});
  }
  void keep_alive(const std::string& name, int seconds) {
    const auto changed =
        service_->change_request(name, [&](const TrainingJob&, std::string& text) -> Result<bool> {
          json::value request = *parse_json(text);
          request.at("ResourceConfig").as_object()["KeepAlivePeriodInSeconds"] = seconds;
          text = json::serialize(request);
          return true;
        });
    ASSERT_TRUE(changed) << changed.error().message;
  }
};

TEST_F(WarmServiceTest, AMatchingJobTakesThePoolOverAtOnceAndLeavesItAgain) {
  open_and_run();
  const TrainingJob first = run({.name = "a", .keep_alive = 600});
  EXPECT_EQ(first.warm.status, "Available");
  EXPECT_EQ(first.warm.available, first.ended);
  const TrainingJob second = run({.name = "b", .keep_alive = 600});
  EXPECT_EQ(second.warm.of, "a");
  EXPECT_EQ(second.warm.name, first.warm.name);
  EXPECT_EQ(second.warm.status, "Available");
  EXPECT_EQ(users(second), "a\nb\n");
  const TrainingJob left = job("a");
  EXPECT_EQ(left.warm.status, "Reused");
  EXPECT_EQ(left.warm.reused_by, "b");
  EXPECT_EQ(left.status, "Completed");
  EXPECT_GE(left.warm.retained, second.created - *first.ended);
  EXPECT_LE(left.warm.retained, second.transitions[1].start - *first.ended);
}

TEST_F(WarmServiceTest, AJobOfAnotherRoleOrOfNoPeriodHasNoPartInItButTheLastUserMay) {
  open_and_run();
  const TrainingJob first = run({.name = "a", .keep_alive = 600});
  const TrainingJob other = run({.name = "other", .keep_alive = 600, .role = "another"});
  EXPECT_EQ(other.warm.of, "");
  EXPECT_NE(other.warm.name, first.warm.name);
  EXPECT_EQ(users(other), "other\n");
  EXPECT_EQ(run({.name = "spot", .spot = true}).warm.status, "") << "a spot job takes none";
  EXPECT_EQ(job("a").warm.status, "Available");
  const TrainingJob last = run({.name = "last"});
  EXPECT_EQ(last.warm.of, "a");
  EXPECT_EQ(last.warm.status, "Terminated");
  wait_until_gone(pool(first));
  EXPECT_TRUE(fs::exists(pool(other)));
}

TEST_F(WarmServiceTest, AnEndedPeriodGivesTheRoomAndTheFolderBack) {
  options_.host = {1, 64, 0};
  open_and_run();
  const TrainingJob first = run({.name = "a", .keep_alive = 1});
  const TrainingJob over = wait_for_pool("a", kWarmTerminated);
  EXPECT_EQ(over.warm.status, "Terminated");
  EXPECT_EQ(over.warm.retained, std::chrono::seconds{1});
  wait_until_gone(pool(first));
  EXPECT_EQ(run({.name = "b", .keep_alive = 600}).warm.of, "");
}

TEST_F(WarmServiceTest, AJobThatWaitsTakesTheRoomOfAPoolThatNobodyUses) {
  options_.host = {1, 64, 0};
  open_and_run();
  const TrainingJob first = run({.name = "a", .keep_alive = 600});
  const TrainingJob other = run({.name = "other", .spot = true, .role = "another"});
  EXPECT_EQ(other.status, "Completed");
  EXPECT_THAT(other.transitions[1].message, HasSubstr("used by the warm pool of a"));
  EXPECT_EQ(job("a").warm.status, "Terminated");
  wait_until_gone(pool(first));
}

TEST_F(WarmServiceTest, TheFirstOfTheLineGetsThePoolThatFitsItWithoutItsEnd) {
  options_.host = {1, 64, 0};
  open_and_run();
  create({.name = "a", .work_ms = 60000, .keep_alive = 600});
  wait_until(*service_, "a", [](const TrainingJob& job) { return job.attempts.began.has_value(); });
  create({.name = "b", .keep_alive = 600});
  create({.name = "c", .keep_alive = 600});
  EXPECT_EQ(job("b").secondary_status, "Pending");
  ASSERT_TRUE(service_->stop("a"));
  EXPECT_EQ(wait_for_end(*service_, "a").status, "Stopped");
  wait_for_end(*service_, "b");
  const TrainingJob last = wait_for_end(*service_, "c");
  EXPECT_EQ(job("a").warm.reused_by, "b");
  EXPECT_EQ(job("b").warm.reused_by, "c");
  EXPECT_EQ(last.warm.of, "b");
  EXPECT_EQ(last.warm.name, job("a").warm.name);
}

TEST_F(WarmServiceTest, InstancesThatWereLostOrNeverThereAreNotKept) {
  options_.host = {1, 64, 0};
  open_and_run();
  create({.name = "lost", .work_ms = 200, .outcome = "die", .keep_alive = 600});
  create({.name = "waits", .keep_alive = 600});
  ASSERT_TRUE(service_->stop("waits"));
  const TrainingJob waits = job("waits");
  EXPECT_EQ(waits.warm.status, "Terminated");
  EXPECT_EQ(waits.warm.retained.count(), 0);
  const TrainingJob lost = wait_for_end(*service_, "lost");
  EXPECT_EQ(lost.warm.status, "Terminated");
  wait_until_gone(pool(lost));
  EXPECT_EQ(run({.name = "wrong", .outcome = "failed", .keep_alive = 600}).warm.status, "Available")
      << "a program that failed has left its instances whole";
}

TEST_F(WarmServiceTest, ARestartKeepsPoolsTheirTimeAndTheirRoomAndRemovesWhatIsLeftOfOthers) {
  options_.host = {1, 64, 0};
  open_and_run();
  const TrainingJob over = run({.name = "over", .keep_alive = 600});
  keep_alive("over", 0);
  wait_until_gone(pool(over));
  const TrainingJob first = run({.name = "a", .keep_alive = 600});
  service_.reset();
  ASSERT_TRUE(make_folders(pool(over) / "algo-1"));  // as if that had been cut short
  open_and_run();
  wait_until_gone(pool(over));
  EXPECT_TRUE(fs::exists(pool(first)));
  const TrainingJob second = run({.name = "b", .keep_alive = 1});
  EXPECT_EQ(second.warm.of, "a");
  EXPECT_EQ(users(second), "a\nb\n");
  service_.reset();  // its time is over while nobody is there
  open_and_run();
  EXPECT_EQ(wait_for_pool("b", kWarmTerminated).warm.retained, std::chrono::seconds{1});
  wait_until_gone(pool(first));
}

// As the agents that this test does without would: a step is one look at the journals.
class Queue {
 public:
  explicit Queue(ServiceOptions options) : options_(std::move(options)) { look(); }
  TrainingJob submit(const TestJob& job) {
    EXPECT_TRUE(service_->create({testing::request_for(job), "", "arn:aws:iam::0:user/ada"}));
    return *service_->describe(job.name);
  }
  void end(const std::string& name, const char* kind = "completed",
           const std::string& detail = {}) {
    const fs::path folder = options_.folder / name;
    ASSERT_TRUE(make_folders(folder));
    {
      auto journal = *agent::Journal::open(folder, system_clock());
      journal.enter(1, 0);
      for (const char* step : {"started", "downloading", "training"}) {
        ASSERT_TRUE(journal.append(step, ""));
      }
      ASSERT_TRUE(journal.append(kind, "ClientError: if it has failed", detail));
    }
    look();
  }
  TrainingJob job(const std::string& name) { return *service_->describe(name); }

 private:
  void look() {
    service_.reset();
    auto opened = Service::open(options_, system_clock());
    ASSERT_TRUE(opened) << opened.error().message;
    service_ = *std::move(opened);
  }
  ServiceOptions options_;
  std::unique_ptr<Service> service_;
};

TEST_F(WarmServiceTest, TwoUsersOfPoolsDoNotKeepAJobWaitingThatNeedsTheRoomOfBoth) {
  options_.host = {2, 64, 0};
  Queue queue{options_};
  queue.submit({.name = "x1", .keep_alive = 600});
  queue.submit({.name = "y1", .keep_alive = 600, .role = "y"});
  EXPECT_FALSE(queue.submit({.name = "big", .instance_type = "ml.cpu.2x"}).admitted);
  queue.end("x1");
  EXPECT_EQ(queue.job("x1").warm.status, "Available") << "its end alone would not help";
  EXPECT_FALSE(queue.submit({.name = "x2", .keep_alive = 600}).admitted) << "it waits behind big";
  queue.end("y1");
  EXPECT_TRUE(queue.job("big").admitted);
  EXPECT_EQ(queue.job("x1").warm.status, "Terminated");
  queue.end("big");
  EXPECT_TRUE(queue.job("x2").admitted);
}

TEST_F(WarmServiceTest, APoolThatIsLargerThanItsVolumeEndsWithTheJobThatFoundItSo) {
  Queue queue{options_};
  queue.submit({.name = "a", .keep_alive = 600});
  queue.end("a", "failed", R"({"outcome":"failed","beyond_volume":false})");
  EXPECT_EQ(queue.job("a").warm.status, "Available") << "of another failure it is whole";
  EXPECT_EQ(queue.submit({.name = "b", .keep_alive = 600}).warm.of, "a");
  queue.end("b", "failed", R"({"outcome":"failed","beyond_volume":true})");
  EXPECT_EQ(queue.job("b").warm.status, "Terminated");
  EXPECT_EQ(queue.submit({.name = "c", .keep_alive = 600}).warm.of, "") << "a new one";
}

TEST_F(WarmServiceTest, NoJobPassesAnEarlierOneWhateverPoolsThereAre) {
  constexpr double kHost = 4;
  options_.host = {kHost, 1024, 0};
  int reused = 0;
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    ServiceOptions options = options_;
    options.folder = folder_.path() / std::to_string(seed) / "jobs";
    Queue queue{options};
    std::vector<std::string> names;
    for (std::uint64_t step = 0; step < 40; ++step) {
      const auto chance = [&](std::uint64_t what) { return rng(seed, step, what); };
      std::vector<std::string> running;
      for (const std::string& name : names) {
        const TrainingJob job = queue.job(name);
        if (job.admitted && !job.terminal()) running.push_back(name);
      }
      if (chance(0) % 2 == 0 && !running.empty()) {
        queue.end(running[chance(1) % running.size()]);
      } else {
        static constexpr const char* kTypes[] = {"ml.cpu.1x", "ml.cpu.2x", "ml.cpu.4x"};
        names.push_back(fmt::format("j{}", step));
        queue.submit({.name = names.back(),
                      .instance_type = kTypes[chance(1) % 3],
                      .keep_alive = chance(2) % 3 == 0 ? 0 : 600,
                      .role = chance(3) % 2 == 0 ? "x" : "y"});
      }
      double used = 0;
      const char* waiting = nullptr;
      double wanted = 0;
      for (const std::string& name : names) {
        const TrainingJob job = queue.job(name);
        if (!job.admitted && waiting == nullptr) {
          waiting = name.c_str();
          wanted = job.vcpus;
        }
        ASSERT_FALSE(job.admitted && waiting != nullptr) << name << " has passed " << waiting;
        if (job.admitted && !job.terminal()) used += job.vcpus;
        reused += job.warm.of.empty() ? 0 : 1;
      }
      ASSERT_LE(used, kHost);
      if (waiting != nullptr) {
        ASSERT_GT(used + wanted, kHost) << waiting << " waits for pools that nobody uses";
      }
    }
  }
  EXPECT_GT(reused, 0);
}

TEST_F(WarmServiceTest, AJobThatTakesAPoolOverGetsNothingOfADeletedJobOfItsName) {
  open_and_run();
  EXPECT_EQ(run({.name = "a", .keep_alive = 600}).warm.status, "Available");
  run({.name = "n", .role = "another"});
  const auto remove = [&] {
    Result<void> removed = service_->remove("n");
    while (!removed && removed.error().code == Code::kUnavailable) removed = service_->remove("n");
    return removed;
  };
  // While the folder of removals cannot be had, nothing is deleted, and the caller is not to blame.
  ASSERT_TRUE(replace_file(options_.removed_folder(), ""));
  EXPECT_EQ(remove().error().code, Code::kIo);
  EXPECT_EQ(job("n").status, "Completed");
  ASSERT_TRUE(remove_tree(options_.removed_folder()));
  {  // a deletion that was cut short after its commit
    const auto store = *Store::open(options_.folder / "jobs.db");
    ASSERT_TRUE(store->remove("n", store->load("n")->version));
  }
  const TrainingJob taken = run({.name = "n", .keep_alive = 600});
  EXPECT_EQ(taken.warm.of, "a");
  EXPECT_EQ(users(taken), "a\nn\n") << "its own program has run";
}

TEST_F(WarmServiceTest, APoolEndsWithTheKeysOfWhoMadeItAndIsNotTheNextHoldersOfTheName) {
  std::mutex mutex;
  std::vector<std::string> ids{"AIDA1"};
  options_.user_ids = [&](const std::string& arn) {
    EXPECT_EQ(arn, "arn:aws:iam::0:user/ada");
    const std::scoped_lock lock(mutex);
    return ids;
  };
  const auto set_ids = [&](std::vector<std::string> now) {
    const std::scoped_lock lock(mutex);
    ids = std::move(now);
  };
  options_.scan_interval = std::chrono::milliseconds{20};
  open_and_run();
  const TrainingJob first = run({.name = "a", .keep_alive = 600});
  open_and_run();  // the record knows whose it is
  set_ids({"AIDA1", "AIDA1"});
  EXPECT_EQ(run({.name = "b", .keep_alive = 600}).warm.of, "a") << "a rotated key is hers";
  set_ids({"AIDA2"});
  EXPECT_EQ(run({.name = "c", .keep_alive = 600}).warm.of, "") << "another person of that name";
  EXPECT_EQ(wait_for_pool("b", kWarmTerminated).warm.status, "Terminated");
  wait_until_gone(pool(first));
  set_ids({});
  EXPECT_EQ(wait_for_pool("c", kWarmTerminated).warm.status, "Terminated") << "nobody any more";
  service_.reset();
}

// Of records that were lost with a newer jobs.db, say.
TEST_F(WarmServiceTest, APoolThatNoRecordNamesIsKept) {
  open_and_run();
  const TrainingJob over = run({.name = "over", .keep_alive = 600});
  keep_alive("over", 0);
  wait_until_gone(pool(over));
  service_.reset();
  const fs::path unknown = options_.warm_folder() / ("unknown." + random_id());
  ASSERT_TRUE(make_folders(unknown / "algo-1"));
  ASSERT_TRUE(make_folders(pool(over) / "algo-1"));
  open_and_run();
  wait_until_gone(pool(over));
  run({.name = "later"});  // after all that was left was looked at
  EXPECT_TRUE(fs::exists(unknown / "algo-1"));
}

TEST_F(WarmServiceTest, ThePeriodCanBeChangedAndEnded) {
  open_and_run();
  create({.name = "a", .work_ms = 60000, .keep_alive = 600});
  keep_alive("a", 300);
  EXPECT_EQ(job("a").warm.keep_alive, std::chrono::seconds{300});
  wait_until(*service_, "a", [](const TrainingJob& job) { return job.attempts.began.has_value(); });
  ASSERT_TRUE(service_->stop("a"));
  EXPECT_EQ(wait_for_end(*service_, "a").warm.status, "Available");
  keep_alive("a", 3600);
  EXPECT_EQ(job("a").warm.status, "Available");
  keep_alive("a", 0);
  EXPECT_EQ(job("a").warm.status, "Terminated");
  wait_until_gone(pool(job("a")));
  EXPECT_EQ(run({.name = "b"}).warm.status, "");
  const auto late = service_->change_request("b", [](const TrainingJob&, std::string& text) {
    text = testing::request_for({.name = "b", .keep_alive = 60});
    return Result<bool>{true};
  });
  EXPECT_THAT(late.error().message, HasSubstr("created without KeepAlivePeriodInSeconds"));
  EXPECT_EQ(keep_alive_of(*parse_json(job("b").request_json)).count(), 0) << "nothing has changed";
}

TEST_F(WarmServiceTest, ADeletedJobTakesItsPoolWithItAndOneThatWasReusedDoesNot) {
  open_and_run();
  const auto remove = [&](const std::string& name) {
    Result<void> removed = service_->remove(name);
    while (!removed && removed.error().code == Code::kUnavailable) removed = service_->remove(name);
    return removed.has_value();
  };
  const TrainingJob first = run({.name = "a", .keep_alive = 600});
  const TrainingJob second = run({.name = "b", .keep_alive = 600});
  ASSERT_TRUE(remove("a"));
  EXPECT_EQ(users(second), "a\nb\n");
  const TrainingJob again = run({.name = "a", .keep_alive = 600, .role = "another"});
  EXPECT_NE(again.warm.name, first.warm.name) << "another pool, whatever the job is called";
  ASSERT_TRUE(remove("b"));
  wait_until_gone(pool(second));
  EXPECT_TRUE(fs::exists(pool(again)));
}

}  // namespace
}  // namespace atelier::jobs
