#include "compute/program_libraries.h"

#include <gtest/gtest.h>

#include "base/file.h"

namespace atelier::compute {
namespace {

namespace fs = std::filesystem;
using Folders = std::vector<std::string>;

// PROGRAM links libprogram_libraries_far.so of the folder beside it (CMakeLists.txt).
const fs::path kProgram = PROGRAM_LIBRARIES_PROGRAM;

TEST(ProgramLibraries, TheFolderOfALibraryOutsideOfTheSystemIsFound) {
  EXPECT_EQ(library_folders(kProgram).value(), Folders{PROGRAM_LIBRARIES_FOLDER});
}

TEST(ProgramLibraries, AProgramOfTheSystemNeedsNoFolder) {
  EXPECT_EQ(library_folders("/usr/bin/env").value(), Folders{});
}

TEST(ProgramLibraries, AMissingLibraryIsNamed) {
  // A copy that lies elsewhere, with a relative run path: the linker looks beside it.
  const TempFolder folder = TempFolder::create().value();
  const fs::path copy = folder.path() / "program";
  fs::copy_file(kProgram, copy);
  const auto refused = library_folders(copy);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kNotFound);
  EXPECT_EQ(refused.error().message,
            copy.string() + " needs libprogram_libraries_far.so, which is not found");
}

TEST(ProgramLibraries, BothEndsOfALinkedLibraryAreListed) {
  const TempFolder folder = TempFolder::create().value();
  const fs::path root = fs::canonical(folder.path());
  make_folders(root / "far").value();
  fs::copy_file(kProgram, root / "program");
  const std::string name = "libprogram_libraries_far.so";
  fs::create_symlink(fs::path{PROGRAM_LIBRARIES_FOLDER} / name, root / "far" / name);
  EXPECT_EQ(library_folders(root / "program").value(),
            (Folders{(root / "far").string(), PROGRAM_LIBRARIES_FOLDER}));
}

TEST(ProgramLibraries, WhatCannotBeStartedIsAnError) {
  EXPECT_EQ(library_folders("/usr/bin/no-such-program").error().code, Code::kNotFound);
}

}  // namespace
}  // namespace atelier::compute
