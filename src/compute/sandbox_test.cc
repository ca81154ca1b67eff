#include "compute/sandbox.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "base/file.h"
#include "compute/internal/cgroup.h"
#include "compute/internal/landlock.h"

namespace atelier::compute {
namespace {

namespace fs = std::filesystem;

struct Outcome {
  SandboxExit exit;
  std::string output;
};

class SandboxTest : public testing::Test {
 protected:
  SandboxTest() {
    spec_.name = "sandbox-test";
    spec_.ml_folder = folder_.path() / "ml";
    make_folders(spec_.ml_folder).value();
    const Identity identity = program_identity(spec_.name);
    EXPECT_EQ(chown(spec_.ml_folder.c_str(), identity.uid, identity.gid), 0);
    spec_.environment = {{"PATH", "/usr/bin:/bin"}, {"GREETING", "hello world"}};
  }
  void shell(const std::string& script) { spec_.argv = {"/bin/sh", "-c", script}; }

  // Starts the program with a pipe for its output.
  Sandbox start() {
    int fds[2];
    EXPECT_EQ(pipe2(fds, O_CLOEXEC), 0);
    read_end_ = UniqueFd{fds[0]};
    const UniqueFd write_end{fds[1]};
    spec_.output_fd = write_end.get();
    return Sandbox::start(spec_).value();
  }
  std::string read_line() {
    std::string line;
    for (char c = 0; read(read_end_.get(), &c, 1) == 1 && c != '\n';) line += c;
    return line;
  }
  Outcome finish(Sandbox sandbox) {
    Outcome outcome;
    char buffer[4096];
    for (ssize_t got; (got = read(read_end_.get(), buffer, sizeof buffer)) > 0;) {
      outcome.output.append(buffer, static_cast<std::size_t>(got));
    }
    Result<SandboxExit> exit = sandbox.wait();
    EXPECT_TRUE(exit) << (exit ? "" : exit.error().message) << outcome.output;
    if (exit) outcome.exit = *exit;
    return outcome;
  }
  Outcome run(const std::string& script) {
    shell(script);
    return finish(start());
  }

