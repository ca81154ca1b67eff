// The log of a server or an agent: one line an event, to stderr or a file. Safe from every thread.
// Libraries log only where they decide that something is lost or repaired; everything else is a
// Result. Never pass a secret: keys, tokens, signed URLs.
#pragma once

#include <filesystem>
#include <string_view>

#include "base/result.h"

namespace atelier::log {

enum class Level { kDebug, kInfo, kWarning, kError };

void set_level(Level level);
// Appends to `path` instead of stderr.
Result<void> to_file(const std::filesystem::path& path);

void debug(std::string_view message);
void info(std::string_view message);
void warning(std::string_view message);
void error(std::string_view message);

}  // namespace atelier::log
