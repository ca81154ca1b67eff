// The program sandbox_entry (sandbox_entry.cc), as the bytes of its file.
#pragma once

#include <string_view>

namespace atelier::compute::internal {

std::string_view entry_program();

}  // namespace atelier::compute::internal
