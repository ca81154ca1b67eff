#include "compute/internal/namespace_calls.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace atelier::compute::internal {
namespace {

constexpr unsigned char kLoopback4[4] = {127, 0, 0, 0};
constexpr unsigned char kLoopback6[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};

// "local ADDRESS/BITS dev INTERFACE". Where no route fits the interface that a program asks for,
// the kernel takes the address for a neighbour there, so that a route which refuses would not be
// heard.
bool add_local_route(unsigned char family, const unsigned char* address, unsigned short bytes,
                     unsigned char bits, unsigned interface) {
  struct {
    nlmsghdr header;
    rtmsg route;
    rtattr to_interface;
    unsigned interface;
    rtattr to_address;
    unsigned char address[16];
  } message{};
  message.header.nlmsg_len = static_cast<unsigned>(
      NLMSG_LENGTH(sizeof(rtmsg)) + RTA_LENGTH(sizeof interface) + RTA_LENGTH(bytes));
  message.header.nlmsg_type = RTM_NEWROUTE;
  message.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_CREATE | NLM_F_APPEND | NLM_F_ACK;
  message.route.rtm_family = family;
  message.route.rtm_dst_len = bits;
  message.route.rtm_table = RT_TABLE_LOCAL;
  message.route.rtm_protocol = RTPROT_STATIC;
  message.route.rtm_scope = RT_SCOPE_HOST;
  message.route.rtm_type = RTN_LOCAL;
  message.to_interface.rta_type = RTA_OIF;
  message.to_interface.rta_len = static_cast<unsigned short>(RTA_LENGTH(sizeof interface));
  message.interface = interface;
  message.to_address.rta_type = RTA_DST;
  message.to_address.rta_len = static_cast<unsigned short>(RTA_LENGTH(bytes));
  memcpy(message.address, address, bytes);
  const int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
  if (fd < 0) return false;
  struct {
    nlmsghdr header;
    nlmsgerr error;
    unsigned char rest[256];
  } answer{};
  bool done = send(fd, &message, message.header.nlmsg_len, 0) >= 0 &&
              recv(fd, &answer, sizeof answer, 0) >= static_cast<ssize_t>(sizeof answer.header);
  if (done && answer.header.nlmsg_type == NLMSG_ERROR && answer.error.error != 0) {
    errno = -answer.error.error;
    done = false;
  }
  const int cause = errno;
  close(fd);
  errno = cause;
  return done;
}

bool set_capabilities(unsigned long long effective, unsigned long long permitted,
                      unsigned long long inheritable) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2];
  for (int half = 0; half < 2; ++half) {
    const int shift = 32 * half;
    data[half] = {static_cast<unsigned>(effective >> shift),
                  static_cast<unsigned>(permitted >> shift),
                  static_cast<unsigned>(inheritable >> shift)};
  }
  return syscall(SYS_capset, &header, data) == 0;
}

}  // namespace

bool write_text(const char* path, const char* text) {
  const int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const auto length = static_cast<ssize_t>(strlen(text));
  const bool done = write(fd, text, static_cast<std::size_t>(length)) == length;
  close(fd);
  return done;
}

bool raise_loopback() {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  ifreq request{};
  memcpy(request.ifr_name, "lo", 3);
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  const bool done = ioctl(fd, SIOCSIFFLAGS, &request) == 0;
  close(fd);
  return done;
}

bool keep_loopback_inside(const char* interface) {
  const unsigned index = if_nametoindex(interface);
  if (index == 0) return false;
  if (!add_local_route(AF_INET, kLoopback4, sizeof kLoopback4, 8, index)) return false;
  if (add_local_route(AF_INET6, kLoopback6, sizeof kLoopback6, 128, index)) return true;
  // A host without version 6: nothing leaves by it.
  return errno == EOPNOTSUPP || errno == EAFNOSUPPORT || errno == EACCES;
}

bool drop_capabilities() { return set_capabilities(0, 0, 0); }

bool pass_on_capabilities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2];
  if (syscall(SYS_capget, &header, data) != 0) return false;
  const unsigned long long all =
      data[0].permitted | static_cast<unsigned long long>(data[1].permitted) << 32;
  if (!set_capabilities(all, all, all)) return false;
  for (unsigned long number = 0; number < 64; ++number) {
    if ((all >> number & 1) == 0) continue;
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, number, 0, 0) != 0) return false;
  }
  return true;
}

}  // namespace atelier::compute::internal
