// How many files and sockets the server may have open, and so how many connections: one that has
// taken the last descriptor keeps the server from reading its keys, and so from seeing a
// revocation.
#pragma once

#include <cstddef>
#include <cstdint>

namespace atelier::cli {

// Raises this process's soft limit as far as the hard one and the server's need go. The limit now.
std::uint64_t raise_descriptor_limit();

// For each listener, with `limit` descriptors; `tls`: there are two, and a connection over TLS
// takes more of them.
std::size_t connections_for(std::uint64_t limit, bool tls);

}  // namespace atelier::cli
