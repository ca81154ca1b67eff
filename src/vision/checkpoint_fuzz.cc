// A checkpoint whose digest fits (checking that is not what is tried here) but whose content is
// anything: the first line is the values' JSON, the rest a safetensors file. What is read and fits
// a run is written and read as the same again, and can be reported without leaving its tables.
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "vision/internal/fine_tune_state.h"
#include "vision/optimizer.h"

namespace {

using namespace atelier;          // NOLINT: a fuzz target is all one function
using namespace atelier::vision;  // NOLINT

json::object read(const Checkpoint& checkpoint, FineTuneState& state, Result<void>& outcome) {
  StateReader reader(checkpoint);
  transfer(reader, state);
  // Another reader for what a fine-tuning reads into room of its own.
  const std::vector<std::size_t> sizes{3, 1};
  Optimizer optimizer({}, sizes);
  StateReader fixed(checkpoint);
  optimizer.transfer(fixed);
  ignore_error(fixed.finish(), "any outcome but a crash is right");
  outcome = reader.finish();
  if (!outcome) return {};
  StateWriter writer;
  transfer(writer, state);
  return writer.values();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::size_t end = text.find('\n');
  const Result<json::value> values = parse_json(text.substr(0, end));
  if (!values || !values->is_object()) return 0;
  const std::string_view rest = end == text.npos ? "" : text.substr(end + 1);
  Result<WeightFile> file = parse_weights(std::as_bytes(std::span(rest)));
  if (!file) return 0;
  Checkpoint checkpoint{1, "fuzz", values->as_object(), *std::move(file)};
  FineTuneState state;
  Result<void> outcome;
  const json::object written = read(checkpoint, state, outcome);
  if (!outcome) return 0;
  checkpoint.values = written;
  FineTuneState again;
  const json::object twice = read(checkpoint, again, outcome);
  ATELIER_CHECK(outcome && twice == written, "a state changed by being written");
  const std::vector<std::string> classes{"a", "b"};
  for (const bool multi_label : {false, true}) {
    if (!check_state(state, {.classes = classes.size(),
                             .multi_label = multi_label,
                             .trained_pictures = 100,
                             .validation_pictures = 10})) {
      continue;
    }
    const Evaluation& best = state.result.best.evaluation;
    if (state.result.best_epoch > 0) evaluation_to_json(best, classes);
    most_confused(best, 5);
    for (const Mistake& mistake : state.result.best.mistakes) {
      ATELIER_CHECK(
          mistake.index < 10 && mistake.truth < classes.size() && mistake.guess < classes.size(),
          "a mistake leads out of the pictures or classes");
    }
  }
  return 0;
}
