#include <fmt/core.h>
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "base/json.h"
#include "cli/connection.h"
#include "cli/object_sink.h"
#include "cli/terminal.h"
#include "cli/verbs.h"
#include "datasets/import.h"

namespace atelier::cli {
namespace {

struct ImportOptions {
  std::string kind;
  std::vector<std::string> paths;  // [SOURCE] DESTINATION
  std::string data_folder;
  std::uint32_t validation = 5000;
  std::uint32_t limit = 0;
  std::uint64_t seed = 1;
  bool crop_to_box = false;
  bool upper_body_only = false;
  bool as_json = false;
};

Result<datasets::Summary> run_importer(const ImportOptions& options, datasets::Sink& sink,
                                       const datasets::Progress& progress) {
  const std::string source = options.paths.size() == 2 ? options.paths.front() : "";
  if (options.kind == "fashion-mnist") {
    datasets::FashionMnistOptions from;
    if (!source.empty()) from.source = source;
    from.validation = options.validation;
    from.limit = options.limit;
    from.seed = options.seed;
    return datasets::import_fashion_mnist(from, sink, progress);
  }
  if (source.empty()) {
    return Error{
        Code::kInvalidArgument,
        fmt::format(
            "'{}' needs a source and a destination: atelier dataset import {} SOURCE DESTINATION",
            options.kind, options.kind)};
  }
  if (options.kind == "imagefolder") {
    datasets::ImageFolderOptions from;
    from.source = source;
    return datasets::import_image_folder(from, sink, progress);
  }
  datasets::DeepFashionOptions from;
  from.source = source;
  from.crop_to_box = options.crop_to_box;
  from.upper_body_only = options.upper_body_only;
  return datasets::import_deepfashion(from, sink, progress);
}

json::object as_json(const datasets::Summary& summary, const std::string& destination) {
  json::object counts;
  for (const auto& [split, pictures] : summary.counts) {
    json::object per_class;
    for (std::size_t i = 0; i < summary.classes.size() && i < pictures.size(); ++i) {
      per_class[summary.classes[i]] = pictures[i];
    }
    counts[split] = per_class;
  }
  return {{"destination", destination},
          {"repeated", summary.repeated},
          {"classes", json::value_from(summary.classes)},
          {"counts", counts},
          {"files", summary.files},
          {"bytes", summary.bytes},
          {"warnings", json::value_from(summary.warnings)}};
}

void print_summary(const datasets::Summary& summary, const std::string& destination) {
  std::string splits;
  for (const auto& [split, pictures] : summary.counts) {
    std::uint64_t count = 0;
    for (const std::uint64_t n : pictures) count += n;
    splits += fmt::format("{}{} {}", splits.empty() ? "" : ", ", split.empty() ? "pictures" : split,
                          format_count(static_cast<double>(count)));
  }
  std::cout << fmt::format("{} {}: {} classes; {}\n",
                           summary.repeated ? "already there:" : "imported to", destination,
                           summary.classes.size(), splits);
  for (const std::string& warning : summary.warnings) std::cout << "  note: " << warning << '\n';
}

Result<void> import(const ImportOptions& options) {
  const std::string& destination = options.paths.back();
  std::unique_ptr<objects::ObjectStore> store;
  std::unique_ptr<datasets::Sink> sink;
  if (destination.starts_with("s3://")) {
    store = objects::make_s3_client(s3_endpoint(TRY(find_connection(options.data_folder))));
    sink = TRY(object_sink(*store, destination));
  } else {
    sink = TRY(datasets::folder_sink(destination));
  }
  Progress shown{"importing", Progress::Unit::kItems, options.as_json};
  const datasets::Summary summary =
      TRY(run_importer(options, *sink, [&shown](std::uint64_t done, std::uint64_t total) {
        shown.update(done, total, "pictures");
      }));
  shown.finish();
  if (options.as_json)
    std::cout << pretty_json(as_json(summary, destination)) << '\n';
  else
    print_summary(summary, destination);
  return {};
}

}  // namespace

void add_dataset(CLI::App& program, Outcome& outcome) {
  CLI::App* verb = program.add_subcommand("dataset", "Brings data sets into class folders");
  verb->require_subcommand(1);
  verb->footer("Example: atelier dataset import imagefolder ./pictures s3://pictures/mine");
  auto options = std::make_shared<ImportOptions>();
  CLI::App* sub = verb->add_subcommand("import", "Imports a data set to a folder or s3://");
  sub->add_option("kind", options->kind, "fashion-mnist, imagefolder or deepfashion")
      ->required()
      ->check(CLI::IsMember({"fashion-mnist", "imagefolder", "deepfashion"}));
  sub->add_option("paths", options->paths,
                  "[SOURCE] DESTINATION; fashion-mnist finds Debian's package itself")
      ->required()
      ->expected(1, 2);
  sub->add_option("--data-dir", options->data_folder, "Data folder of the server, for s3://");
  sub->add_option("--validation", options->validation,
                  "fashion-mnist: so many training pictures become 'validation'")
      ->capture_default_str();
  sub->add_option("--limit", options->limit,
                  "fashion-mnist: at most so many pictures of each split; 0 is all")
      ->capture_default_str();
  sub->add_option("--seed", options->seed, "Of the draw of validation pictures")
      ->capture_default_str();
  sub->add_flag("--crop-to-box", options->crop_to_box, "deepfashion: crop to the published boxes");
  sub->add_flag("--upper-body-only", options->upper_body_only,
                "deepfashion: the 20 upper-body categories");
  sub->add_flag("--json", options->as_json, "For scripts");
  sub->footer(
      "Example: atelier dataset import fashion-mnist s3://pictures/fashion --data-dir ./data");
  sub->callback([options, &outcome] {
    const Result<void> done = import(*options);
    outcome.exit_code = done ? kOk : report_error(done.error());
  });
}

}  // namespace atelier::cli
