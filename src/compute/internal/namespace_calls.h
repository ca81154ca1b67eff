// What a child does between fork and exec to set a network namespace up: system calls alone, for
// the caller may have other threads. errno tells what failed.
#pragma once

namespace atelier::compute::internal {

bool write_text(const char* path, const char* text);

// Of the network that the caller is in.
bool raise_loopback();
// No packet for a loopback address leaves by that interface, which a program may ask for with
// SO_BINDTODEVICE or IP_PKTINFO: who forwards what leaves would take it for its own loopback.
bool keep_loopback_inside(const char* interface);

// Gives up all capabilities, or passes those on to the programs that are run.
bool drop_capabilities();
bool pass_on_capabilities();

}  // namespace atelier::compute::internal