  TempFolder folder_ = TempFolder::create().value();
  SandboxSpec spec_;
  UniqueFd read_end_;
};

TEST_F(SandboxTest, AProgramRunsWithItsEnvironmentAndNothingElse) {
  const Outcome outcome = run("env | sort; pwd; hostname; id -un");
  EXPECT_EQ(outcome.output,
            "GREETING=hello world\nPATH=/usr/bin:/bin\nPWD=/opt/ml\n/opt/ml\nalgo-1\natelier\n");
  EXPECT_EQ(outcome.exit.code, 0);
}

// Variables may name libraries of the job's own, for programs of the job's own user.
TEST_F(SandboxTest, NoVariableReachesAProgramWithMoreRightsThanTheJobs) {
  // The folder of libraries that bubblewrap would write into, as the host knows it and as the job
  // does.
  const fs::path inside = spec_.ml_folder / "libraries";
  make_folders(inside).value();
  const fs::path source = folder_.path() / "evil.c";
  std::ofstream{source} << R"(
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
__attribute__((constructor)) static void run(void) {
  char name[256] = "?";
  const int fd = open("/proc/self/comm", O_RDONLY);
  const long got = read(fd, name, sizeof name - 1);
  name[got > 0 ? got - 1 : 0] = 0;
  dprintf(2, "loaded by %s as %d\n", name, (int)getuid());
})";
  const fs::path library = inside / "libevil.so";
  ASSERT_EQ(
      std::system(("cc -shared -fPIC -o " + library.string() + " " + source.string()).c_str()), 0);
  const std::string as_job = "/opt/ml/libraries/libevil.so";
  for (const std::string& path : {library.string(), as_job}) {
    for (const char* name : {"LD_PRELOAD", "LD_AUDIT"}) {
      spec_.environment = {{"PATH", "/usr/bin:/bin"}, {name, path}};
      const std::string output = run("/bin/true; id -u").output;
      const std::string uid = std::to_string(program_identity(spec_.name).uid);
      EXPECT_THAT(output, testing::EndsWith(uid + "\n"));
      EXPECT_THAT(output,
                  testing::Not(testing::ContainsRegex("loaded by (bwrap|setpriv|sandbox_entry)")));
      if (geteuid() == 0) {
        EXPECT_THAT(output, testing::Not(testing::HasSubstr("as 0")));
      }
      // It is the job's own business to load it into its own programs.
      const bool found = path == as_job && std::string_view(name) == "LD_PRELOAD";
      if (found) {
        EXPECT_THAT(output, testing::HasSubstr("loaded by sh as " + uid));
      }
    }
  }
  // Files that the loader writes are written by the job's user, where it may.
  const fs::path trace = folder_.path() / "trace";
  spec_.environment = {
      {"PATH", "/usr/bin:/bin"}, {"LD_DEBUG", "all"}, {"LD_DEBUG_OUTPUT", trace.string()}};
  run("/bin/true");
  for (const auto& entry : fs::directory_iterator(folder_.path())) {
    EXPECT_FALSE(entry.path().filename().string().starts_with("trace")) << entry.path();
  }
}

TEST_F(SandboxTest, VariablesOfAnyBytesArriveAndDescriptorsDoNot) {
  spec_.environment["ODD"] = "a=b\nc \xff \"quoted\"";
  spec_.environment["EMPTY"] = "";
  const Outcome outcome =
      run("printf '%s|%s|' \"$ODD\" \"${EMPTY-none}\"; ls /proc/self/fd | tr '\\n' ' '");
  EXPECT_EQ(outcome.output, "a=b\nc \xff \"quoted\"||0 1 2 3 ");  // 3 is the folder that ls reads
}

TEST_F(SandboxTest, AProgramThatIsNotThereSaysSo) {
  spec_.argv = {"/opt/ml/none"};
  const Outcome outcome = finish(start());
  EXPECT_EQ(outcome.exit.code, 127);
  EXPECT_THAT(outcome.output, testing::HasSubstr("/opt/ml/none: No such file or directory"));
}

TEST_F(SandboxTest, ExitCodeAndSignalComeBack) {
  EXPECT_EQ(run("exit 3").exit.code, 3);
  const Outcome outcome = run("kill -SEGV $$");
  EXPECT_EQ(outcome.exit.signal, SIGSEGV);
  EXPECT_EQ(outcome.exit.code, 0);
}

TEST_F(SandboxTest, OptMlIsTheJobsFolderAndWritable) {
  run("echo result > /opt/ml/file");
  EXPECT_EQ(read_file(spec_.ml_folder / "file").value(), "result\n");
}

TEST_F(SandboxTest, TheSystemIsReadOnly) {
  EXPECT_NE(run("touch /usr/x").exit.code, 0);
  EXPECT_NE(run("touch /etc/x").exit.code, 0);
  EXPECT_NE(run("echo x >> /etc/hosts").exit.code, 0);
  EXPECT_NE(run("touch /x").exit.code, 0);
  EXPECT_EQ(run("touch /tmp/x /dev/shm/x /var/tmp/y").exit.code, 0);
}

TEST(Cgroups, ThatAKilledAgentLeftAreRemovedByNameAndOthersStay) {
  const TempFolder folder = TempFolder::create().value();
  const std::filesystem::path root = folder.path() / "unified";
  const auto group = [&](const std::string& name) {
    make_folders(root / name).value();
    return root / name;
  };
  const auto left = group("atelier-job-0123abcd");
  const auto another = group("atelier-job-0123abcd-0123abcd");
  const auto alive = group("atelier-job-ffffffff");
  std::ofstream{alive / "cgroup.procs"} << "1\n";
  std::ofstream{folder.path() / "mountinfo"} << "1 1 0:1 / " << root.string()
                                             << " rw - cgroup2 x rw\n";
  std::ofstream{folder.path() / "own"} << "0::/\n";
  const internal::CgroupPlaces places{folder.path() / "mountinfo", folder.path() / "own"};
  group("somebody-elses-0123abcd");
  EXPECT_THAT(internal::names_of_left_cgroups(std::chrono::seconds{0}, places),
              ::testing::ElementsAre("job", "job-0123abcd"));
  EXPECT_THAT(internal::names_of_left_cgroups(std::chrono::seconds{60}, places),
              ::testing::IsEmpty())
      << "a program may be about to start in it";
  internal::remove_left_cgroups("job", {}, places);
  EXPECT_FALSE(std::filesystem::exists(left));
  EXPECT_TRUE(std::filesystem::exists(another));
  EXPECT_TRUE(std::filesystem::exists(alive));
}

// bubblewrap's inner process waits for its outer one, which was killed with the agent.
TEST(Cgroups, ABubblewrapThatWasKilledWhileItStartedIsEndedByItsFolderAndNobodyElseIs) {
  const TempFolder folder = TempFolder::create().value();
  const std::filesystem::path root = folder.path() / "unified";
  make_folders(root / "atelier-job-0123abcd").value();
  const auto start = [](const std::string& bound) {
    const pid_t pid = fork();
    if (pid == 0) {
      execl("/bin/sh", "sh", "-c", "kill -STOP $$", "--bind", bound.c_str(), nullptr);
      _exit(127);
    }
    // Its command line is there once it is that program.
    while (read_file("/proc/" + std::to_string(pid) + "/cmdline").value_or("").find("--bind") ==
           std::string::npos) {
    }
    return pid;
  };
  const std::filesystem::path ours = folder.path() / "jobs/job/ml";
  const pid_t left = start(ours.string());
  const pid_t other = start(ours.string() + "-of-another-server");
  std::ofstream{root / "atelier-job-0123abcd/cgroup.procs"} << left << "\n" << other << "\n";
  std::ofstream{folder.path() / "mountinfo"} << "1 1 0:1 / " << root.string()
                                             << " rw - cgroup2 x rw\n";
  std::ofstream{folder.path() / "own"} << "0::/\n";
  internal::remove_left_cgroups("job", ours, {folder.path() / "mountinfo", folder.path() / "own"});
  int status = 0;
  EXPECT_EQ(waitpid(left, &status, 0), left);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  EXPECT_EQ(waitpid(other, &status, WNOHANG), 0) << "it lives on";
  kill(other, SIGKILL);
  EXPECT_EQ(waitpid(other, &status, 0), other);
}

TEST_F(SandboxTest, NothingOfTheHostsDataIsThere) {
  // The test's own folder stands for the server's data folder and for other jobs.
  std::ofstream{folder_.path() / "secret"} << "key";
  EXPECT_NE(run("cat " + (folder_.path() / "secret").string()).exit.code, 0);
  EXPECT_EQ(run("ls -A /root /home /srv /mnt /etc/shadow /etc/ssh /var/lib 2>/dev/null").output,
            "");
  EXPECT_EQ(run("ls /opt").output, "ml\n");
}

TEST_F(SandboxTest, ProcessesOfTheHostAreNeitherSeenNorSignalled) {
  const Outcome outcome =
      run("ls /proc | grep -c '^[0-9]'; kill -0 " + std::to_string(getpid()) + " && echo reached");
  EXPECT_LE(std::stoi(outcome.output), 6);
  EXPECT_EQ(outcome.output.find("reached"), std::string::npos);
}

TEST_F(SandboxTest, AbstractSocketsOfTheHostAreNotReachedAndItsOwnAre) {
  if (!internal::make_scope()) GTEST_SKIP() << "the kernel is older than 6.12";
  const UniqueFd listener{socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  const std::string name = "atelier-sandbox-test-" + std::to_string(getpid());
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::copy(name.begin(), name.end(), address.sun_path + 1);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(listener.get(), 1), 0);
  spec_.argv = {"/usr/bin/python3", "-c", R"(
import socket, sys
for name in sys.argv[1:]:
    own = socket.socket(socket.AF_UNIX)
    if name == "own":
        own.bind("\0own-" + sys.argv[1]); own.listen(); name = "own-" + sys.argv[1]
    try:
        socket.socket(socket.AF_UNIX).connect("\0" + name); print("reached")
    except PermissionError:
        print("refused")
)",
                name, "own"};
  EXPECT_EQ(finish(start()).output, "refused\nreached\n");
}

