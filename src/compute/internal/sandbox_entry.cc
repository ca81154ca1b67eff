// The first program inside of a sandbox: becomes the job's user, takes over the job's variables,
// and then becomes the job's program.
//
//   sandbox_entry FD UID GID PROGRAM [ARGUMENT...]     FD: the variables, "NAME=VALUE\0" each
//   sandbox_entry FD - - PROGRAM [ARGUMENT...]         without a change of user
//
// Variables are the job's and may say LD_PRELOAD or LD_AUDIT, so that no program with more rights
// than the job's may ever have them: neither bubblewrap, nor anything between it and the job's
// user. This one is linked statically, is started with an empty environment, and looks at them no
// more than to hand them on. Linked into the library as bytes (entry_program.cc).
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr int kCannotRun = 126;  // as shells say it
constexpr int kNotFound = 127;

[[noreturn]] void fail(const char* what, int status = kCannotRun) {
  std::fprintf(stderr, "atelier: %s: %s\n", what, std::strerror(errno));
  _exit(status);
}

unsigned number(const char* text) { return static_cast<unsigned>(std::strtoul(text, nullptr, 10)); }

// Pointers into the file's bytes, which stay mapped.
char** read_variables(int fd) {
  struct stat info {};
  if (fstat(fd, &info) != 0) fail("the job's variables");
  const auto size = static_cast<std::size_t>(info.st_size);
  auto* bytes = static_cast<char*>(std::calloc(size + 1, 1));
  if (bytes == nullptr) fail("the job's variables");
  for (std::size_t at = 0; at < size;) {
    const ssize_t got = pread(fd, bytes + at, size - at, static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) fail("the job's variables");
    at += static_cast<std::size_t>(got);
  }
  std::size_t count = 0;
  for (std::size_t at = 0; at < size; ++at) count += bytes[at] == 0 ? 1 : 0;
  auto** variables = static_cast<char**>(std::calloc(count + 1, sizeof(char*)));
  if (variables == nullptr) fail("the job's variables");
  char* next = bytes;
  for (std::size_t i = 0; i < count; ++i, next += std::strlen(next) + 1) variables[i] = next;
  return variables;
}

void become(unsigned uid, unsigned gid) {
  for (unsigned long capability = 0; prctl(PR_CAPBSET_READ, capability) >= 0; ++capability) {
    if (prctl(PR_CAPBSET_DROP, capability) != 0) fail("give up capabilities");
  }
  if (setgroups(0, nullptr) != 0) fail("leave groups");
  if (setresgid(gid, gid, gid) != 0) fail("become the job's group");
  if (setresuid(uid, uid, uid) != 0) fail("become the job's user");
}

void give_up_capabilities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {};
  if (syscall(SYS_capset, &header, none) != 0) fail("give up capabilities");
}

}  // namespace

int main(int count, char** words) {
  if (count < 5) return kCannotRun;
  char** const variables = read_variables(static_cast<int>(number(words[1])));
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) fail("give up new privileges");
  if (std::strcmp(words[2], "-") != 0) become(number(words[2]), number(words[3]));
  give_up_capabilities();
  if (syscall(SYS_close_range, 3U, ~0U, 0U) != 0) fail("close descriptors");
  char** const program = words + 4;
  execvpe(program[0], program, variables);
  fail(program[0], errno == ENOENT ? kNotFound : kCannotRun);
}
