#include "compute/outward_network.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "base/file.h"
#include "compute/sandbox.h"

namespace atelier::compute {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// A server on the host's loopback that answers each connection with the same word.
class Listener {
 public:
  explicit Listener(int type = SOCK_STREAM) : fd_(socket(AF_INET, type | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
    if (type != SOCK_STREAM) return;
    EXPECT_EQ(listen(fd_.get(), 64), 0);
    thread_ = std::thread{[this] {
      for (int one; (one = accept(fd_.get(), nullptr, nullptr)) >= 0;) {
        EXPECT_EQ(write(one, "host\n", 5), 5);
        close(one);
      }
    }};
  }
  ~Listener() {
    shutdown(fd_.get(), SHUT_RDWR);
    if (thread_.joinable()) thread_.join();
  }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  [[nodiscard]] std::uint16_t port() const { return port_; }
  [[nodiscard]] int fd() const { return fd_.get(); }

 private:
  UniqueFd fd_;
  std::uint16_t port_ = 0;
  std::thread thread_;
};

// The processes of the host whose command line has the word.
std::vector<pid_t> processes_with(const std::string& word) {
  std::vector<pid_t> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const Result<std::string> line = read_file(entry.path() / "cmdline", 65536);
    if (line && line->find(word) != std::string::npos) {
      found.push_back(std::atoi(entry.path().filename().c_str()));
    }
  }
  return found;
}

class OutwardNetworkTest : public testing::Test {
 protected:
  OutwardNetworkTest() {
    spec_.name = "outward-test";
    spec_.ml_folder = folder_.path() / "ml";
    make_folders(spec_.ml_folder).value();
    const Identity identity = program_identity(spec_.name);
    EXPECT_EQ(chown(spec_.ml_folder.c_str(), identity.uid, identity.gid), 0);
    spec_.environment = {{"PATH", "/usr/bin:/bin"}};
  }
  void SetUp() override {
    Result<OutwardNetwork> probe = OutwardNetwork::begin({.identity = "outward-test.network"});
    const Result<SharedNetwork> ready = probe ? probe->ready() : probe.error();
    if (!ready)
      GTEST_SKIP() << "this host gives jobs no network of their own: " << ready.error().message;
  }
  // What a program in the network prints.
  std::string run(const SharedNetwork& network, const std::string& python) {
    spec_.network = &network;
    spec_.argv = {"/usr/bin/python3", "-c", python};
    int fds[2];
    EXPECT_EQ(pipe2(fds, O_CLOEXEC), 0);
    const UniqueFd read_end{fds[0]};
    UniqueFd write_end{fds[1]};
    spec_.output_fd = write_end.get();
    Sandbox sandbox = Sandbox::start(spec_).value();
    write_end.reset();
    std::string output;
    char buffer[4096];
    for (ssize_t got; (got = read(read_end.get(), buffer, sizeof buffer)) > 0;) {
      output.append(buffer, static_cast<std::size_t>(got));
    }
    EXPECT_TRUE(sandbox.wait());
    return output;
  }
  static std::string get(std::uint16_t port) {
    return fmt::format(
        "import socket\n"
        "try:\n"
        "    s = socket.create_connection(('127.0.0.1', {}), 20)\n"
        "    print(s.recv(9).decode().strip() or 'closed', flush=True)\n"
        "except OSError as error:\n"
        "    print(type(error).__name__)\n",
        port);
  }

