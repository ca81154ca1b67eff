#include "agent/warm_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include "agent/instances.h"

namespace atelier::agent {
namespace fs = std::filesystem;
namespace {

constexpr const char* kInside = "/opt/warm";
constexpr const char* kCache = "cache";
constexpr const char* kPackages = ".python";
constexpr const char* kCacheInMl = "sagemaker/warmpoolcache";

fs::path folder_of(const AgentSpec& spec) { return fs::path{spec.warm_pool} / spec.host; }

Result<void> make_for(const fs::path& folder, compute::Identity owner) {
  TRY(make_folders(folder));
  const UniqueFd fd = TRY(open_file(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  if (fchown(fd.get(), owner.uid, owner.gid) == 0) return {};
  return error_from_errno("give '" + folder.string() + "' to the program", errno);
}

}  // namespace

Result<void> prepare_warm_folder(MlTree& tree, const AgentSpec& spec) {
  if (spec.warm_pool.empty()) return {};
  const compute::Identity owner = compute::program_identity(identity_name(spec));
  TRY(make_folders(folder_of(spec), 0700));
  for (const char* name : {kCache, kPackages}) TRY(make_for(folder_of(spec) / name, owner));
  return tree.make_link(fs::path{kInside} / kCache, kCacheInMl);
}

std::vector<compute::BindMount> warm_mounts(const AgentSpec& spec) {
  std::vector<compute::BindMount> mounts;
  if (spec.warm_pool.empty()) return mounts;
  for (const char* name : {kCache, kPackages}) {
    mounts.push_back({folder_of(spec) / name, fs::path{kInside} / name, true});
  }
  return mounts;
}

std::vector<fs::path> warm_folders(const AgentSpec& spec) {
  if (spec.warm_pool.empty()) return {};
  return {folder_of(spec)};
}

std::string packages_base(const AgentSpec& spec) {
  return spec.warm_pool.empty() ? "/opt/ml" : kInside;
}

}  // namespace atelier::agent
