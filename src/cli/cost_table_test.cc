#include "cli/cost_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"

namespace atelier::cli {
namespace {

json::object job(const std::string& name, double created, double cost, const std::string& team) {
  json::object out{{"TrainingJobName", name},
                   {"CreationTime", created},
                   {"InstanceCount", 2},
                   {"TrainingTimeInSeconds", 100},
                   {"BillableTimeInSeconds", 40},
                   {"ResourceRetainedBillableTimeInSeconds", 7},
                   {"Currency", "USD"},
                   {"Cost", cost},
                   {"Saved", 1.5},
                   {"Elsewhere", json::array{json::object{{"PriceList", "cloud"},
                                                          {"PriceDate", "2026-11-30"},
                                                          {"Currency", "USD"},
                                                          {"Cost", 10}}}}};
  if (!team.empty()) out["Tags"] = json::array{json::object{{"Key", "team"}, {"Value", team}}};
  return out;
}

const json::array kJobs = {job("a", 1796022000, 1, "red"), job("b", 1796022001, 2, "blue"),
                           job("c", 1796122000, 4, "red"), job("d", 1796122000, 8, "")};

TEST(CostTable, SumsByJobDayAndTag) {
  EXPECT_EQ(group_costs(kJobs, "job").size(), 4u);
  const auto days = group_costs(kJobs, "day");
  ASSERT_EQ(days.size(), 2u);
  EXPECT_EQ(days[0].key, "2026-11-30");
  EXPECT_EQ(days[0].cost, 3);
  EXPECT_EQ(days[0].training_seconds, 400) << "of both instances of two jobs";
  EXPECT_EQ(days[0].retained_seconds, 28);
  EXPECT_EQ(days[0].saved, 3);
  EXPECT_EQ(days[0].elsewhere, 20);
  EXPECT_EQ(days[0].elsewhere_list, "cloud (2026-11-30), USD");
  const auto tags = group_costs(kJobs, "tag:team");
  ASSERT_EQ(tags.size(), 3u);
  EXPECT_EQ(tags[0].key, "(without the tag)");
  EXPECT_EQ(tags[2].key, "red");
  EXPECT_EQ(tags[2].cost, 5);
}

TEST(CostTable, NothingIsSummedThatDoesNotCompare) {
  json::array jobs = {kJobs[0], kJobs[0]};
  jobs[1].get_object().erase("Elsewhere");
  EXPECT_EQ(group_costs(jobs, "day").front().elsewhere_list, "");
  jobs[1].get_object()["Currency"] = "EUR";
  EXPECT_EQ(group_costs(jobs, "day").size(), 2u);
  EXPECT_TRUE(group_costs({}, "day").empty());
}

TEST(CostTable, WhatItIsGroupedByAndSinceWhenIsCheckedByName) {
  EXPECT_TRUE(check_grouping("tag:team"));
  for (const char* by : {"", "tag:", "week"}) EXPECT_FALSE(check_grouping(by)) << by;
  const Time now = from_epoch_seconds(1796022000);
  EXPECT_EQ(*parse_since("7d", now), now - std::chrono::days{7});
  EXPECT_EQ(*parse_since("30m", now), now - std::chrono::minutes{30});
  EXPECT_EQ(format_iso8601(*parse_since("2026-11-29", now)), "2026-11-29T00:00:00Z");
  EXPECT_EQ(format_iso8601(*parse_since("2026-11-29T08:00:00Z", now)), "2026-11-29T08:00:00Z");
  for (const char* text : {"", "7", "d", "-7d", "7w", "2026-13-40", "999999999999d"}) {
    EXPECT_FALSE(parse_since(text, now)) << text;
  }
}

}  // namespace
}  // namespace atelier::cli
