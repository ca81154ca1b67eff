// Which users of this host have a TCP socket at an address of it: so a server on loopback knows for
// whom the program at the other end runs, which the address alone does not say.
#pragma once

#include <sys/types.h>

#include <string_view>
#include <vector>

#include "base/result.h"

namespace atelier::compute {

// Of the sockets at "127.0.0.1:51234" or "[::1]:51234" that are connected to something; more than
// one when a port is used for several connections. Empty when there is none (any more). Reads
// /proc/net/tcp and tcp6, so it takes longer the more sockets the host has.
Result<std::vector<uid_t>> users_of_socket(std::string_view address);

}  // namespace atelier::compute
