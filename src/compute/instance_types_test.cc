#include "compute/instance_types.h"

#include <gtest/gtest.h>

namespace atelier::compute {
namespace {

TEST(InstanceTypes, TheBuiltInTableKnowsTheArticlesInstance) {
  const auto type = find_instance_type(builtin_instance_table(), "ml.p4d.24xlarge");
  ASSERT_TRUE(type);
  EXPECT_EQ(type->vcpus, 96);
  EXPECT_EQ(type->gpus, 8);
  EXPECT_GT(type->price_per_hour, 0);
  EXPECT_FALSE(builtin_instance_table().price_date.empty());
}

TEST(InstanceTypes, SizesByPatternNeedNoLine) {
  const InstanceTable empty;
  EXPECT_EQ(find_instance_type(empty, "ml.cpu.4x")->vcpus, 4);
  EXPECT_EQ(find_instance_type(empty, "ml.gpu.2x")->gpus, 2);
  for (const char* name : {"ml.cpu.0x", "ml.cpu.-1x", "ml.cpu.4", "ml.cpu.4xx", "ml.cpu.x",
                           "ml.cpu.99999999999x", "ml.tpu.4x", "", "ml.m5.xlarge"}) {
    EXPECT_FALSE(find_instance_type(empty, name)) << name;
  }
}

TEST(InstanceTypes, AUsersTableIsRead) {
  const auto table = parse_instance_table(R"(
    currency = "EUR"
    price_date = "2026-11-30"
    strict = true
    [instances]
    "ml.mine" = { vcpus = 1.5, memory_gib = 3, price_per_hour = 0.07 }
  )");
  ASSERT_TRUE(table);
  EXPECT_EQ(table->currency, "EUR");
  EXPECT_TRUE(table->strict);
  EXPECT_EQ(find_instance_type(*table, "ml.mine")->vcpus, 1.5);
}

TEST(InstanceTypes, AWrongTableIsRefusedByPlaceAndName) {
  const auto message = [](std::string_view text) {
    const auto table = parse_instance_table(text);
    return table ? std::string{} : table.error().message;
  };
  EXPECT_NE(message("currency = ").find("line 1"), std::string::npos);
  EXPECT_NE(message("[instances]\na = 3").find("a: must be a table"), std::string::npos);
  EXPECT_NE(message("[instances]\na = { vcpus = 1 }").find("lacks memory_gib"), std::string::npos);
  EXPECT_NE(message("[instances]\na = { vcpus = -1, memory_gib = 1 }").find("vcpus must be"),
            std::string::npos);
  EXPECT_NE(message("[instances]\na = { vcpus = 1, memory_gib = nan }").find("memory_gib must"),
            std::string::npos);
  EXPECT_NE(message("[instances]\na = { vcpus = 1, memory_gib = 1, gpu = 1 }").find("'gpu' is not"),
            std::string::npos);
  EXPECT_NE(message("strct = true").find("strct"), std::string::npos);
}

TEST(InstanceTypes, MoreThanTheHostHasIsCutWithASentenceForEach) {
  const InstanceType type{"ml.big", 96, 1152, 8, 1};
  const HostCapacity host{2, 23, 0};
  const auto cut = allocate(type, host, false);
  ASSERT_TRUE(cut);
  EXPECT_EQ(cut->vcpus, 2);
  EXPECT_EQ(cut->memory_gib, 23);
  EXPECT_EQ(cut->gpus, 0);
  ASSERT_EQ(cut->warnings.size(), 3u);
  EXPECT_EQ(cut->warnings[0], "ml.big has 96 vCPUs; this host has 2, which is what the job gets.");
  EXPECT_EQ(allocate(type, host, true).error().code, Code::kResourceExhausted);
  EXPECT_TRUE(allocate(InstanceType{"ml.small", 1, 1, 0, 0}, host, true));
}

TEST(InstanceTypes, TheHostHasSomethingToGive) {
  const HostCapacity host = host_capacity();
  EXPECT_GT(host.vcpus, 0);
  EXPECT_GT(host.memory_gib, 0);
  EXPECT_GE(host.gpus, 0);
}

}  // namespace
}  // namespace atelier::compute
