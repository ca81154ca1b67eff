// How results come to S3, and what ends that.
#include "agent/delivery.h"

#include <thread>

#include "agent/agent_test.h"
#include "agent/volume_watch.h"

namespace atelier::agent {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

class DeliveryTest : public AgentTest {
 protected:
  // A model that takes hours to bring to S3, and no room on the disk.
  DeliveryTest() {
    spec_.volume_gib = 4096;
    native("truncate -s 1T /opt/ml/model/x; echo small > /opt/ml/model/y");
  }
  // Runs the job, which is stopped twice while its model is on its way.
  JournalEvent run_and_stop_twice() {
    write_spec();
    std::thread agent{[&] { run_agent(job_).value(); }};
    wait_for_event("uploading");
    request_stop(job_).value();
    request_second_stop(job_).value();
    agent.join();
    return last();
  }
};

TEST_F(DeliveryTest, ASecondStopEndsThePackingAndWhatIsNotInS3StaysOnTheHost) {
  const JournalEvent end = run_and_stop_twice();
  EXPECT_EQ(end.kind, "stopped");
  EXPECT_THAT(end.message, StartsWith("stopped again before its results were in S3; what is not "
                                      "there is kept on the host, in jobs/job-1 "));
  EXPECT_THAT(end.message, HasSubstr("'/opt/ml/model/x', "));
  EXPECT_THAT(end.message, HasSubstr(" of 1099511627776 bytes packed"));
  EXPECT_EQ(fs::file_size(job_ / "ml/model/x"), std::uint64_t{1} << 40);
  EXPECT_FALSE(fs::exists(job_ / "model.tar.gz"));
  EXPECT_TRUE(keys("out").empty());
}

TEST_F(DeliveryTest, ASecondStopEndsTheUploadOfALargeFileInTheMiddle) {
  spec_.compress_output = false;
  const JournalEvent end = run_and_stop_twice();
  EXPECT_EQ(end.kind, "stopped");
  EXPECT_THAT(end.message, HasSubstr("upload of /opt/ml/model to s3://out/prefix/job-1/"));
  EXPECT_EQ(fs::file_size(job_ / "ml/model/x"), std::uint64_t{1} << 40);
  EXPECT_FALSE(store_->head("out", "prefix/job-1/output/model/x"));
}

TEST_F(DeliveryTest, ASecondStopEndsTheLastCopiesOfCheckpointsToo) {
  spec_.checkpoints = {"s3://data/ckpt", "/opt/ml/checkpoints"};
  native("truncate -s 1T /opt/ml/checkpoints/x");
  const JournalEvent end = run_and_stop_twice();
  EXPECT_EQ(end.kind, "stopped");
  EXPECT_EQ(fs::file_size(job_ / "ml/checkpoints/x"), std::uint64_t{1} << 40);
}

TEST_F(DeliveryTest, PackingEndsWhenTheTimeForItIsOver) {
  spec_.max_runtime = std::chrono::seconds{2};
  spec_.packing_time = std::chrono::seconds{0};
  const JournalEvent end = run();
  EXPECT_EQ(end.kind, "failed");
  EXPECT_THAT(end.message, StartsWith("ClientError: pack /opt/ml/model: '/opt/ml/model/x', "));
  EXPECT_THAT(end.message, HasSubstr("a file with holes takes as long as one without"));
  EXPECT_EQ(fs::file_size(job_ / "ml/model/x"), std::uint64_t{1} << 40);
}

TEST_F(DeliveryTest, AJobThatWasToldToEndHasTheTimeForPackingAndNoMore) {
  native("truncate -s 1T /opt/ml/model/x; echo ready; sleep 1000");
  spec_.packing_time = std::chrono::seconds{1};
  write_spec();
  std::thread agent{[&] { run_agent(job_).value(); }};
  wait_for_line("ready");
  request_stop(job_).value();
  agent.join();
  EXPECT_EQ(last().kind, "failed");
  EXPECT_THAT(last().message, HasSubstr("more than the 1 s that there are for it"));
}

TEST_F(DeliveryTest, AFirstStopLetsADeliveryFinish) {
  native("head -c 40000000 /dev/urandom > /opt/ml/model/x");
  write_spec();
  std::thread agent{[&] { run_agent(job_).value(); }};
  wait_for_event("uploading");
  request_stop(job_).value();
  agent.join();
  EXPECT_EQ(last().kind, "completed") << last().message;
  EXPECT_TRUE(store_->head("out", "prefix/job-1/output/model.tar.gz"));
}

TEST_F(AgentTest, AModelThatCannotBeUploadedIsAClientErrorAndKept) {
  spec_.output_s3_uri = "s3://no-such-bucket/x";
  native("echo w > /opt/ml/model/weights");
  const JournalEvent end = run();
  EXPECT_EQ(end.kind, "failed");
  EXPECT_THAT(end.message,
              StartsWith("ClientError: upload of /opt/ml/model to s3://no-such-bucket/"));
  EXPECT_TRUE(fs::exists(job_ / "ml/model/weights"));
}

TEST_F(AgentTest, AFileThatIsMostlyHolesIsRefusedByItsNameSizeAndLimit) {
  for (const int volume : {0, 1}) {
    fs::remove_all(job_);
    make_folders(job_ / "logs").value();
    spec_.volume_gib = volume;
    if (largest_copy(spec_, job_).value().bytes > std::uint64_t{4} << 40) continue;  // a large disk
    spec_.checkpoints = {"s3://data/ckpt", "/opt/ml/checkpoints"};
    native("cd /opt/ml; truncate -s 4T model/x checkpoints/y; echo small > checkpoints/z");
    const JournalEvent end = run();
    EXPECT_EQ(end.kind, "failed");
    EXPECT_THAT(end.message,
                StartsWith("ClientError: '/opt/ml/model/x' has 4398046511104 bytes: "));
    EXPECT_THAT(end.message,
                HasSubstr(volume > 0 ? "VolumeSizeInGB is 1, a limit of 1073741824 bytes"
                                     : "the disk has a size of "));
    EXPECT_THAT(keys("data"), ElementsAre("ckpt/z"));
  }
}

}  // namespace
}  // namespace atelier::agent
