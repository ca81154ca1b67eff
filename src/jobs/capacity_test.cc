#include "jobs/capacity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace atelier::jobs {
namespace {

constexpr compute::HostCapacity kHost{4, 16, 1};

Time at(int seconds) { return from_epoch_milliseconds(1'796'022'000'000 + seconds * 1000); }

// The order of creation is that in which a test first names a job.
Claim claim(const std::string& name, const Share& share, bool spot = false) {
  static std::vector<std::string> names;
  const auto found = std::ranges::find(names, name);
  const auto order = static_cast<std::uint64_t>(found - names.begin());
  if (found == names.end()) names.push_back(name);
  return {name, share, spot, order};
}
Claim spot(const std::string& name, const Share& share) { return claim(name, share, true); }
Claim newcomer(const Share& share) { return {"newcomer", share, false, 0}; }

TEST(Capacity, AShareIsGivenWhileThereIsOne) {
  Capacity capacity{kHost};
  EXPECT_TRUE(capacity.admits(newcomer({2, 8, 0})));
  capacity.hold(claim("a", {2, 8, 0}), at(0));
  EXPECT_TRUE(capacity.admits(newcomer({2, 8, 0})));
  capacity.hold(claim("b", {2, 8, 0}), at(0));
  EXPECT_FALSE(capacity.admits(newcomer({0.5, 1, 0})));
  EXPECT_TRUE(capacity.remove("a"));
  EXPECT_TRUE(capacity.admits(newcomer({2, 8, 1})));
  EXPECT_FALSE(capacity.remove("a"));
}

TEST(Capacity, EachResourceIsALimitOfItsOwn) {
  Capacity capacity{kHost};
  capacity.hold(claim("a", {1, 15, 1}), at(0));
  EXPECT_TRUE(capacity.admits(newcomer({1, 1, 0})));
  EXPECT_FALSE(capacity.admits(newcomer({1, 2, 0})));
  EXPECT_FALSE(capacity.admits(newcomer({1, 1, 1})));
}

TEST(Capacity, ALaterSmallJobDoesNotPassAnEarlierLargeOne) {
  Capacity capacity{kHost};
  capacity.hold(claim("running", {2, 2, 0}), at(0));
  capacity.enqueue(claim("large", {4, 2, 0}));
  EXPECT_FALSE(capacity.admits(newcomer({1, 1, 0}))) << "it would fit, but somebody waits";
  capacity.enqueue(claim("small", {1, 1, 0}));
  EXPECT_EQ(capacity.next(), nullptr);
  capacity.remove("running");
  ASSERT_NE(capacity.next(), nullptr);
  EXPECT_EQ(capacity.next()->name, "large");
}

TEST(Capacity, DecimalSharesAddUp) {
  Capacity capacity{{1, 16, 0}};
  for (const char* name : {"a", "b", "c", "d", "e", "f", "g", "h", "i"}) {
    capacity.hold(claim(name, {0.1, 1, 0}), at(0));
  }
  EXPECT_TRUE(capacity.admits(newcomer({0.1, 1, 0})));
  EXPECT_FALSE(capacity.admits(newcomer({0.2, 1, 0})));
}

TEST(Capacity, AJobLargerThanTheHostHasBecomeRunsAlone) {
  Capacity capacity{{1, 1, 0}};
  capacity.enqueue(claim("from a larger host", {8, 8, 0}));
  ASSERT_NE(capacity.next(), nullptr);
  capacity.hold(claim("from a larger host", {8, 8, 0}), at(0));
  EXPECT_FALSE(capacity.admits(newcomer({0.1, 0.1, 0})));
}

TEST(Capacity, TheReasonSaysWhatIsMissingWhoHasItAndHowManyAreAhead) {
  Capacity capacity{kHost};
  capacity.hold(claim("a", {3, 8, 0}), at(0));
  capacity.hold(claim("b", {1, 4, 0}), at(0));
  EXPECT_EQ(
      capacity.why({2, 2, 0}, 2),
      "Waiting for compute capacity: 2 vCPUs (the host has 4, 4 in use); used by a, b; 2 jobs "
      "ahead in the queue.");
}

std::vector<std::string> going(const Capacity& capacity, int now = 100) {
  std::vector<std::string> names;
  for (const auto& each : capacity.to_interrupt(at(now))) {
    names.push_back(each.victim + " for " + each.wanted_by);
  }
  return names;
}

TEST(Capacity, OnDemandJobsComeBeforeSpotJobsAndEachLineKeepsTheOrderOfCreation) {
  Capacity capacity{kHost};
  capacity.hold(claim("running", {4, 4, 0}), at(0));
  for (const char* name : {"o1 spot", "o2 spot", "o3 spot"}) static_cast<void>(spot(name, {}));
  capacity.enqueue(spot("o2 spot", {1, 1, 0}));
  capacity.enqueue(spot("o3 spot", {1, 1, 0}));
  capacity.enqueue(claim("o4", {1, 1, 0}));
  capacity.enqueue(claim("o5", {1, 1, 0}));
  capacity.enqueue(spot("o1 spot", {1, 1, 0}));  // back from an interruption
  capacity.remove("running");
  for (const char* name : {"o4", "o5", "o1 spot", "o2 spot", "o3 spot"}) {
    ASSERT_NE(capacity.next(), nullptr);
    EXPECT_EQ(capacity.next()->name, name);
    capacity.hold(*capacity.next(), at(1));
    capacity.remove(name);
  }
}

TEST(Capacity, AnOnDemandNewcomerPassesSpotJobsThatWaitAndASpotNewcomerNobody) {
  Capacity capacity{kHost};
  capacity.hold(claim("running", {2, 2, 0}), at(0));
  capacity.enqueue(spot("large spot", {4, 2, 0}));
  EXPECT_TRUE(capacity.admits(claim("small", {1, 1, 0})));
  EXPECT_FALSE(capacity.admits(spot("small spot", {1, 1, 0})));
  EXPECT_EQ(capacity.ahead_of(spot("small spot", {1, 1, 0})), 1u);
  EXPECT_EQ(capacity.ahead_of(claim("small", {1, 1, 0})), 0u);
}

TEST(Capacity, SpotJobsGoForAnOnDemandJobThatWaitsAndOnlyOnce) {
  Capacity capacity{kHost};
  capacity.hold(spot("s1", {2, 2, 0}), at(10));
  capacity.hold(spot("s2", {2, 2, 0}), at(20));
  EXPECT_THAT(going(capacity), ::testing::IsEmpty());
  capacity.enqueue(claim("d1", {1, 1, 0}));
  EXPECT_THAT(going(capacity), ::testing::ElementsAre("s2 for d1")) << "the youngest";
  capacity.leaves("s2");
  EXPECT_THAT(going(capacity), ::testing::IsEmpty());
  capacity.enqueue(claim("d2", {1, 1, 0}));
  EXPECT_THAT(going(capacity), ::testing::IsEmpty()) << "s2 makes room for both";
  capacity.enqueue(claim("d3", {1, 1, 0}));
  EXPECT_THAT(going(capacity), ::testing::ElementsAre("s1 for d3"));
}

TEST(Capacity, NobodyGoesForASpotJobOrWhereItWouldNotHelp) {
  Capacity capacity{kHost};
  capacity.hold(claim("on demand", {3, 2, 0}), at(0));
  capacity.hold(spot("s", {1, 2, 0}), at(0));
  capacity.enqueue(spot("another", {1, 1, 0}));
  EXPECT_THAT(going(capacity), ::testing::IsEmpty());
  capacity.enqueue(claim("large", {2, 1, 0}));
  EXPECT_THAT(going(capacity), ::testing::IsEmpty()) << "one vCPU would still be missing";
  capacity.enqueue(claim("small", {1, 1, 0}));
  EXPECT_THAT(going(capacity), ::testing::IsEmpty()) << "it may not pass the large one";
}

// Ends pools until there is none to end, and gives their names.
std::vector<std::string> ended(Capacity& capacity) {
  std::vector<std::string> names;
  while (const auto pool = capacity.pool_to_end()) {
    names.push_back(*pool);
    capacity.remove(*pool);
    if (names.size() > 9) break;
  }
  return names;
}

TEST(Capacity, AJobThatWaitsTakesTheOldestPoolsThatItNeedsAndNoMore) {
  Capacity capacity{kHost};
  capacity.keep(claim("young", {1, 1, 0}), at(30));
  capacity.keep(claim("old", {1, 1, 0}), at(10));
  capacity.keep(claim("small", {0.5, 1, 0}), at(5));
  capacity.hold(claim("runs", {1, 1, 0}), at(0));
  EXPECT_EQ(capacity.pool_to_end(), std::nullopt) << "nobody waits";
  EXPECT_FALSE(capacity.admits(newcomer({1, 1, 0}))) << "they are in use";
  EXPECT_THAT(capacity.why({1, 1, 0}, 0), ::testing::HasSubstr("the warm pool of young"));
  capacity.enqueue(spot("waits", {1.5, 1, 0}));
  EXPECT_THAT(ended(capacity), ::testing::ElementsAre("old")) << "the small one is not enough";
  EXPECT_NE(capacity.next(), nullptr);
  capacity.enqueue(claim("large", {9, 1, 0}));
  EXPECT_THAT(ended(capacity), ::testing::IsEmpty()) << "it would not help";
}

TEST(Capacity, PoolsGoBeforeSpotJobsAndSpotJobsOnlyForWhatIsStillMissing) {
  Capacity capacity{kHost};
  capacity.keep(claim("pool", {1, 1, 0}), at(10));
  capacity.hold(spot("s1", {1, 1, 0}), at(10));
  capacity.hold(spot("s2", {2, 1, 0}), at(20));
  capacity.enqueue(claim("d1", {1, 1, 0}));
  EXPECT_THAT(ended(capacity), ::testing::ElementsAre("pool"));
  EXPECT_THAT(going(capacity), ::testing::IsEmpty());
  capacity.keep(claim("pool", {1, 1, 0}), at(10));
  capacity.enqueue(claim("d2", {1, 1, 0}));
  EXPECT_THAT(ended(capacity), ::testing::ElementsAre("pool"));
  EXPECT_THAT(going(capacity), ::testing::ElementsAre("s2 for d2"));
}

TEST(Capacity, AJobLargerThanTheHostStartsOncePoolsAreAllThatIsThere) {
  Capacity capacity{kHost};
  capacity.keep(claim("p1", {1, 1, 0}), at(10));
  capacity.keep(claim("p2", {1, 1, 0}), at(20));
  capacity.enqueue(claim("from a larger host", {80, 8, 0}));
  EXPECT_THAT(ended(capacity), ::testing::ElementsAre("p1", "p2"));
  EXPECT_NE(capacity.next(), nullptr);
}

TEST(ChooseVictims, TakesTheFewestAndOfThoseTheLeastWork) {
  using std::chrono::milliseconds;
  const std::vector<Candidate> candidates = {{{1, 1, 0}, milliseconds{1}},
                                             {{1, 1, 0}, milliseconds{2}},
                                             {{2, 1, 0}, milliseconds{90}},
                                             {{2, 1, 0}, milliseconds{80}}};
  EXPECT_THAT(*choose_victims(candidates, {1, 0, 0}), ::testing::ElementsAre(0u));
  EXPECT_THAT(*choose_victims(candidates, {2, 0, 0}), ::testing::ElementsAre(3u));
  EXPECT_THAT(*choose_victims(candidates, {3, 0, 0}), ::testing::ElementsAre(0u, 3u));
  EXPECT_THAT(*choose_victims(candidates, {6, 4, 0}), ::testing::ElementsAre(0u, 1u, 2u, 3u));
  EXPECT_EQ(choose_victims(candidates, {6, 5, 0}), std::nullopt);
  EXPECT_THAT(*choose_victims(candidates, {-1, -1, 0}), ::testing::IsEmpty());
}

}  // namespace
}  // namespace atelier::jobs
