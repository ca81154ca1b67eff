#include "cli/descriptors.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>

namespace atelier::cli {
namespace {

TEST(Descriptors, AreRaisedToWhatTheServerNeedsAndNoFurther) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit low{std::min<rlim_t>(64, before.rlim_max), before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  EXPECT_EQ(raise_descriptor_limit(), std::min<rlim_t>(before.rlim_max, 16'384));
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST(Descriptors, ConnectionsLeaveSomeForTheKeys) {
  for (const bool tls : {false, true}) {
    EXPECT_EQ(connections_for(16'384, tls), 2048u);
    EXPECT_LE(connections_for(1024, tls) * (tls ? 6 : 2), 1024u - 256u);
    EXPECT_GE(connections_for(1024, tls), 128u);
    EXPECT_EQ(connections_for(64, tls), 8u);
  }
}

}  // namespace
}  // namespace atelier::cli
