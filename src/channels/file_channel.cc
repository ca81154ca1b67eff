#include "channels/file_channel.h"

#include <fmt/format.h>
#include <sys/statvfs.h>

#include <climits>
#include <string_view>
#include <unordered_set>

#include "base/file.h"

namespace atelier::channels {
namespace fs = std::filesystem;
namespace {

// Between two batches the connections run dry for a moment, so they are large; but a stop has to
// get through.
constexpr std::size_t kBatchFiles = 4000;
constexpr std::uint64_t kBatchBytes = std::uint64_t{2} << 30;
constexpr std::size_t kMaxFiles = 50'000'000;

struct Plan {
  std::vector<objects::Download> files;
  std::unordered_set<std::string> folders;  // relative, without an end slash
  std::uint64_t bytes = 0;
};

// Where a key lands: see the header.
std::string_view relative_name(std::string_view key, std::string_view prefix) {
  if (!prefix.empty() && prefix.back() != '/' && key.size() > prefix.size() &&
      key[prefix.size()] == '/') {
    return key.substr(prefix.size() + 1);
  }
  const std::size_t slash = prefix.rfind('/');
  return slash == std::string_view::npos ? key : key.substr(slash + 1);
}

Error refused(const objects::Location& object, std::string_view why) {
  return Error{
      Code::kInvalidArgument,
      fmt::format("object '{}' cannot become a file of the channel: {}", object.uri(), why)};
}

// A relative name that stays in the channel's folder and fits a file system.
Result<void> check_name(std::string_view name, const objects::Location& object,
                        std::size_t folder_length) {
  if (name.find('\0') != std::string_view::npos) return refused(object, "its key has a zero byte");
  if (folder_length + 1 + name.size() >= PATH_MAX) {
    return refused(object, fmt::format("a path has at most {} bytes", PATH_MAX - 1));
  }
  for (std::size_t start = 0; start <= name.size();) {
    const std::size_t end = std::min(name.find('/', start), name.size());
    const std::string_view part = name.substr(start, end - start);
    if (part.empty()) return refused(object, "its key has an empty part ('//')");
    if (part == "." || part == "..") return refused(object, "its key has a part '.' or '..'");
    if (part.size() > NAME_MAX) {
      return refused(object, fmt::format("a name has at most {} bytes, '{}...' has {}", NAME_MAX,
                                         part.substr(0, 40), part.size()));
    }
    start = end + 1;
  }
  return {};
}

void add_folders(Plan& plan, std::string_view folder) {
  // The first one that is there already has its parents.
  while (!folder.empty() && plan.folders.emplace(folder).second) {
    const std::size_t slash = folder.rfind('/');
    folder = slash == std::string_view::npos ? std::string_view{} : folder.substr(0, slash);
  }
}

Result<void> add_object(Plan& plan, objects::ObjectInfo info, const objects::Location& location,
                        const fs::path& folder) {
  std::string_view name = relative_name(info.key, location.key);
  const objects::Location object{location.bucket, info.key};
  // Consoles make an empty object "folder/" for an empty folder.
  const bool is_folder = name.empty() || name.back() == '/';
  if (is_folder && info.size > 0) return refused(object, "its key ends with '/', but it has bytes");
  if (is_folder && !name.empty()) name.remove_suffix(1);
  if (is_folder && name.empty()) return {};
  TRY(check_name(name, object, folder.native().size()));
  if (is_folder) {
    add_folders(plan, name);
    return {};
  }
  const std::size_t slash = name.rfind('/');
  if (slash != std::string_view::npos) add_folders(plan, name.substr(0, slash));
  plan.bytes += info.size;
  fs::path path = folder / name;
  plan.files.push_back({std::move(info.key), info.size, std::move(info.etag), std::move(path)});
  return {};
}

Result<Plan> make_plan(objects::ObjectStore& store, const objects::Location& location,
                       const fs::path& folder) {
  Plan plan;
  objects::ListOptions options;
  options.prefix = location.key;
  do {
    objects::ListPage page = TRY(store.list(location.bucket, options));
    for (objects::ObjectInfo& info : page.objects) {
      TRY(add_object(plan, std::move(info), location, folder));
    }
    if (plan.files.size() > kMaxFiles) {
      return Error{Code::kResourceExhausted,
                   fmt::format("'{}' has more than {} objects", location.uri(), kMaxFiles)};
    }
    options.continuation_token = std::move(page.next_token);
  } while (!options.continuation_token.empty());
  if (plan.files.empty()) {
    return Error{Code::kNotFound, fmt::format("no object under '{}'", location.uri())};
  }
  return plan;
}

// One name as file and folder, or two keys that land on one name.
Result<void> check_collisions(const Plan& plan, const objects::Location& location,
                              const fs::path& folder) {
  std::unordered_set<std::string_view> names;
  names.reserve(plan.files.size());
  const std::size_t skip = folder.native().size() + 1;
  for (const objects::Download& file : plan.files) {
    const std::string_view name = std::string_view{file.path.native()}.substr(skip);
    const objects::Location object{location.bucket, file.key};
    if (plan.folders.count(std::string{name}) > 0) {
      return refused(object, "another key needs a folder of that name");
    }
    if (!names.insert(name).second) return refused(object, "another key lands on the same name");
  }
  return {};
}

Result<void> check_space(const Plan& plan, const fs::path& folder) {
  struct statvfs info {};
  if (statvfs(folder.c_str(), &info) != 0) {
    return error_from_errno("statvfs '" + folder.string() + "'", errno);
  }
  const std::uint64_t free = std::uint64_t{info.f_bavail} * info.f_frsize;
  if (plan.bytes > free) {
    return Error{Code::kResourceExhausted,
                 fmt::format("the channel has {} bytes, and the disk of '{}' has {} free",
                             plan.bytes, folder.string(), free)};
  }
  return {};
}

Result<void> download(objects::ObjectStore& store, const std::string& bucket, Plan plan,
                      const objects::Progress& progress, const std::function<bool()>& cancelled) {
  std::uint64_t done = 0;
  for (std::size_t first = 0; first < plan.files.size();) {
    if (cancelled && cancelled()) return Error{Code::kCancelled, "the download was stopped"};
    std::vector<objects::Download> batch;
    std::uint64_t bytes = 0;
    while (first < plan.files.size() && batch.size() < kBatchFiles && bytes < kBatchBytes) {
      bytes += plan.files[first].size;
      batch.push_back(std::move(plan.files[first++]));
    }
    objects::Progress batch_progress;
    if (progress) {
      batch_progress = [&progress, done, total = plan.bytes](std::uint64_t now, std::uint64_t) {
        progress(done + now, total);
      };
    }
    TRY(store.download_many(bucket, std::move(batch), batch_progress));
    done += bytes;
  }
  return {};
}

}  // namespace

Result<FileChannelReport> fill_file_channel(objects::ObjectStore& store, const std::string& s3_uri,
                                            const fs::path& folder,
                                            const objects::Progress& progress,
                                            const std::function<bool()>& cancelled) {
  const objects::Location location = TRY(objects::parse_s3_uri(s3_uri));
  Plan plan = TRY(make_plan(store, location, folder));
  TRY(check_collisions(plan, location, folder));
  TRY(make_folders(folder));
  TRY(check_space(plan, folder));
  for (const std::string& name : plan.folders) TRY(make_folders(folder / name));
  const FileChannelReport report{plan.files.size(), plan.bytes};
  TRY(download(store, location.bucket, std::move(plan), progress, cancelled));
  return report;
}

}  // namespace atelier::channels
