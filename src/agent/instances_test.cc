#include "agent/instances.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>

#include "agent/ml_tree.h"
#include "base/json.h"

namespace atelier::agent {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

AgentSpec two_groups() {
  AgentSpec spec;
  spec.job_name = "job";
  spec.log_stream = "job/algo-1-1796022355";
  spec.instances = {{"algo-1", "data", "ml.cpu.1x", 1, 2},
                    {"algo-2", "dnn", "ml.cpu.4x", 4, 8},
                    {"algo-3", "dnn", "ml.cpu.4x", 4, 8}};
  spec.channels.resize(2);
  spec.channels[0].name = "raw";
  spec.channels[0].groups = {"data"};
  spec.channels[1].name = "all";
  spec.channels[1].groups = {"data", "dnn"};
  return spec;
}

InstanceEnd end_of(const std::string& host, const std::string& kind, int second,
                   const std::string& message = {}) {
  InstanceEnd end;
  end.host = host;
  end.outcome.kind = kind;
  end.outcome.message = message;
  end.time = Time{} + std::chrono::seconds{second};
  return end;
}

TEST(Instances, AreToldTheirOwnPart) {
  const AgentSpec job = two_groups();
  AgentSpec third = spec_of_instance(job, job.instances[2]);
  EXPECT_EQ(third.host, "algo-3");
  EXPECT_EQ(third.vcpus, 4);
  EXPECT_EQ(third.log_stream, "job/algo-3-1796022355");
  ASSERT_EQ(third.channels.size(), 1U);
  EXPECT_EQ(third.channels[0].name, "all");
  EXPECT_EQ(third.channels[0].shard_index, 2);
  EXPECT_EQ(third.channels[0].shard_count, 3);
  EXPECT_EQ(sandbox_name(third), "job.algo-3");
  EXPECT_EQ(sandbox_name(spec_of_instance(job, job.instances[0])), "job");
  EXPECT_EQ(identity_name(third), "job.algo-3");
  third.warm_pool = "/data/warm/first.f00d";
  EXPECT_EQ(identity_name(third), "first.f00d.algo-3") << "as of the job before it";
  EXPECT_EQ(identity_name(third, kLeader), "first.f00d");
  EXPECT_EQ(sandbox_name(third), "job.algo-3");
  const json::value config = parse_json(resource_config_json(third)).value();
  EXPECT_EQ(find_string(config, "current_host"), "algo-3");
  EXPECT_EQ(find_string(config, "current_group_name"), "dnn");
  EXPECT_EQ(find_string(config, "current_instance_type"), "ml.cpu.4x");
  EXPECT_EQ(json::serialize(*find_member(config, "hosts")), R"(["algo-1","algo-2","algo-3"])");
  EXPECT_EQ(
      json::serialize(*find_member(config, "instance_groups")),
      R"([{"instance_group_name":"data","instance_type":"ml.cpu.1x","hosts":["algo-1"]},)"
      R"({"instance_group_name":"dnn","instance_type":"ml.cpu.4x","hosts":["algo-2","algo-3"]}])");
}

TEST(Instances, AreSortedByNameAsTheToolkitSortsThem) {
  AgentSpec spec;
  for (int i = 1; i <= 11; ++i) {
    InstanceSpec instance;
    instance.host = "algo-" + std::to_string(i);
    spec.instances.push_back(instance);
  }
  EXPECT_THAT(host_names(spec),
              ElementsAre("algo-1", "algo-10", "algo-11", "algo-2", "algo-3", "algo-4", "algo-5",
                          "algo-6", "algo-7", "algo-8", "algo-9"));
}

TEST(Instances, TheFirstThatFailsIsTheCauseAndWhoWasEndedIsNotBlamed) {
  const Outcome outcome = outcome_of_job(
      {end_of("algo-1", "stopped", 9), end_of("algo-2", "failed", 5, "AlgorithmError: no pictures"),
       end_of("algo-3", "failed", 6, "AlgorithmError: connection closed\nmore")});
  EXPECT_EQ(outcome.kind, "failed");
  EXPECT_EQ(outcome.message,
            "AlgorithmError: algo-2: no pictures (1.0 s later algo-3: connection closed)");
  EXPECT_THAT(outcome.message, Not(HasSubstr("algo-1")));
}

TEST(Instances, AllHaveToComplete) {
  const auto kind = [](const std::vector<InstanceEnd>& ends) { return outcome_of_job(ends).kind; };
  EXPECT_EQ(kind({end_of("algo-1", "completed", 1), end_of("algo-2", "completed", 2)}),
            "completed");
  EXPECT_EQ(kind({end_of("algo-1", "completed", 1), end_of("algo-2", "stopped", 2)}), "stopped");
  EXPECT_EQ(kind({end_of("algo-1", "stopped", 1), end_of("algo-2", "max-runtime", 2)}),
            "max-runtime");
  EXPECT_EQ(kind({end_of("algo-1", "interrupted", 1), end_of("algo-2", "completed", 2)}),
            "interrupted");
}

// Whatever the ends are: a failure of any is the job's, its words name the first of them, and the
// class that clients go by stays in front, within the API's limit.
void check_failures() {
  const std::vector<std::string> kinds = {"completed", "failed", "stopped", "max-runtime",
                                          "interrupted"};
  std::vector<InstanceEnd> ends;
  const int count = *rc::gen::inRange(1, 12);
  for (int i = 1; i <= count; ++i) {
    const std::string kind = *rc::gen::elementOf(kinds);
    const auto length = *rc::gen::inRange<std::size_t>(0, 900);
    ends.push_back(end_of("algo-" + std::to_string(i), kind, *rc::gen::inRange(0, 5),
                          kind == "failed" ? "AlgorithmError: " + std::string(length, 'x') : ""));
  }
  const InstanceEnd* first = nullptr;
  for (const InstanceEnd& end : ends) {
    if (end.outcome.kind == "failed" && (first == nullptr || end.time < first->time)) first = &end;
  }
  const Outcome outcome = outcome_of_job(ends);
  RC_ASSERT((outcome.kind == "failed") == (first != nullptr));
  const bool all = std::ranges::all_of(
      ends, [](const InstanceEnd& end) { return end.outcome.kind == "completed"; });
  RC_ASSERT((outcome.kind == "completed") == all);
  if (first == nullptr) return;
  RC_ASSERT(outcome.message.starts_with("AlgorithmError: " + first->host + ": "));
  RC_ASSERT(outcome.message.size() <= 1024U);
}

TEST(Instances, AFailureIsNeverLost) {
  EXPECT_TRUE(rc::check("a failure is never lost", check_failures));
}

TEST(Instances, ACauseOfOursKeepsItsClass) {
  EXPECT_THAT(outcome_of_job({end_of("algo-1", "failed", 1, "InternalServerError: the agent died")})
                  .message,
              StartsWith("InternalServerError: algo-1: the agent died"));
}

}  // namespace
}  // namespace atelier::agent
