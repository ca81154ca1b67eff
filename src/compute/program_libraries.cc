#include "compute/program_libraries.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

#include "base/file.h"

namespace atelier::compute {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kMaxListing = std::size_t{1} << 20;  // 291 libraries take 30 KiB

// What the linker prints in place of running the program.
Result<std::string> listing(const fs::path& program) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return error_from_errno("pipe", errno);
  UniqueFd from{ends[0]};
  UniqueFd to{ends[1]};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to.get(), STDOUT_FILENO);
  std::string path = program.string();
  std::string trace = "LD_TRACE_LOADED_OBJECTS=1";
  char* const arguments[] = {path.data(), nullptr};
  char* const environment[] = {trace.data(), nullptr};
  pid_t child = 0;
  const int failed = posix_spawn(&child, path.c_str(), &actions, nullptr, arguments, environment);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return error_from_errno(path, failed);
  to.reset();
  std::string text;
  char buffer[4096];
  for (;;) {
    const ssize_t count = read(from.get(), buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0 || text.size() > kMaxListing) break;
    text.append(buffer, static_cast<std::size_t>(count));
  }
  from.reset();  // a linker with more to say than that ends of it
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  if (text.size() > kMaxListing) {
    return Error{
        Code::kResourceExhausted,
        fmt::format("{}: its list of libraries is longer than {} bytes", path, kMaxListing)};
  }
  return text;
}

bool in_system(const fs::path& folder) {
  const std::string text = folder.string() + "/";
  return std::ranges::any_of(std::initializer_list<std::string_view>{"/usr/", "/lib/", "/lib64/"},
                             [&](std::string_view start) { return text.starts_with(start); });
}

void add_folder_of(const fs::path& library, std::vector<std::string>& folders) {
  const fs::path folder = library.parent_path();
  if (in_system(folder)) return;
  if (std::ranges::find(folders, folder.string()) == folders.end()) {
    folders.push_back(folder.string());
  }
}

}  // namespace

Result<std::vector<std::string>> library_folders(const fs::path& program) {
  const std::string text = TRY(listing(program));
  std::vector<std::string> folders;
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = std::min(text.find('\n', start), text.size());
    const std::string_view line = std::string_view{text}.substr(start, end - start);
    start = end + 1;
    // "\tlibc10.so => /opt/torch/lib/libc10.so (0x00007f...)"; a line without an arrow is the
    // linker itself or the kernel's page.
    const std::size_t arrow = line.find(" => ");
    if (arrow == std::string_view::npos) continue;
    const std::string_view found = line.substr(arrow + 4);
    if (found.starts_with("not found")) {
      const std::size_t name = std::min(line.find_first_not_of('\t'), arrow);
      return Error{Code::kNotFound, fmt::format("{} needs {}, which is not found", program.string(),
                                                line.substr(name, arrow - name))};
    }
    const fs::path library = fs::path{found.substr(0, found.rfind(" (0x"))}.lexically_normal();
    add_folder_of(library, folders);
    std::error_code failure;
    const fs::path real = fs::canonical(library, failure);
    if (!failure) add_folder_of(real, folders);
  }
  return folders;
}

}  // namespace atelier::compute
