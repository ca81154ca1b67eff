#include "jobs/request_instances.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"

namespace atelier::jobs {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

json::value parsed(const std::string& text) { return parse_json(text).value(); }

Result<InstancesPlan> plan(const std::string& resources, double vcpus = 64, bool strict = false) {
  compute::InstanceTable table = compute::builtin_instance_table();
  table.strict = strict;
  return plan_instances(parsed(resources), table, {vcpus, 1024, 0});
}

TEST(RequestInstances, HoldTheSumOfTheHost) {
  const auto four = plan(R"({"InstanceType":"ml.cpu.2x","InstanceCount":4})");
  ASSERT_TRUE(four) << four.error().message;
  EXPECT_EQ(four->total.vcpus, 8);
  ASSERT_EQ(four->instances.size(), 4U);
  EXPECT_EQ(four->instances[3].host, "algo-4");
  EXPECT_EQ(four->instances[3].vcpus, 2);
  EXPECT_THAT(four->total.warnings, IsEmpty());
}

TEST(RequestInstances, ThatAreTooManyForTheHostGetEachItsPartAndAWarning) {
  const auto cut = plan(R"({"InstanceType":"ml.cpu.2x","InstanceCount":4})", 2);
  ASSERT_TRUE(cut) << cut.error().message;
  EXPECT_EQ(cut->total.vcpus, 2);
  EXPECT_EQ(cut->instances[0].vcpus, 0.5);
  EXPECT_THAT(cut->total.warnings, ElementsAre(HasSubstr("4 instances ask for 8 vCPUs")));
  const auto strict = plan(R"({"InstanceType":"ml.cpu.2x","InstanceCount":4})", 2, true);
  ASSERT_FALSE(strict);
  EXPECT_EQ(strict.error().code, Code::kResourceExhausted);
  const auto crumbs = plan(R"({"InstanceType":"ml.cpu.1x","InstanceCount":100})", 2);
  ASSERT_FALSE(crumbs);
  EXPECT_THAT(crumbs.error().message, HasSubstr("leaves one of them 0.02 vCPUs"));
}

TEST(RequestInstances, OfGroupsAreNumberedInTheirOrder) {
  const auto two = plan(
      R"({"InstanceGroups":[
          {"InstanceGroupName":"data","InstanceType":"ml.cpu.1x","InstanceCount":2},
          {"InstanceGroupName":"dnn","InstanceType":"ml.cpu.4x","InstanceCount":1}]})");
  ASSERT_TRUE(two) << two.error().message;
  ASSERT_EQ(two->instances.size(), 3U);
  EXPECT_EQ(two->instances[1].group, "data");
  EXPECT_EQ(two->instances[2].group, "dnn");
  EXPECT_EQ(two->instances[2].host, "algo-3");
  EXPECT_EQ(two->instances[2].instance_type, "ml.cpu.4x");
  EXPECT_EQ(two->total.vcpus, 6);
}

TEST(RequestInstances, ShareTheHostsGpusInEqualParts) {
  const auto of = [](int count, int gpus) {
    const std::string resources =
        R"({"InstanceType":"ml.gpu.2x","InstanceCount":)" + std::to_string(count) + "}";
    return plan_instances(parsed(resources), compute::builtin_instance_table(), {1000, 1000, gpus})
        .value();
  };
  EXPECT_EQ(of(2, 4).instances[1].gpus, 2);
  EXPECT_THAT(of(2, 4).total.warnings, IsEmpty());
  const InstancesPlan halved = of(2, 2);
  EXPECT_EQ(halved.instances[0].gpus, 1);
  EXPECT_EQ(halved.instances[1].gpus, 1);
  EXPECT_EQ(halved.total.gpus, 2);
  const InstancesPlan none = of(3, 2);
  EXPECT_EQ(none.total.gpus, 0);
  EXPECT_THAT(none.total.warnings, ElementsAre(HasSubstr("algo-1 0 GPUs")));
}

TEST(RequestInstances, OfAnUnknownTypeAreRefusedByName) {
  const auto unknown = plan(R"({"InstanceType":"ml.huge","InstanceCount":1})");
  ASSERT_FALSE(unknown);
  EXPECT_THAT(unknown.error().message, HasSubstr("'ml.huge' is not in this server's table"));
}

TEST(RequestInstances, ThatContradictThemselvesAreNamed) {
  const auto mistakes = [](const std::string& resources, const std::string& channels = "[]") {
    return instance_mistakes(
        parsed(R"({"ResourceConfig":)" + resources + R"(,"InputDataConfig":)" + channels + "}"));
  };
  const std::string group = R"({"InstanceGroupName":"a","InstanceType":"t","InstanceCount":1})";
  const std::string one = R"({"InstanceGroups":[)" + group + "]}";
  const auto channel = [](const std::string& name, const std::string& groups) {
    return R"({"ChannelName":")" + name +
           R"(","DataSource":{"S3DataSource":{"InstanceGroupNames":)" + groups + "}}}";
  };
  EXPECT_THAT(mistakes(one), IsEmpty());
  EXPECT_THAT(mistakes(R"({"InstanceType":"t","InstanceCount":2})"), IsEmpty());
  EXPECT_THAT(mistakes("{}"), ElementsAre(HasSubstr("InstanceType must be specified"),
                                          HasSubstr("InstanceCount must be specified")));
  EXPECT_THAT(mistakes(R"({"InstanceType":"t","InstanceCount":0})"),
              ElementsAre(HasSubstr("0 must be from 1 to 200")));
  EXPECT_THAT(mistakes(R"({"InstanceType":"t","InstanceGroups":[)" + group + "]}"),
              ElementsAre(HasSubstr("can not be given together")));
  EXPECT_THAT(mistakes(R"({"InstanceGroups":[)" + group + "," + group + "]}"),
              ElementsAre(HasSubstr("'a' twice")));
  EXPECT_THAT(mistakes(one, "[" + channel("x", R"(["b"])") + "]"),
              ElementsAre(HasSubstr("channel 'x': InstanceGroupNames has \"b\"")));
  EXPECT_THAT(mistakes(one, "[" + channel("x", R"(["a"])") + "," + channel("y", "[]") + "]"),
              ElementsAre(HasSubstr("or none has")));
  EXPECT_THAT(mistakes(R"({"InstanceType":"t","InstanceCount":2})",
                       "[" + channel("x", R"(["homogeneousCluster"])") + "]"),
              ElementsAre(HasSubstr("no group of")));
}

}  // namespace
}  // namespace atelier::jobs
