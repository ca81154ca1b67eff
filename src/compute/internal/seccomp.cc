#include "compute/internal/seccomp.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace atelier::compute::internal {
namespace {

#if defined(__x86_64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
#error "name the audit architecture of this processor"
#endif

constexpr std::uint32_t kNamespaceFlags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID |
                                          CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS |
                                          CLONE_NEWCGROUP;

constexpr sock_filter statement(unsigned code, std::uint32_t k) {
  return {static_cast<std::uint16_t>(code), 0, 0, k};
}
constexpr sock_filter jump(unsigned code, std::uint32_t k, std::uint8_t yes, std::uint8_t no) {
  return {static_cast<std::uint16_t>(code), yes, no, k};
}
constexpr sock_filter load(std::size_t offset) {
  return statement(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(offset));
}
constexpr sock_filter refuse(int cause) {
  return statement(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(cause));
}
constexpr unsigned kEqual = BPF_JMP | BPF_JEQ | BPF_K;

// Refuses call `number` altogether.
void refuse_call(std::vector<sock_filter>& program, long number, int cause) {
  program.push_back(jump(kEqual, static_cast<std::uint32_t>(number), 0, 1));
  program.push_back(refuse(cause));
}

// Refuses call `number` when its first argument asks for a namespace. Both of our processors are
// little-endian and pass the flags in the low word.
void refuse_namespaces(std::vector<sock_filter>& program, long number) {
  program.push_back(jump(kEqual, static_cast<std::uint32_t>(number), 0, 4));
  program.push_back(load(offsetof(seccomp_data, args)));
  program.push_back(jump(BPF_JMP | BPF_JSET | BPF_K, kNamespaceFlags, 0, 1));
  program.push_back(refuse(EPERM));
  program.push_back(load(offsetof(seccomp_data, nr)));
}

}  // namespace

std::string seccomp_filter() {
  std::vector<sock_filter> program;
  program.push_back(load(offsetof(seccomp_data, arch)));
  program.push_back(jump(kEqual, kArchitecture, 1, 0));
  program.push_back(refuse(ENOSYS));
  program.push_back(load(offsetof(seccomp_data, nr)));
#if defined(__x86_64__)
  // The x32 ABI shares the architecture's name; its numbers have this bit.
  program.push_back(jump(BPF_JMP | BPF_JGE | BPF_K, 0x40000000U, 0, 1));
  program.push_back(refuse(ENOSYS));
#endif
  refuse_namespaces(program, SYS_unshare);
  refuse_namespaces(program, SYS_clone);
  // Its flags lie in memory, where a filter cannot look; the C library falls back to clone.
  refuse_call(program, SYS_clone3, ENOSYS);
  for (const long number : {SYS_setns,        SYS_mount,
                            SYS_umount2,      SYS_pivot_root,
                            SYS_chroot,       SYS_open_tree,
                            SYS_move_mount,   SYS_fsopen,
                            SYS_fsconfig,     SYS_fsmount,
                            SYS_fspick,       SYS_add_key,
                            SYS_request_key,  SYS_keyctl,
                            SYS_bpf,          SYS_perf_event_open,
                            SYS_userfaultfd,  SYS_init_module,
                            SYS_finit_module, SYS_delete_module,
                            SYS_kexec_load,   SYS_open_by_handle_at,
                            SYS_swapon,       SYS_swapoff,
                            SYS_reboot,       SYS_acct,
                            SYS_quotactl}) {
    refuse_call(program, number, EPERM);
  }
  for (const long number : {SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register}) {
    refuse_call(program, number, ENOSYS);
  }
  program.push_back(statement(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  return {reinterpret_cast<const char*>(program.data()), program.size() * sizeof(sock_filter)};
}

}  // namespace atelier::compute::internal
