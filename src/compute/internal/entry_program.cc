#include "compute/internal/entry_program.h"

// ATELIER_SANDBOX_ENTRY is the path of the program, which CMake builds first.
asm(".pushsection .rodata\n"
    "atelier_entry_program_begin: .incbin \"" ATELIER_SANDBOX_ENTRY
    "\"\n"
    "atelier_entry_program_end:\n"
    ".globl atelier_entry_program_begin, atelier_entry_program_end\n"
    ".popsection\n");
extern "C" const char atelier_entry_program_begin[];
extern "C" const char atelier_entry_program_end[];

namespace atelier::compute::internal {

std::string_view entry_program() {
  return {atelier_entry_program_begin, atelier_entry_program_end};
}

}  // namespace atelier::compute::internal
