// A network of a job's own that reaches outwards: a namespace whose loopback is nobody else's, with
// pasta (package passt) as its way to the host's network, and of the host's loopback only ports
// that are named. Needs pasta, user namespaces and /dev/net/tun.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "compute/network.h"

namespace atelier::compute {

struct OutwardSpec {
  // Who pasta is on the host when the caller is root (program_identity()): a user that no program
  // of a job is, for who owns a namespace may do everything in it.
  std::string identity;
  std::set<std::uint16_t> host_ports{};  // on loopback, reached at the same address inside
};

class OutwardNetwork {
 public:
  // Begins to make it; ready() waits for that. It ends with this value and with the thread that
  // called begin(), however that ends.
  static Result<OutwardNetwork> begin(const OutwardSpec& spec);
  OutwardNetwork(OutwardNetwork&&) noexcept;
  OutwardNetwork& operator=(OutwardNetwork&&) noexcept;
  ~OutwardNetwork();

  // Returns once programs can use it. kFailedPrecondition with pasta's own words when it does not
  // work on this host.
  Result<SharedNetwork> ready();
  // A pidfd: readable once pasta has ended, and with it all ways outwards.
  [[nodiscard]] int end_fd() const;

 private:
  struct State;
  explicit OutwardNetwork(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// The ports of the addresses http://127.0.0.1:PORT, http://localhost:PORT and http://[::1]:PORT
// (https:// too) in a text such as pip's configuration.
std::set<std::uint16_t> loopback_ports(std::string_view text);
// Whether the host of the address is one of those three.
bool is_forwarded_loopback(std::string_view url);

// resolv.conf as programs of such a network need it: a resolver on the host's loopback is reached
// at an address that pasta forwards.
std::string outward_resolv_conf(std::string_view text);

}  // namespace atelier::compute
