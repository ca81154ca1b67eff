// What an import made, as JSON: the file that marks an import as complete.
#pragma once

#include <optional>
#include <string>

#include "datasets/import.h"

namespace atelier::datasets {

// Counts an import as it goes, and gives each file to the sink.
class Recorder {
 public:
  // `source` identifies the input and the options: the same source makes the same files.
  Recorder(std::string dataset, std::string source, Sink& sink, const Progress& progress)
      : dataset_(std::move(dataset)),
        source_(std::move(source)),
        sink_(sink),
        progress_(progress) {}

  // The summary of an earlier import of this very source into the sink, if there is one.
  Result<std::optional<Summary>> earlier();

  void set_classes(std::vector<std::string> classes);
  // Entries besides the usual ones in the manifest, such as ids: JSON text of a value.
  void set_extra(std::string name, std::string json) {
    extra_.emplace_back(std::move(name), std::move(json));
  }
  void set_total(std::uint64_t total) { total_ = total; }
  // A picture of class number `label` at SPLIT/CLASS/name (CLASS/name when `split` is empty).
  Result<void> put(const std::string& split, std::size_t label, const std::string& name,
                   std::string bytes);
  // One that was left out, with the reason.
  void leave_out(std::string reason);
  void warn(std::string text);
  Result<Summary> finish();

 private:
  std::string dataset_;
  std::string source_;
  Sink& sink_;
  const Progress& progress_;
  Summary summary_;
  std::vector<std::pair<std::string, std::string>> extra_;
  std::uint64_t total_ = 0;
  std::uint64_t done_ = 0;
  std::uint64_t suppressed_ = 0;
};

// kInvalidArgument unless the path is relative, with '/', without empty, "." or ".." parts and
// control characters.
Result<void> check_relative_path(const std::string& path);

}  // namespace atelier::datasets
