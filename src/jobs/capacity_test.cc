#include "jobs/capacity.h"

#include <gtest/gtest.h>

namespace atelier::jobs {
namespace {

constexpr compute::HostCapacity kHost{4, 16, 1};

TEST(Capacity, AShareIsGivenWhileThereIsOne) {
  Capacity capacity{kHost};
  EXPECT_TRUE(capacity.admits({2, 8, 0}));
  capacity.hold("a", {2, 8, 0});
  EXPECT_TRUE(capacity.admits({2, 8, 0}));
  capacity.hold("b", {2, 8, 0});
  EXPECT_FALSE(capacity.admits({0.5, 1, 0}));
  EXPECT_TRUE(capacity.remove("a"));
  EXPECT_TRUE(capacity.admits({2, 8, 1}));
  EXPECT_FALSE(capacity.remove("a"));
}

TEST(Capacity, EachResourceIsALimitOfItsOwn) {
  Capacity capacity{kHost};
  capacity.hold("a", {1, 15, 1});
  EXPECT_TRUE(capacity.admits({1, 1, 0}));
  EXPECT_FALSE(capacity.admits({1, 2, 0}));
  EXPECT_FALSE(capacity.admits({1, 1, 1}));
}

TEST(Capacity, ALaterSmallJobDoesNotPassAnEarlierLargeOne) {
  Capacity capacity{kHost};
  capacity.hold("running", {2, 2, 0});
  capacity.enqueue("large", {4, 2, 0});
  EXPECT_FALSE(capacity.admits({1, 1, 0})) << "it would fit, but somebody waits";
  capacity.enqueue("small", {1, 1, 0});
  EXPECT_EQ(capacity.next(), nullptr);
  capacity.remove("running");
  ASSERT_NE(capacity.next(), nullptr);
  EXPECT_EQ(*capacity.next(), "large");
}

TEST(Capacity, DecimalSharesAddUp) {
  Capacity capacity{{1, 16, 0}};
  for (const char* name : {"a", "b", "c", "d", "e", "f", "g", "h", "i"}) {
    capacity.hold(name, {0.1, 1, 0});
  }
  EXPECT_TRUE(capacity.admits({0.1, 1, 0}));
  EXPECT_FALSE(capacity.admits({0.2, 1, 0}));
}

TEST(Capacity, AJobLargerThanTheHostHasBecomeRunsAlone) {
  Capacity capacity{{1, 1, 0}};
  capacity.enqueue("from a larger host", {8, 8, 0});
  ASSERT_NE(capacity.next(), nullptr);
  capacity.hold("from a larger host", {8, 8, 0});
  EXPECT_FALSE(capacity.admits({0.1, 0.1, 0}));
}

TEST(Capacity, TheReasonSaysWhatIsMissingWhoHasItAndHowManyAreAhead) {
  Capacity capacity{kHost};
  capacity.hold("a", {3, 8, 0});
  capacity.hold("b", {1, 4, 0});
  EXPECT_EQ(
      capacity.why({2, 2, 0}, 2),
      "Waiting for compute capacity: 2 vCPUs (the host has 4, 4 in use); used by a, b; 2 jobs "
      "ahead in the queue.");
}

}  // namespace
}  // namespace atelier::jobs
