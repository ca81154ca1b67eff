#include "agent/spec.h"

#include <gtest/gtest.h>

namespace atelier::agent {
namespace {

AgentSpec full_spec() {
  AgentSpec spec;
  spec.job_name = "job-1";
  spec.job_arn = "arn:aws:sagemaker:us-west-2:000000000000:training-job/job-1";
  spec.region = "us-west-2";
  spec.s3.url = "http://127.0.0.1:1";
  spec.s3.credentials = {"AK", "SK", "TOKEN"};
  spec.credentials_uri = "http://127.0.0.1:1/keys";
  spec.credentials_ticket = "ticket";
  spec.runtime.kind = compute::RuntimeKind::kBuiltIn;
  spec.runtime.name = "image-classification";
  spec.runtime.program = {"/bin/true", "train"};
  spec.runtime.folders = {"/opt/torch"};
  spec.container_arguments = {"a b"};
  spec.hyperparameters = {{"lr", "0.1"}, {"opt", "\"adam\""}};
  spec.environment = {{"KEY", "value=with=equals"}};
  spec.channels = {{.name = "train", .s3_uri = "s3://b/p", .content_type = "image/jpeg"}};
  spec.metrics = {{"loss", "loss: ([0-9\\.]+)"}};
  spec.instance_type = "ml.m5.xlarge";
  spec.vcpus = 1.5;
  spec.memory_gib = 4;
  spec.gpus = 2;
  spec.device_folder = "/other/dev";
  spec.gpu_folder = "/data/jobs/.gpus";
  spec.instances = {{.host = "algo-1", .gpus = 2}, {.host = "algo-2", .gpus = 1}};
  spec.network_isolation = true;
  spec.host_network = true;
  spec.output_s3_uri = "s3://out/x";
  spec.compress_output = false;
  spec.max_runtime = std::chrono::seconds{77};
  spec.stop_grace = std::chrono::seconds{3};
  spec.packing_time = std::chrono::seconds{17};
  spec.log_stream = "job-1/algo-1-1";
  spec.warm_pool = "/data/warm/job-0.f00d";
  return spec;
}

TEST(AgentSpec, ComesBackFromJsonAsItWas) {
  const AgentSpec spec = full_spec();
  const AgentSpec parsed = parse_agent_spec(to_json(spec)).value();
  EXPECT_EQ(to_json(parsed), to_json(spec));
  EXPECT_EQ(parsed.s3.credentials.session_token, "TOKEN");
  EXPECT_EQ(parsed.credentials_uri, "http://127.0.0.1:1/keys");
  EXPECT_EQ(parsed.credentials_ticket, "ticket");
  EXPECT_EQ(parsed.channels[0].content_type, "image/jpeg");
  EXPECT_EQ(parsed.gpus, 2);
  EXPECT_EQ(parsed.instances[1].gpus, 1);
  EXPECT_EQ(parsed.device_folder, "/other/dev");
  EXPECT_EQ(parsed.gpu_folder, "/data/jobs/.gpus");
  EXPECT_EQ(parsed.max_runtime, std::chrono::seconds{77});
  EXPECT_EQ(parsed.runtime.folders[0], "/opt/torch");
  EXPECT_EQ(parsed.warm_pool, "/data/warm/job-0.f00d");
}

TEST(AgentSpec, ARefusalNamesTheMember) {
  const auto refused = [](std::string_view from, std::string_view to) {
    std::string text = to_json(full_spec());
    text.replace(text.find(from), from.size(), to);
    return parse_agent_spec(text).error().message;
  };
  EXPECT_EQ(refused("\"vcpus\":1.5E0", "\"vcpus\":\"two\""),
            "spec.vcpus has to be a number that is not negative");
  EXPECT_EQ(refused("\"gpus\":1", "\"gpus\":1.5"),
            "spec.instances.gpus has to be a whole number, 1024 at most");
  EXPECT_EQ(refused("\"kind\":\"built-in\"", "\"kind\":\"magic\""),
            "spec.runtime.kind has to be script or built-in");
  EXPECT_EQ(refused("\"job_name\":\"job-1\"", "\"job_name\":\"../x\""),
            "spec.job_name has to be a name without '/'");
  for (const char* path : {"warm/x", "/data/warm/", "/data/warm/.."}) {
    EXPECT_EQ(refused("/data/warm/job-0.f00d", path),
              "spec.warm_pool has to be an absolute path that ends with the pool's name");
  }
  EXPECT_EQ(refused("\"max_runtime_seconds\":77", "\"max_runtime_seconds\":-1"),
            "spec.max_runtime_seconds has to be seconds from 0 to 34560000");
  EXPECT_EQ(parse_agent_spec("{}").error().message, "spec.job_name has to be given");
  EXPECT_EQ(parse_agent_spec("[]").error().message, "spec. has to be an object");
}

}  // namespace
}  // namespace atelier::agent