  TempFolder folder_ = TempFolder::create().value();
  SandboxSpec spec_;
};

TEST_F(OutwardNetworkTest, ReachesThePortsThatAreNamedAndNoOtherOfTheHostsLoopback) {
  const Listener named, other;
  OutwardNetwork outward =
      OutwardNetwork::begin({.identity = "outward-test.network", .host_ports = {named.port()}})
          .value();
  const SharedNetwork network = outward.ready().value();
  EXPECT_EQ(run(network, get(named.port())), "host\n");
  EXPECT_EQ(run(network, get(other.port())), "ConnectionRefusedError\n");
  // The control: the host itself reaches it.
  const UniqueFd reach{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(other.port());
  EXPECT_EQ(connect(reach.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
}

TEST_F(OutwardNetworkTest, APacketForALoopbackAddressDoesNotLeaveByAnotherInterface) {
  const Listener datagrams{SOCK_DGRAM};
  OutwardNetwork outward = OutwardNetwork::begin({.identity = "outward-test.network"}).value();
  const SharedNetwork network = outward.ready().value();
  // The kernel hands them to the network's own loopback, whichever way the interface is named.
  const std::string got = run(network, fmt::format(R"(
import socket, struct
index = socket.if_nametoindex('eth0')
for family, address in ((socket.AF_INET, '127.0.0.1'), (socket.AF_INET, '127.0.0.2'), (socket.AF_INET6, '::1')):
    own = socket.socket(family, socket.SOCK_DGRAM)
    own.bind((address, {0}))
    own.settimeout(20)
    bound = socket.socket(family, socket.SOCK_DGRAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b'eth0')
    bound.sendto(b'bound', (address, {0}))
    print(own.recv(99).decode())
    told = socket.socket(family, socket.SOCK_DGRAM)
    if family == socket.AF_INET:
        info = (socket.IPPROTO_IP, 8, struct.pack('=iII', index, 0, 0))
    else:
        info = (socket.IPPROTO_IPV6, socket.IPV6_PKTINFO, struct.pack('=16sI', b'', index))
    told.sendmsg([b'told'], [info], 0, (address, {0}))
    print(own.recv(99).decode())
)",
                                                   datagrams.port()));
  EXPECT_EQ(got, "bound\ntold\nbound\ntold\nbound\ntold\n");
  char byte = 0;
  EXPECT_EQ(recv(datagrams.fd(), &byte, 1, MSG_DONTWAIT), -1);
}

TEST_F(OutwardNetworkTest, ProgramsHaveNoRightsOverIt) {
  OutwardNetwork outward = OutwardNetwork::begin({.identity = "outward-test.network"}).value();
  const SharedNetwork network = outward.ready().value();
  EXPECT_EQ(run(network, R"(
import socket
for kind in (lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW),
             lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP)):
    try: kind(); print('made')
    except PermissionError: print('refused')
print([line.split()[1] for line in open('/proc/self/status') if line.startswith('CapEff')][0].strip('0') or 'none')
)"),
            "refused\nrefused\nnone\n");
}

TEST_F(OutwardNetworkTest, NothingIsLeftOfItWhenItEndsOrItsMakerIsKilled) {
  const Listener named;
  const std::string word = std::to_string(named.port());
  {
    OutwardNetwork outward =
        OutwardNetwork::begin({.identity = "outward-test.network", .host_ports = {named.port()}})
            .value();
    outward.ready().value();
    EXPECT_THAT(processes_with("-T" + std::string(1, '\0') + word), testing::SizeIs(1));
  }
  int fds[2];
  ASSERT_EQ(pipe2(fds, O_CLOEXEC), 0);
  const pid_t maker = fork();
  if (maker == 0) {
    Result<OutwardNetwork> outward =
        OutwardNetwork::begin({.identity = "outward-test.network", .host_ports = {named.port()}});
    const bool made = outward && outward->ready();
    if (write(fds[1], made ? "1" : "0", 1) != 1) _exit(1);
    while (true) pause();
  }
  char made = 0;
  ASSERT_EQ(read(fds[0], &made, 1), 1);
  EXPECT_EQ(made, '1');
  kill(maker, SIGKILL);
  waitpid(maker, nullptr, 0);
  // The kernel ends them one after the other.
  for (int i = 0; i < 1000 && !processes_with("-T" + std::string(1, '\0') + word).empty(); ++i) {
    usleep(10'000);
  }
  EXPECT_THAT(processes_with("-T" + std::string(1, '\0') + word), IsEmpty());
}

TEST_F(OutwardNetworkTest, ThatPastaHasEndedIsSeen) {
  const Listener named;
  OutwardNetwork outward =
      OutwardNetwork::begin({.identity = "outward-test.network", .host_ports = {named.port()}})
          .value();
  outward.ready().value();
  pollfd end{outward.end_fd(), POLLIN, 0};
  EXPECT_EQ(poll(&end, 1, 0), 0);
  for (const pid_t pid :
       processes_with("-T" + std::string(1, '\0') + std::to_string(named.port()))) {
    kill(pid, SIGKILL);
  }
  EXPECT_EQ(poll(&end, 1, 20'000), 1);
}

TEST(LoopbackPorts, AreThoseOfAddressesOnLoopback) {
  EXPECT_THAT(loopback_ports("[global]\nindex-url = http://u:p@127.0.0.1:8081/simple\n"
                             "extra-index-url = https://localhost/x http://[::1]:90,\n"
                             "proxy = http://10.0.0.1:3128 http://127.0.0.1.example:7 "
                             "http://127.0.0.1:70000 http://127.0.0.2:5"),
              ElementsAre(90, 443, 8081));
  EXPECT_THAT(loopback_ports("127.0.0.1:80"), IsEmpty());
  EXPECT_TRUE(is_forwarded_loopback("http://127.0.0.1:8089"));
  EXPECT_FALSE(is_forwarded_loopback("http://127.0.0.2:8089"));
  EXPECT_FALSE(is_forwarded_loopback("http://server:8089"));
}

TEST(ResolvConf, NamesAForwardedResolverForThoseOfTheHostsLoopback) {
  EXPECT_EQ(outward_resolv_conf("nameserver 127.0.0.53\nnameserver ::1\noptions edns0\n"),
            "nameserver 169.254.1.53\noptions edns0\n");
  const std::string plain = "search a.example\nnameserver\t10.0.0.1\n# nameserver 127.0.0.1\nlast";
  EXPECT_EQ(outward_resolv_conf(plain), plain);
}

}  // namespace
}  // namespace atelier::compute
