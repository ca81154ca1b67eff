#include "compute/instance_types.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/file.h"
#include "base/time.h"
#include "compute/gpus.h"

namespace atelier::compute {
namespace {

TEST(InstanceTypes, TheBuiltInTableKnowsTheArticlesInstance) {
  const auto type = find_instance_type(builtin_instance_table(), "ml.p4d.24xlarge");
  ASSERT_TRUE(type);
  EXPECT_EQ(type->vcpus, 96);
  EXPECT_EQ(type->gpus, 8);
  EXPECT_GT(type->price_per_hour, 0);
  EXPECT_TRUE(parse_iso8601(builtin_instance_table().price_date + "T00:00:00Z"));
  EXPECT_EQ(builtin_instance_table().interruption_notice, std::chrono::seconds{120});
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
  InstanceType type;
  type.name = "ml.big";
  type.vcpus = 96;
  type.memory_gib = 1152;
  type.gpus = 8;
  const HostCapacity host{2, 23, 0};
  const auto cut = allocate(type, host, false);
  ASSERT_TRUE(cut);
  EXPECT_EQ(cut->vcpus, 2);
  EXPECT_EQ(cut->memory_gib, 23);
  EXPECT_EQ(cut->gpus, 0);
  ASSERT_EQ(cut->warnings.size(), 3u);
  EXPECT_EQ(cut->warnings[0], "ml.big has 96 vCPUs; this host has 2, which is what the job gets.");
  EXPECT_EQ(allocate(type, host, true).error().code, Code::kResourceExhausted);
  EXPECT_TRUE(allocate(InstanceType{}, host, true)) << "one CPU and one GiB";
}

TEST(InstanceTypes, TheHostHasSomethingToGive) {
  const HostCapacity host = host_capacity();
  EXPECT_GT(host.vcpus, 0);
  EXPECT_GT(host.memory_gib, 0);
  EXPECT_GE(host.gpus, 0);
}

TEST(InstanceTypes, GpusAreThoseWithADeviceFileAndADriver) {
  const TempFolder devices = TempFolder::create().value();
  for (const char* name : {"nvidia10", "nvidia0", "nvidia-uvm", "nvidia", "nvidia1x"}) {
    std::ofstream{devices.path() / name};
  }
  EXPECT_EQ(host_capacity(devices.path()).gpus, 0);
  std::ofstream{devices.path() / "nvidiactl"};
  EXPECT_EQ(host_capacity(devices.path()).gpus, 2);
  const GpuDevices found = find_gpus(devices.path());
  EXPECT_EQ(found.numbers, (std::vector<int>{0, 10}));
  EXPECT_EQ(found.shared, (std::vector<std::string>{"nvidiactl", "nvidia-uvm"}));
  EXPECT_TRUE(find_gpus(devices.path() / "none").numbers.empty());
}

TEST(Interruptions, ATableNamesPricesNoticeAndHowOftenSpotJobsAreInterrupted) {
  auto table = parse_instance_table(R"(
    interruption_notice_seconds = 5
    [instances]
    "ml.plain" = { vcpus = 1, memory_gib = 1, price_per_hour = 2 }
    "ml.rate"  = { vcpus = 1, memory_gib = 1, price_per_hour = 2, spot_price_per_hour = 0.5, interruptions_per_hour = 3 }
    "ml.trace" = { vcpus = 1, memory_gib = 1, interruption_trace = "trace.txt" }
  )");
  ASSERT_TRUE(table) << table.error().message;
  EXPECT_EQ(table->interruption_notice, std::chrono::seconds{5});
  EXPECT_EQ(find_instance_type(*table, "ml.plain")->spot_price_per_hour, 2);
  EXPECT_EQ(find_instance_type(*table, "ml.rate")->spot_price_per_hour, 0.5);
  const TempFolder folder = *TempFolder::create();
  const auto missing = read_interruption_traces(*table, folder.path());
  EXPECT_NE(missing.error().message.find("trace.txt"), std::string::npos);
  ASSERT_TRUE(write_file_durably(folder.path() / "trace.txt", "# seconds\n 1.5\n\n20 # then\n"));
  ASSERT_TRUE(read_interruption_traces(*table, folder.path()));
  const InstanceType trace = *find_instance_type(*table, "ml.trace");
  EXPECT_EQ(next_interruption(trace, 7, 1), std::chrono::milliseconds{1500});
  EXPECT_EQ(next_interruption(trace, 7, 2), std::chrono::seconds{20});
  EXPECT_EQ(next_interruption(trace, 7, 3), std::nullopt) << "the trace has ended";
}

TEST(Interruptions, WrongModelsAreRefusedByPlaceAndName) {
  const auto message = [](std::string_view line) {
    const auto table =
        parse_instance_table(fmt::format("[instances]\na = {{ vcpus = 1, memory_gib "
                                         "= 1, {} }}",
                                         line));
    return table ? std::string{} : table.error().message;
  };
  EXPECT_NE(message("price_per_hour = 1, spot_price_per_hour = 2").find("is more than"),
            std::string::npos);
  EXPECT_NE(message("interruptions_per_hour = -1").find("interruptions_per_hour must"),
            std::string::npos);
  EXPECT_NE(message("interruption_trace = 3").find("the name of a file"), std::string::npos);
  EXPECT_NE(message("interruption_trace = 'x', interruptions_per_hour = 1").find("one of them"),
            std::string::npos);
  EXPECT_NE(parse_instance_table("interruption_notice_seconds = 9999")
                .error()
                .message.find("from 0 to 3600"),
            std::string::npos);
  EXPECT_NE(parse_interruption_trace("1\nx\n").error().message.find("line 2: 'x'"),
            std::string::npos);
  EXPECT_FALSE(parse_interruption_trace("-1"));
  EXPECT_FALSE(parse_interruption_trace("nan"));
}

TEST(Interruptions, ARateIsDrawnByJobAndAttemptAndHasItsMean) {
  InstanceType type;
  type.interruptions_per_hour = 60;
  EXPECT_EQ(next_interruption(type, 1, 1), next_interruption(type, 1, 1));
  EXPECT_NE(next_interruption(type, 1, 1), next_interruption(type, 1, 2));
  EXPECT_NE(next_interruption(type, 1, 1), next_interruption(type, 2, 1));
  std::chrono::milliseconds sum{0};
  for (std::uint64_t job = 0; job < 4000; ++job) sum += *next_interruption(type, job, 1);
  EXPECT_NEAR(static_cast<double>(sum.count()) / 4000, 60000, 4000) << "a minute";
  EXPECT_EQ(next_interruption(InstanceType{}, 1, 1), std::nullopt);
}

}  // namespace
}  // namespace atelier::compute
