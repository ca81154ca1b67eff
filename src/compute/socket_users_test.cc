#include "compute/socket_users.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"

namespace atelier::compute {
namespace {

class SocketUsers : public ::testing::TestWithParam<int> {
 protected:
  SocketUsers() {
    sockaddr_in6 any{};
    any.sin6_family = AF_INET6;
    any.sin6_addr = IN6ADDR_ANY_INIT;
    listener_ = UniqueFd{socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    EXPECT_EQ(bind(listener_.get(), reinterpret_cast<sockaddr*>(&any), sizeof any), 0);
    EXPECT_EQ(listen(listener_.get(), 8), 0);
    socklen_t size = sizeof any;
    getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&any), &size);
    port_ = any.sin6_port;
  }

  // A connection to the listener; its own address as the server sees it.
  UniqueFd connect_as(int family, std::string& address) {
    UniqueFd fd{socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    if (family == AF_INET) {
      sockaddr_in to{};
      to.sin_family = AF_INET;
      to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      to.sin_port = port_;
      EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
      socklen_t size = sizeof to;
      getsockname(fd.get(), reinterpret_cast<sockaddr*>(&to), &size);
      address = fmt::format("127.0.0.1:{}", ntohs(to.sin_port));
      return fd;
    }
    sockaddr_in6 to{};
    to.sin6_family = AF_INET6;
    to.sin6_addr.s6_addr[10] = to.sin6_addr.s6_addr[11] = 0xff;  // ::ffff:127.0.0.1
    to.sin6_addr.s6_addr[12] = 127;
    to.sin6_addr.s6_addr[15] = 1;
    to.sin6_port = port_;
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
    socklen_t size = sizeof to;
    getsockname(fd.get(), reinterpret_cast<sockaddr*>(&to), &size);
    address = fmt::format("127.0.0.1:{}", ntohs(to.sin6_port));
    return fd;
  }

  UniqueFd listener_;
  in_port_t port_ = 0;
};

TEST_P(SocketUsers, AreThoseOfTheOtherEnd) {
  std::string address;
  {
    const UniqueFd mine = connect_as(GetParam(), address);
    EXPECT_EQ(users_of_socket(address).value(), std::vector<uid_t>{geteuid()});
  }
  if (geteuid() != 0) return;
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    if (setuid(2'000'000'123) != 0) _exit(1);
    std::string theirs;
    const UniqueFd fd = connect_as(GetParam(), theirs);
    theirs += '\n';
    if (write(ready[1], theirs.data(), theirs.size()) < 0) _exit(1);
    pause();
  }
  char text[64]{};
  ASSERT_GT(read(ready[0], text, sizeof text - 1), 0);
  const std::string theirs{text, std::string_view{text}.find('\n')};
  EXPECT_EQ(users_of_socket(theirs).value(), std::vector<uid_t>{2'000'000'123});
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(ready[0]);
  close(ready[1]);
}

INSTANTIATE_TEST_SUITE_P(OfBothVersions, SocketUsers, ::testing::Values(AF_INET, AF_INET6));

TEST_P(SocketUsers, AListenerIsNobodyAndAWrongAddressIsRefused) {
  EXPECT_TRUE(users_of_socket(fmt::format("127.0.0.1:{}", ntohs(port_)))->empty());
  for (const char* wrong : {"", "127.0.0.1", "127.0.0.1:", "127.0.0.1:99999", "host:1", "[::1:1"}) {
    EXPECT_FALSE(users_of_socket(wrong)) << wrong;
  }
}

}  // namespace
}  // namespace atelier::compute
