// Atelier's own operations, through the front door.
#include <gtest/gtest.h>

#include "api/internal/fake_parts.h"

namespace atelier::api {
namespace {

class CostsTest : public ::testing::Test {
 protected:
  CostsTest() {
    jobs::TrainingJob job = jobs::new_training_job("job-1", world_.clock.now());
    job.request_json = R"({"Tags":[{"Key":"team","Value":"search"}]})";
    job.started = job.created;
    job.attempts.trained = std::chrono::seconds{1000};
    job.attempts.interruptions = 2;
    job.attempts.number = 3;
    job.terms.spot = true;
    job.terms.instance_type = "ml.m5.xlarge";
    job.terms.price_per_hour = 3.6;
    job.terms.spot_price_per_hour = 0.9;
    job.terms.currency = "EUR";
    world_.jobs.by_name["job-1"] = job;
  }
  http::Response call(std::string_view operation, std::string_view body) const {
    return world_.call(operation, body, "Atelier", "atelier");
  }
  internal::FakeWorld world_;
};

TEST_F(CostsTest, AJobsCostIsToldWithItsSavingAndWhatItWouldBeElsewhere) {
  const json::value reply =
      internal::json_of(call("DescribeTrainingJobCost", R"({"TrainingJobName":"job-1"})"));
  EXPECT_EQ(reply.at("TrainingTimeInSeconds"), 1000);
  EXPECT_EQ(reply.at("BillableTimeInSeconds"), 250);
  EXPECT_DOUBLE_EQ(reply.at("Cost").to_number<double>(), 0.25);
  EXPECT_DOUBLE_EQ(reply.at("Saved").to_number<double>(), 0.75);
  EXPECT_EQ(reply.at("Currency"), "EUR");
  EXPECT_EQ(reply.at("Interruptions"), 2);
  EXPECT_EQ(reply.at("Elsewhere").at(0).at("PriceDate"), "2026-11-30");
  EXPECT_DOUBLE_EQ(reply.at("Elsewhere").at(0).at("Cost").to_number<double>(), 10);
  EXPECT_EQ(reply.at("Tags").at(0).at("Value"), "search");
}

TEST_F(CostsTest, CostsAreListedByTime) {
  world_.jobs.list_token = "more";
  const json::value reply = internal::json_of(
      call("ListTrainingJobCosts", R"({"CreationTimeAfter":1796000000,"MaxResults":7})"));
  EXPECT_EQ(reply.at("TrainingJobCosts").as_array().size(), 1u);
  EXPECT_EQ(reply.at("NextToken"), "more");
  EXPECT_EQ(world_.jobs.last_list.max_results, 7u);
  EXPECT_EQ(world_.jobs.last_list.created_after, from_epoch_seconds(1796000000));
  EXPECT_EQ(call("ListTrainingJobCosts", R"({"MaxResults":101})").status, 400);
}

TEST_F(CostsTest, AnInterruptionIsPassedOnWithItsReasonAndRefusedInWords) {
  EXPECT_EQ(
      call("InterruptTrainingJob", R"({"TrainingJobName":"job-1","Reason":"a drill"})").status,
      200);
  EXPECT_EQ(world_.jobs.last_interruption, "a drill");
  world_.jobs.by_name["job-1"].terms.spot = false;
  const http::Response refused = call("InterruptTrainingJob", R"({"TrainingJobName":"job-1"})");
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(internal::body_of(refused).find("job-1 is not spot"), std::string::npos);
  EXPECT_NE(internal::body_of(call("InterruptTrainingJob", R"({"TrainingJobName":"nobody"})"))
                .find("not found"),
            std::string::npos);
  EXPECT_EQ(call("InterruptTrainingJob", "{}").status, 400);
}

TEST_F(CostsTest, OurOwnServiceIsSignedForAsSuch) {
  const http::Response wrong = world_.call("InterruptTrainingJob", "{}", "Atelier", "sagemaker");
  EXPECT_EQ(wrong.status, 403);
}

}  // namespace
}  // namespace atelier::api
