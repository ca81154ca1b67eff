#include "agent/gpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <thread>

#include "agent/program.h"

namespace atelier::agent {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class GpusTest : public testing::Test {
 protected:
  GpusTest() {
    fs::create_directories(devices_);
    for (const char* name : {"nvidia2", "nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"}) {
      std::ofstream{devices_ / name} << name;
    }
    spec_.device_folder = devices_.string();
    spec_.gpu_folder = (folder_.path() / ".gpus").string();
  }
  Result<Gpus> take(int count) {
    spec_.gpus = count;
    return Gpus::take(spec_, stop_, *log_);
  }

  TempFolder folder_ = TempFolder::create().value();
  fs::path devices_ = folder_.path() / "dev";
  AgentSpec spec_;
  StopRequest stop_ = StopRequest::watch(folder_.path(), 1).value();
  std::unique_ptr<JobLog> log_ = JobLog::open(folder_.path(), "algo-1", {}, system_clock()).value();
};

TEST_F(GpusTest, OfTwoJobsAreNeverTheSame) {
  const Gpus first = take(1).value();
  std::optional<Gpus> second = take(2).value();
  EXPECT_THAT(first.numbers(), ElementsAre(0));
  EXPECT_THAT(second->numbers(), ElementsAre(1, 2));
  second.reset();
  EXPECT_THAT(take(1).value().numbers(), ElementsAre(1));
  EXPECT_THAT(take(0).value().numbers(), IsEmpty());
}

TEST_F(GpusTest, AreWaitedForAllOrNone) {
  std::optional<Gpus> first = take(2).value();
  std::thread waiter([&] { EXPECT_THAT(take(3).value().numbers(), ElementsAre(0, 1, 2)); });
  // It says that it waits, and holds nothing of what is free meanwhile.
  while (read_file(folder_.path() / "logs/algo-1.log").value_or("").find("waits for a GPU") ==
         std::string::npos) {
    std::this_thread::yield();
  }
  first.reset();
  waiter.join();
}

TEST_F(GpusTest, AStopEndsTheWait) {
  const Gpus all = take(3).value();
  std::ofstream{folder_.path() / "stop"};
  EXPECT_EQ(take(1).error().code, Code::kCancelled);
}

TEST_F(GpusTest, ThatAreGoneAreMissed) {
  fs::remove(devices_ / "nvidia2");
  EXPECT_THAT(take(3).error().message, HasSubstr("granted 3 GPUs"));
  fs::remove(devices_ / "nvidiactl");  // no driver
  EXPECT_THAT(take(1).error().message, HasSubstr("has 0 now"));
}

TEST_F(GpusTest, AreBoundIntoTheSandboxWithWhatTheyNeedAndCountedFromZero) {
  spec_.gpu_numbers = {1, 2};
  const compute::SandboxSpec sandbox = sandbox_spec(spec_, folder_.path());
  std::vector<std::string> inside;
  for (const compute::BindMount& device : sandbox.devices) {
    inside.push_back(device.inside.string());
    EXPECT_EQ(device.host, devices_ / device.inside.filename());
  }
  EXPECT_THAT(inside,
              ElementsAre("/dev/nvidia1", "/dev/nvidia2", "/dev/nvidiactl", "/dev/nvidia-uvm"));
  EXPECT_EQ(sandbox.environment.at("CUDA_VISIBLE_DEVICES"), "0,1");
  EXPECT_EQ(sandbox.environment.at("NVIDIA_VISIBLE_DEVICES"), "all");
  spec_.gpu_numbers.clear();
  EXPECT_THAT(sandbox_spec(spec_, folder_.path()).devices, IsEmpty());
  EXPECT_FALSE(sandbox_spec(spec_, folder_.path()).environment.contains("CUDA_VISIBLE_DEVICES"));
}

}  // namespace
}  // namespace atelier::agent
