#include <fmt/core.h>
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "base/file.h"
#include "base/json.h"
#include "cli/connection.h"
#include "cli/terminal.h"
#include "cli/verbs.h"

namespace atelier::cli {
namespace {
namespace fs = std::filesystem;
using objects::Location;
using objects::ObjectStore;

struct S3Options {
  std::string data_folder;
  std::vector<std::string> paths;
  bool recursive = false;
  bool as_json = false;
};

bool is_s3(const std::string& path) { return path.starts_with("s3://"); }

// Calls `each` for every object below the prefix.
Result<void> for_each_object(ObjectStore& store, const Location& at, const std::string& delimiter,
                             const std::function<void(const objects::ObjectInfo&)>& each,
                             const std::function<void(const std::string&)>& each_prefix) {
  objects::ListOptions options;
  options.prefix = at.key;
  options.delimiter = delimiter;
  while (true) {
    const objects::ListPage page = TRY(store.list(at.bucket, options));
    for (const std::string& prefix : page.common_prefixes) each_prefix(prefix);
    for (const objects::ObjectInfo& object : page.objects) each(object);
    if (page.next_token.empty()) return {};
    options.continuation_token = page.next_token;
  }
}

Result<void> list(ObjectStore& store, const S3Options& options) {
  json::array rows;
  if (options.paths.empty()) {
    for (const std::string& bucket : TRY(store.list_buckets())) {
      if (options.as_json)
        rows.push_back(json::object{{"bucket", bucket}});
      else
        std::cout << "s3://" << bucket << '\n';
    }
  } else {
    const Location at = TRY(objects::parse_s3_uri(options.paths.front()));
    TRY(for_each_object(
        store, at, options.recursive ? "" : "/",
        [&](const objects::ObjectInfo& object) {
          if (options.as_json) {
            rows.push_back(json::object{{"key", object.key},
                                        {"size", object.size},
                                        {"etag", object.etag},
                                        {"last_modified", format_iso8601(object.last_modified)}});
          } else {
            std::cout << fmt::format("{}  {:>10}  {}\n", format_iso8601(object.last_modified),
                                     format_bytes(static_cast<double>(object.size)),
                                     printable(object.key));
          }
        },
        [&](const std::string& prefix) {
          if (options.as_json)
            rows.push_back(json::object{{"prefix", prefix}});
          else
            std::cout << fmt::format("{:>20}  {:>10}  {}\n", "", "PRE", printable(prefix));
        }));
  }
  if (options.as_json) std::cout << pretty_json(rows) << '\n';
  return {};
}

std::string joined_key(const std::string& folder_key, const std::string& name) {
  return folder_key.empty() || folder_key.ends_with('/') ? folder_key + name
                                                         : folder_key + "/" + name;
}

Result<void> upload(ObjectStore& store, const fs::path& from, const Location& to,
                    const S3Options& options, const objects::Progress& progress) {
  std::error_code failure;
  if (!fs::is_directory(from, failure)) {
    const bool into_folder = to.key.empty() || to.key.ends_with('/');
    const std::string key = into_folder ? to.key + from.filename().string() : to.key;
    TRY(store.put_file(to.bucket, key, from, {}, progress));
    return {};
  }
  if (!options.recursive) {
    return Error{Code::kInvalidArgument,
                 fmt::format("'{}' is a folder; add --recursive", from.string())};
  }
  std::vector<objects::Upload> items;
  for (auto it = fs::recursive_directory_iterator(from, failure); !failure && it != fs::end(it);
       it.increment(failure)) {
    if (!it->is_regular_file(failure)) continue;
    items.push_back({joined_key(to.key, it->path().lexically_relative(from).generic_string()),
                     it->path(),
                     {},
                     {}});
  }
  if (failure) return error_from_errno(fmt::format("read '{}'", from.string()), failure.value());
  return store.upload_many(to.bucket, std::move(items), progress);
}

// A key becomes a path below `folder`, or is refused: nothing is ever written outside of it.
Result<fs::path> safe_path(const fs::path& folder, const std::string& relative) {
  const fs::path path{relative};
  bool unsafe = relative.empty() || path.is_absolute() || relative.find('\0') != std::string::npos;
  for (const fs::path& part : path) unsafe = unsafe || part == ".." || part == "." || part.empty();
  if (unsafe) {
    return Error{
        Code::kInvalidArgument,
        fmt::format("the key '{}' has no place in a folder; copy it alone to a file that you name",
                    relative)};
  }
  return folder / path;
}

Result<void> download(ObjectStore& store, const Location& from, const fs::path& to,
                      const S3Options& options, const objects::Progress& progress) {
  std::error_code failure;
  std::vector<objects::Download> items;
  if (options.recursive) {
    const std::string prefix = joined_key(from.key, "");
    std::optional<Error> refused;
    TRY(for_each_object(
        store, {from.bucket, prefix}, "",
        [&](const objects::ObjectInfo& object) {
          if (object.key.ends_with('/') && object.size == 0) return;
          Result<fs::path> path = safe_path(to, object.key.substr(prefix.size()));
          if (path)
            items.push_back({object.key, object.size, object.etag, *path});
          else if (!refused)
            refused = path.error();
        },
        [](const std::string&) {}));
    if (refused) return *refused;
    if (items.empty())
      return Error{Code::kNotFound, fmt::format("no objects below {}", from.uri())};
  } else {
    const objects::ObjectInfo info = TRY(store.head(from.bucket, from.key));
    const std::string name = from.key.substr(from.key.rfind('/') + 1);
    const fs::path path = fs::is_directory(to, failure) ? TRY(safe_path(to, name)) : to;
    items.push_back({from.key, info.size, info.etag, path});
  }
  for (const objects::Download& item : items) {
    if (item.path.has_parent_path()) TRY(make_folders(item.path.parent_path()));
  }
  return store.download_many(from.bucket, std::move(items), progress);
}

Result<void> copy(ObjectStore& store, const S3Options& options) {
  const std::string& from = options.paths[0];
  const std::string& to = options.paths[1];
  Progress shown{"copying", Progress::Unit::kBytes, options.as_json};
  const objects::Progress progress = [&shown](std::uint64_t done, std::uint64_t total) {
    shown.update(done, total);
  };
  if (is_s3(from) && is_s3(to)) {
    if (options.recursive)
      return Error{Code::kInvalidArgument,
                   "--recursive copies between a folder and s3://, one of the two"};
    const Location source = TRY(objects::parse_s3_uri(from));
    const Location target = TRY(objects::parse_s3_uri(to));
    return store.copy(source.bucket, source.key, target.bucket, target.key);
  }
  if (is_s3(to)) return upload(store, from, TRY(objects::parse_s3_uri(to)), options, progress);
  if (is_s3(from)) return download(store, TRY(objects::parse_s3_uri(from)), to, options, progress);
  return Error{Code::kInvalidArgument, "one of the two has to be an s3:// address"};
}

Result<void> remove(ObjectStore& store, const S3Options& options) {
  const Location at = TRY(objects::parse_s3_uri(options.paths.front()));
  if (!options.recursive) {
    if (at.key.empty())
      return Error{Code::kInvalidArgument,
                   fmt::format("{} names a bucket; name a key, or use rb", at.uri())};
    TRY(store.head(at.bucket, at.key));
    return store.remove(at.bucket, at.key);
  }
  std::vector<std::string> keys;
  // A folder, not a raw prefix: removing s3://b/run must not take s3://b/run2 along.
  const Location below{at.bucket, at.key.empty() ? "" : joined_key(at.key, "")};
  TRY(for_each_object(
      store, below, "", [&](const objects::ObjectInfo& object) { keys.push_back(object.key); },
      [](const std::string&) {}));
  if (keys.empty()) return Error{Code::kNotFound, fmt::format("no objects below {}", below.uri())};
  TRY(store.remove_many(at.bucket, keys));
  if (!options.as_json) std::cout << fmt::format("removed {} objects\n", keys.size());
  return {};
}

using Action = Result<void> (*)(ObjectStore&, const S3Options&);

void add_action(CLI::App& verb, Outcome& outcome, const char* name, const char* help,
                const char* example, int min_paths, int max_paths, Action action) {
  auto options = std::make_shared<S3Options>();
  CLI::App* sub = verb.add_subcommand(name, help);
  sub->add_option("paths", options->paths, "s3://BUCKET/KEY, or a file")
      ->expected(min_paths, max_paths);
  if (min_paths > 0) sub->get_option("paths")->required();
  sub->add_flag("-r,--recursive", options->recursive, "Everything below");
  sub->add_option("--data-dir", options->data_folder, "Data folder of the server");
  sub->add_flag("--json", options->as_json, "For scripts");
  sub->footer(std::string{"Example: "} + example);
  sub->callback([options, action, &outcome, verb_name = std::string{name}] {
    const Result<Connection> connection = find_connection(options->data_folder);
    if (!connection) {
      outcome.exit_code = report_error(connection.error());
      return;
    }
    const auto store = objects::make_s3_client(s3_endpoint(*connection));
    const Result<void> done = action(*store, *options);
    outcome.exit_code = done ? kOk : report_error(done.error());
    // A listing is its own answer; of the others a script wants to know what was done.
    if (done && options->as_json && action != list) {
      std::cout << pretty_json(json::object{{"done", verb_name},
                                            {"paths", json::value_from(options->paths)}})
                << '\n';
    }
  });
}

}  // namespace

void add_s3(CLI::App& program, Outcome& outcome) {
  CLI::App* verb = program.add_subcommand("s3", "Looks at and copies objects");
  verb->require_subcommand(1);
  verb->footer("Example: atelier s3 ls s3://pictures/ --data-dir ./data");
  add_action(*verb, outcome, "ls", "Lists buckets, or what is below a prefix",
             "atelier s3 ls s3://pictures/", 0, 1, list);
  add_action(*verb, outcome, "cp", "Copies a file or object (-r: a folder)",
             "atelier s3 cp s3://out/job/output/model.tar.gz .", 2, 2, copy);
  add_action(*verb, outcome, "rm", "Removes an object (-r: everything below)",
             "atelier s3 rm s3://pictures/old.jpg", 1, 1, remove);
  add_action(*verb, outcome, "mb", "Makes a bucket", "atelier s3 mb s3://pictures", 1, 1,
             [](ObjectStore& store, const S3Options& options) -> Result<void> {
               return store.create_bucket(TRY(objects::parse_s3_uri(options.paths.front())).bucket);
             });
  add_action(*verb, outcome, "rb", "Removes an empty bucket", "atelier s3 rb s3://pictures", 1, 1,
             [](ObjectStore& store, const S3Options& options) -> Result<void> {
               return store.delete_bucket(TRY(objects::parse_s3_uri(options.paths.front())).bucket);
             });
}

}  // namespace atelier::cli
