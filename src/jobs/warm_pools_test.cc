#include "jobs/warm_pools.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/json.h"

namespace atelier::jobs {
namespace {

using std::chrono::seconds;

WarmPools::Steady steady(int second) { return WarmPools::Steady{seconds{second}}; }

json::object request() {
  return {{"RoleArn", "arn:aws:iam::000000000000:role/r"},
          {"AlgorithmSpecification", {{"TrainingImage", "pytorch"}, {"TrainingInputMode", "File"}}},
          {"ResourceConfig",
           {{"InstanceType", "ml.cpu.1x"}, {"InstanceCount", 1}, {"VolumeSizeInGB", 30}}}};
}

TrainingJob job_of(const std::string& name, const json::object& body) {
  TrainingJob job = new_training_job(name, Time{});
  job.request_json = json::serialize(body);
  job.created_by = "arn:aws:iam::000000000000:user/ada";
  job.vcpus = 1;
  job.warm.keep_alive = seconds{60};
  return job;
}

json::object& resources(json::object& body) { return body.at("ResourceConfig").as_object(); }

TEST(PoolTerms, AreTheSameWhateverTheOrderAndWhatIsNoneOfTheInstances) {
  json::object other = request();
  other["HyperParameters"] = {{"lr", "1"}};
  other["OutputDataConfig"] = {{"S3OutputPath", "s3://elsewhere"}};
  other["EnableNetworkIsolation"] = false;
  other["ResourceConfig"] = {{"VolumeSizeInGB", 30},
                             {"KeepAlivePeriodInSeconds", 5},
                             {"InstanceCount", 1},
                             {"InstanceType", "ml.cpu.1x"}};
  EXPECT_EQ(pool_terms(job_of("a", request())), pool_terms(job_of("b", other)));
}

TEST(PoolTerms, DifferByWhoseTheDataAreAndWhatTheInstancesAre) {
  const std::string terms = pool_terms(job_of("a", request()));
  const auto differs = [&](const std::function<void(json::object&, TrainingJob&)>& change) {
    json::object body = request();
    TrainingJob job = job_of("b", body);
    change(body, job);
    job.request_json = json::serialize(body);
    return pool_terms(job) != terms;
  };
  EXPECT_FALSE(differs([](json::object&, TrainingJob&) {}));
  EXPECT_TRUE(differs([](json::object&, TrainingJob& job) { job.created_by = "another"; }));
  EXPECT_TRUE(differs([](json::object&, TrainingJob& job) {
    job.created_by += "\narn:aws:iam::000000000000:role/r";  // by a job of hers
  }));
  EXPECT_TRUE(differs([](json::object&, TrainingJob& job) { job.vcpus = 2; }));
  for (const char* member : {"RoleArn", "EnableNetworkIsolation",
                             "EnableInterContainerTrafficEncryption", "VpcConfig"}) {
    EXPECT_TRUE(differs([&](json::object& body, TrainingJob&) {
      const bool flag = std::string_view{member}.starts_with("Enable");
      body[member] = flag ? json::value(true) : json::value("another");
    })) << member;
  }
  for (const char* member : {"InstanceType", "InstanceCount", "VolumeSizeInGB", "InstanceGroups"}) {
    EXPECT_TRUE(differs([&](json::object& body, TrainingJob&) { resources(body)[member] = 2; }))
        << member;
  }
  for (const char* member : {"TrainingImage", "AlgorithmName"}) {
    EXPECT_TRUE(differs([&](json::object& body, TrainingJob&) {
      body["AlgorithmSpecification"].as_object()[member] = "another";
    })) << member;
  }
}

TEST(PoolTerms, OfASpotJobAndOfAJobWhoseMakerIsNotKnownAreNone) {
  TrainingJob spot = job_of("a", request());
  spot.terms.spot = true;
  EXPECT_EQ(pool_terms(spot), "");
  TrainingJob nobodys = job_of("a", request());
  nobodys.created_by.clear();
  EXPECT_EQ(pool_terms(nobodys), "");
  TrainingJob child = job_of("a", request());
  child.created_by = "arn:aws:sts::000000000000:assumed-role/r/job-1";
  EXPECT_EQ(pool_terms(child), "");
  WarmPools pools;
  pools.keep(child, steady(0));
  child.name = "b";
  EXPECT_EQ(pools.match(child), std::nullopt) << "none is not equal to none";
}

TEST(WarmPools, AFittingJobGetsTheOneThatWasUsedLast) {
  WarmPools pools;
  pools.keep(job_of("a", request()), steady(1));
  pools.keep(job_of("b", request()), steady(3));
  pools.keep(job_of("c", request()), steady(2));
  TrainingJob newcomer = job_of("n", request());
  EXPECT_EQ(pools.match(newcomer), "b");
  EXPECT_TRUE(pools.remove("b"));
  EXPECT_FALSE(pools.remove("b"));
  EXPECT_EQ(pools.match(newcomer), "c");
  newcomer.warm.keep_alive = seconds{0};
  EXPECT_EQ(pools.match(newcomer), "c") << "it may be the last to use it";
  newcomer.attempts.number = 2;
  EXPECT_EQ(pools.match(newcomer), std::nullopt) << "its files are elsewhere already";
}

TEST(WarmPools, OfAUserWhoIsGoneAreNobodysThoughTheNameComesBack) {
  std::vector<std::string> ids{"AIDA1"};
  WarmPools pools{[&](const std::string& created_by, const std::string& owner) {
    EXPECT_EQ(created_by, "arn:aws:iam::000000000000:user/ada");
    return std::ranges::find(ids, owner) != ids.end();
  }};
  TrainingJob job = job_of("a", request());
  job.warm.owner = "AIDA1";
  pools.keep(job, steady(1));
  EXPECT_EQ(pools.match(job_of("n", request())), "a");
  EXPECT_TRUE(pools.without_owner().empty());
  ids = {};
  EXPECT_EQ(pools.without_owner(), std::vector<std::string>{"a"});
  ids = {"AIDA2"};
  EXPECT_EQ(pools.match(job_of("n", request())), std::nullopt);
  EXPECT_EQ(pools.without_owner(), std::vector<std::string>{"a"});
}

TEST(WarmPools, AreOverAfterTheirPeriodWhichMayChange) {
  WarmPools pools;
  EXPECT_EQ(pools.next_end(), std::nullopt);
  TrainingJob job = job_of("a", request());
  pools.keep(job, steady(100));
  EXPECT_EQ(pools.next_end(), steady(160));
  EXPECT_TRUE(pools.over(steady(159)).empty());
  EXPECT_EQ(pools.over(steady(160)), std::vector<std::string>{"a"});
  job.warm.keep_alive = seconds{90};
  pools.keep(job, steady(130));
  EXPECT_EQ(pools.next_end(), steady(190)) << "from when it became Available";
  pools.put_off("a", steady(200));
  EXPECT_EQ(pools.next_end(), steady(200));
}

}  // namespace
}  // namespace atelier::jobs