TEST_F(SandboxTest, TheProgramHasNoRightsAndCannotGetAny) {
  const Outcome outcome =
      run("grep -E '^(CapEff|CapPrm|CapBnd|CapAmb|CapInh|NoNewPrivs|Seccomp):' "
          "/proc/self/status; id -G");
  EXPECT_NE(outcome.output.find("CapEff:\t0000000000000000"), std::string::npos) << outcome.output;
  EXPECT_NE(outcome.output.find("CapPrm:\t0000000000000000"), std::string::npos);
  EXPECT_NE(outcome.output.find("CapInh:\t0000000000000000"), std::string::npos);
  EXPECT_NE(outcome.output.find("CapAmb:\t0000000000000000"), std::string::npos);
  EXPECT_NE(outcome.output.find("NoNewPrivs:\t1"), std::string::npos);
  EXPECT_NE(outcome.output.find("Seccomp:\t2"), std::string::npos);
  EXPECT_NE(run("unshare -U true").exit.code, 0);
  EXPECT_NE(run("unshare -Ur mount -t tmpfs x /tmp").exit.code, 0);
  EXPECT_NE(run("mount -t tmpfs x /tmp").exit.code, 0);
  EXPECT_NE(run("nsenter -t 1 -m true").exit.code, 0);
  EXPECT_NE(run("mknod /tmp/disk b 254 0").exit.code, 0);
}

