#include "cli/results.h"

#include <fcntl.h>
#include <fmt/core.h>

#include <iostream>

#include "archives/archive_reader.h"
#include "base/file.h"
#include "base/json.h"
#include "cli/terminal.h"

namespace atelier::cli {
namespace {
namespace fs = std::filesystem;
using archives::ArchiveReader;

// Far above what the built-in algorithm writes; a bound against archives made to fill a disk.
constexpr archives::Limits kLimits{.max_bytes = std::uint64_t{4} << 30, .max_members = 100'000};

Result<fs::path> place_below(const fs::path& folder, const std::string& member) {
  const fs::path relative = fs::path{member}.lexically_normal();
  const bool leaves = relative.empty() || relative.is_absolute() || *relative.begin() == "..";
  if (leaves)
    return Error{Code::kDataLoss,
                 fmt::format("the archive's member '{}' would land outside of '{}'", member,
                             folder.string())};
  return folder / relative;
}

Result<void> write_member(ArchiveReader& in, const fs::path& target) {
  if (target.has_parent_path()) TRY(make_folders(target.parent_path()));
  // A link left in the folder is replaced, never written through.
  std::error_code ignored;
  if (fs::is_symlink(fs::symlink_status(target, ignored))) fs::remove(target, ignored);
  const UniqueFd out = TRY(open_file(target, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0644));
  return in.copy_to(out.get());
}

std::string percent(double share) { return fmt::format("{:.2f} %", share * 100); }

void print_evaluation(std::string_view name, const json::value& part) {
  const bool colour = colour_on_stdout();
  if (const json::object* micro = find_object(part, "micro")) {  // several labels a picture
    std::cout << "  "
              << styled(fmt::format("{:<10}  accuracy {}   F1 {}   all labels right {}", name,
                                    percent(find_number(part, "accuracy").value_or(0)),
                                    percent(find_number(*micro, "f1").value_or(0)),
                                    percent(find_number(part, "exact").value_or(0))),
                        Style::kBold, colour)
              << fmt::format(
                     "   of {} pictures\n",
                     format_count(static_cast<double>(find_int(part, "count").value_or(0))));
    return;
  }
  const auto k = find_int(part, "k").value_or(1);
  std::cout << "  "
            << styled(fmt::format("{:<10}  top-1 {}   top-{} {}", name,
                                  percent(find_number(part, "accuracy").value_or(0)), k,
                                  percent(find_number(part, "top_k_accuracy").value_or(0))),
                      Style::kBold, colour)
            << fmt::format("   of {} pictures\n",
                           format_count(static_cast<double>(find_int(part, "count").value_or(0))));
}

void print_confusions(const json::value& part) {
  const json::array* confused = find_array(part, "most_confused");
  if (confused == nullptr || confused->empty()) return;
  std::cout << "  most confused\n";
  for (std::size_t i = 0; i < confused->size() && i < 5; ++i) {
    const json::value& row = (*confused)[i];
    std::cout << fmt::format("    {:>5} x  {} taken for {}\n", find_int(row, "count").value_or(0),
                             find_string(row, "truth").value_or(""),
                             find_string(row, "taken_for").value_or(""));
  }
}

}  // namespace

Result<std::vector<fs::path>> unpack_archive(const fs::path& archive_path, const fs::path& folder) {
  ArchiveReader in = TRY(ArchiveReader::open(archive_path, archives::Formats::kTarGz, kLimits));
  TRY(make_folders(folder));
  std::vector<fs::path> files;
  while (const std::optional<archives::Member> member = TRY(in.next())) {
    if (member->kind != archives::Member::Kind::kFile) continue;
    const fs::path target = TRY(place_below(folder, member->name));
    TRY(write_member(in, target));
    files.push_back(target.lexically_relative(folder));
  }
  return files;
}

Result<JobResults> fetch_results(objects::ObjectStore& store, const json::value& job,
                                 const fs::path& folder) {
  JobResults results;
  results.job_name = find_string(job, "TrainingJobName").value_or("");
  results.folder = folder;
  if (const json::object* artifacts = find_object(job, "ModelArtifacts")) {
    results.model_uri = find_string(*artifacts, "S3ModelArtifacts").value_or("");
  }
  const std::string status = find_string(job, "TrainingJobStatus").value_or("");
  if (status == "InProgress" || status == "Stopping") {
    return Error{
        Code::kFailedPrecondition,
        fmt::format("the job '{0}' has not ended yet; watch it with: atelier jobs logs -f {0}",
                    results.job_name)};
  }
  const json::object* output = find_object(job, "OutputDataConfig");
  std::string prefix = output == nullptr ? "" : find_string(*output, "S3OutputPath").value_or("");
  while (prefix.ends_with('/')) prefix.pop_back();
  const objects::Location at =
      TRY(objects::parse_s3_uri(prefix + "/" + results.job_name + "/output/output.tar.gz"));
  const TempFolder temporary = TRY(TempFolder::create());
  const fs::path archive_path = temporary.path() / "output.tar.gz";
  Result<objects::ObjectInfo> info = store.head(at.bucket, at.key);
  if (!info && info.error().code == Code::kNotFound) {
    return Error{Code::kNotFound,
                 fmt::format("the job '{}' left no results: there is no {}, which the built-in "
                             "image-classification leaves, and a script that writes to "
                             "/opt/ml/output/data{}",
                             results.job_name, at.uri(),
                             results.model_uri.empty() || status != "Completed"
                                 ? ""
                                 : "; its model is " + results.model_uri)};
  }
  if (!info)
    return info.error().within(fmt::format("the output of '{}' at {}", results.job_name, at.uri()));
  TRY(store.download_many(at.bucket, {{at.key, info->size, info->etag, archive_path}}, {}));
  results.files = TRY(unpack_archive(archive_path, folder));
  Result<json::value> evaluation = read_json_file(folder / "evaluation.json");
  if (evaluation)
    results.evaluation = std::make_shared<json::value>(std::move(*evaluation));
  else if (evaluation.error().code != Code::kNotFound)
    return evaluation.error();
  return results;
}

void print_results(const JobResults& results) {
  std::cout << styled(results.job_name, Style::kBold, colour_on_stdout()) << '\n';
  if (results.evaluation != nullptr && results.evaluation->is_object()) {
    for (const auto& part : results.evaluation->get_object())
      print_evaluation(part.key(), part.value());
    const json::object& parts = results.evaluation->get_object();
    if (!parts.empty())
      print_confusions(parts.contains("test") ? parts.at("test") : parts.begin()->value());
  }
  for (const fs::path& file : results.files) {
    if (file.extension() == ".png")
      std::cout << fmt::format("  picture  {}\n", (results.folder / file).string());
  }
  if (!results.model_uri.empty()) std::cout << fmt::format("  model    {}\n", results.model_uri);
}

json::value results_json(const JobResults& results) {
  json::array files;
  for (const fs::path& file : results.files)
    files.push_back(json::value((results.folder / file).string()));
  json::object object{
      {"job", results.job_name}, {"model", results.model_uri}, {"files", std::move(files)}};
  if (results.evaluation != nullptr) object["evaluation"] = *results.evaluation;
  return object;
}

}  // namespace atelier::cli