TEST_F(SandboxTest, AsRootTheProgramIsAnotherUserOfTheHost) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  const Identity identity = program_identity(spec_.name);
  EXPECT_GE(identity.uid, 2'000'000'000U);
  EXPECT_NE(identity.uid, program_identity("another job").uid);
  run("touch /opt/ml/file");
  struct stat info {};
  ASSERT_EQ(stat((spec_.ml_folder / "file").c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, identity.uid);
}

// By FNV-1a, which the user id once was, these two names have one user.
TEST_F(SandboxTest, WhoseNameCannotBeMadeToFitHasAUserOfItsOwn) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  const auto once = [](std::string_view text) {
    std::uint64_t hash = 0xcbf29ce484222325ULL;
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
    return hash % 100'000'000;
  };
  std::map<std::uint64_t, std::string> seen;
  int pairs = 0;
  for (int i = 0; pairs < 3; ++i) {
    const std::string name = "job-" + std::to_string(i);
    const auto [other, is_first] = seen.emplace(once(name), name);
    if (is_first) continue;
    ++pairs;
    EXPECT_NE(program_identity(name).uid, program_identity(other->second).uid);
  }
  EXPECT_EQ(program_identity("a").uid, program_identity("a").uid);
}

TEST_F(SandboxTest, EveryHostNameResolves) {
  spec_.hosts = {{"algo-1", "127.0.0.1"}, {"algo-2", "127.77.0.2"}};
  EXPECT_EQ(run("getent hosts algo-1 algo-2 | tr -s ' '; getent hosts localhost | wc -l").output,
            "127.0.0.1 algo-1\n127.77.0.2 algo-2\n1\n");
}

TEST_F(SandboxTest, NetworkIsolationLeavesOnlyALoopbackOfItsOwn) {
  const UniqueFd server{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(server.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(server.get(), 8), 0);
  socklen_t size = sizeof address;
  getsockname(server.get(), reinterpret_cast<sockaddr*>(&address), &size);
  const std::string port = std::to_string(ntohs(address.sin_port));
  const std::string script = "exec 3<>/dev/tcp/127.0.0.1/" + port;
  spec_.argv = {"/bin/bash", "-c", script};
  EXPECT_EQ(finish(start()).exit.code, 0);
  spec_.network_isolation = true;
  EXPECT_NE(finish(start()).exit.code, 0);
  spec_.argv = {"/bin/sh", "-c", "ls /sys/class/net 2>/dev/null; grep -c : /proc/net/dev"};
  EXPECT_EQ(finish(start()).output, "1\n");
}

TEST_F(SandboxTest, InstancesOfAJobShareANetworkThatNobodyElseIsIn) {
  const SharedNetwork network = SharedNetwork::create().value();
  const SharedNetwork joined = SharedNetwork::join(network.name()).value();
  spec_.network_isolation = true;
  spec_.network = &network;
  spec_.hosts = {{"algo-1", "127.77.0.1"}, {"algo-2", "127.77.0.2"}};
  spec_.argv = {"/usr/bin/python3", "-c",
                "import socket\n"
                "s = socket.create_server(('algo-1', 7777))\n"
                "print('ready', flush=True)\n"
                "print(s.accept()[0].recv(99))\n"};
  Sandbox server = start();
  EXPECT_EQ(read_line(), "ready");
  UniqueFd server_output = std::move(read_end_);
  spec_.network = &joined;
  spec_.argv = {"/bin/bash", "-c",
                "grep -c : /proc/net/dev; exec 3<>/dev/tcp/algo-1/7777 && echo hello >&3"};
  const Outcome client = finish(start());
  EXPECT_EQ(client.output, "1\n");
  EXPECT_EQ(client.exit.code, 0);
  read_end_ = std::move(server_output);
  EXPECT_EQ(finish(std::move(server)).output, "b'hello\\n'\n");
  // Another job is in another one.
  const SharedNetwork other = SharedNetwork::create().value();
  spec_.network = &other;
  spec_.argv = {"/bin/bash", "-c", "exec 3<>/dev/tcp/127.77.0.1/7777"};
  EXPECT_NE(finish(start()).exit.code, 0);
}

TEST_F(SandboxTest, ANetworkOfAMakerThatEndedIsRefused) {
  const SharedNetwork network = SharedNetwork::create().value();
  std::string later = network.name();
  const std::size_t began = later.find(' ') + 1;
  later.replace(began, later.find(' ', began) - began, "1");  // the id is another process's by now
  EXPECT_EQ(SharedNetwork::join(later).error().code, Code::kNotFound);
  for (const char* name : {"", "1 2 3", "x 1 1 1", "1 1 ../root -1"}) {
    EXPECT_EQ(SharedNetwork::join(name).error().code, Code::kInvalidArgument) << name;
  }
}

TEST_F(SandboxTest, ASignalReachesEveryProcessInside) {
  shell(
      "trap 'echo parent; wait; exit 0' TERM; (trap 'echo child; exit 0' TERM; echo ready; "
      "while :; do sleep 0.05; done) & wait");
  Sandbox sandbox = start();
  EXPECT_EQ(read_line(), "ready");
  sandbox.signal(SIGTERM).value();
  const Outcome outcome = finish(std::move(sandbox));
  EXPECT_NE(outcome.output.find("parent"), std::string::npos);
  EXPECT_NE(outcome.output.find("child"), std::string::npos);
}

TEST_F(SandboxTest, KillEndsAProgramThatIgnoresSignalsAndItsChildren) {
  shell("trap '' TERM INT; sleep 1000 & echo ready; wait");
  Sandbox sandbox = start();
  EXPECT_EQ(read_line(), "ready");
  sandbox.signal(SIGTERM).value();
  pollfd waiting{sandbox.exit_fd(), POLLIN, 0};
  EXPECT_EQ(poll(&waiting, 1, 0), 0);
  sandbox.signal(SIGKILL).value();
  EXPECT_EQ(finish(std::move(sandbox)).exit.signal, SIGKILL);
}

TEST_F(SandboxTest, WhatAProgramLeavesRunningEndsWithIt) {
  const Outcome outcome = run("setsid sh -c 'sleep 1000' & echo done");
  EXPECT_EQ(outcome.output, "done\n");  // the pipe ends: nobody holds it any more
}

TEST_F(SandboxTest, DestroyingItKillsTheProgram) {
  shell("echo ready; sleep 1000");
  {
    Sandbox sandbox = start();
    EXPECT_EQ(read_line(), "ready");
  }
  EXPECT_EQ(read_line(), "");
}

TEST_F(SandboxTest, TooMuchMemoryIsSeenAsSuch) {
  spec_.memory_gib = 0.0625;
  shell("exec python3 -c 'x = bytearray(400 << 20)'");
  Sandbox sandbox = start();
  const std::string limits = sandbox.limits();
  const Outcome outcome = finish(std::move(sandbox));
  if (limits.find("cgroup") == 0) {
    EXPECT_TRUE(outcome.exit.out_of_memory);
    EXPECT_EQ(outcome.exit.signal, SIGKILL);
  } else {
    EXPECT_NE(outcome.output.find("MemoryError"), std::string::npos);
  }
  EXPECT_FALSE(run("exit 0").exit.out_of_memory);
}

TEST_F(SandboxTest, TheLimitsAreSaidInWords) {
  spec_.vcpus = 1.5;
  spec_.memory_gib = 2;
  shell("cat /dev/null");
  Sandbox sandbox = start();
  EXPECT_NE(sandbox.limits().find("1.5 CPUs, 2 GiB of memory"), std::string::npos);
  EXPECT_NE(sandbox.limits().find("user"), std::string::npos);
  finish(std::move(sandbox));
}

TEST_F(SandboxTest, AProgramThatIsNotThereSaysSoInItsOutput) {
  spec_.argv = {"/no/such/program"};
  const Outcome outcome = finish(start());
  EXPECT_NE(outcome.exit.code, 0);
  EXPECT_NE(outcome.output.find("/no/such/program"), std::string::npos);
}

TEST_F(SandboxTest, AnImpossibleRequestIsRefusedByName) {
  EXPECT_EQ(Sandbox::start(spec_).error().message, "a sandbox needs a program to run");
  shell("true");
  spec_.mounts = {{"/no/such/folder", "/data", false}};
  EXPECT_NE(Sandbox::start(spec_).error().message.find("/no/such/folder"), std::string::npos);
}

TEST_F(SandboxTest, AMountThatCannotBeMadeIsNotTakenForTheProgramsFailure) {
  shell("true");
  spec_.mounts = {{"/usr", "/proc/impossible", false}};
  Sandbox sandbox = start();
  while (!read_line().empty()) {
  }
  EXPECT_EQ(sandbox.wait().error().code, Code::kFailedPrecondition);
}

TEST_F(SandboxTest, AMountPointThatTheProgramHasReplacedByALinkIsNotFollowed) {
  const auto data = folder_.path() / "data";
  const auto elsewhere = folder_.path() / "elsewhere";
  make_folders(data).value();
  make_folders(elsewhere).value();
  spec_.mounts = {{data, "/opt/ml/a/stop", false}};
  // Inside, /oldroot was the host while bubblewrap set the sandbox up.
  const Outcome outcome = run("mv /opt/ml/a /opt/ml/b && ln -s /oldroot" + elsewhere.string() +
                              " /opt/ml/a && echo replaced");
  EXPECT_EQ(outcome.output, "replaced\n");
  shell("true");
  const Result<Sandbox> again = Sandbox::start(spec_);
  ASSERT_FALSE(again);
  EXPECT_NE(again.error().message.find("'/opt/ml/a/stop' cannot be mounted"), std::string::npos)
      << again.error().message;
  EXPECT_TRUE(std::filesystem::is_empty(elsewhere));
  spec_.mounts = {{"/etc/hostname", "/opt/ml/a", false}};
  EXPECT_FALSE(Sandbox::start(spec_));
}

TEST_F(SandboxTest, MountsAppearAsAsked) {
  make_folders(folder_.path() / "data").value();
  std::ofstream{folder_.path() / "data/x"} << "mounted\n";
  spec_.mounts = {{folder_.path() / "data", "/data", false}};
  EXPECT_EQ(run("cat /data/x; touch /data/y 2>/dev/null || echo read-only").output,
            "mounted\nread-only\n");
}

}  // namespace
}  // namespace atelier::compute
