#include "vision/predict_command.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/file.h"
#include "base/json.h"
#include "vision/classify.h"
#include "vision/host_probe.h"
#include "vision/model_files.h"

namespace atelier::vision {
namespace {

constexpr std::size_t kBatch = 64;

json::object row_to_json(const std::string& file, std::span<const float> row, const Model& model,
                         const PredictCommand& command) {
  std::vector<std::size_t> order(row.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const std::size_t shown = std::min(command.top_k, row.size());
  std::partial_sort(
      order.begin(), order.begin() + static_cast<std::ptrdiff_t>(shown), order.end(),
      [&](std::size_t a, std::size_t b) { return row[a] != row[b] ? row[a] > row[b] : a < b; });
  json::array top;
  for (std::size_t i = 0; i < shown; ++i) {
    top.push_back(
        {{"label", model.classes[order[i]]}, {"index", order[i]}, {"probability", row[order[i]]}});
  }
  json::object line{{"file", file}, {"top", std::move(top)}};
  if (model.multi_label) {
    json::array& labels = line["labels"].emplace_array();
    for (std::size_t c = 0; c < row.size(); ++c) {
      if (row[c] >= 0.5F) labels.emplace_back(model.classes[c]);
    }
  }
  if (command.probabilities) line["prediction"] = json::array(row.begin(), row.end());
  return line;
}

// Predicts the files [first, last); those that cannot be read get a line with the reason.
std::size_t predict_batch(const Model& model, const PredictCommand& command, std::size_t first,
                          std::size_t last, Scratch& scratch) {
  const std::size_t size = model.preprocess.output_floats();
  std::vector<Result<void>> outcomes;
  Batch batch;
  batch.pixels = PixelBuffer((last - first) * size);
  for (std::size_t i = first; i < last; ++i) {
    const std::span<float> row(batch.pixels.data() + batch.count * size, size);
    const Result<std::string> bytes = read_file(command.files[i]);
    outcomes.push_back(
        bytes ? preprocess(std::as_bytes(std::span(*bytes)), model.preprocess, row, scratch)
              : Result<void>(bytes.error()));
    if (outcomes.back()) ++batch.count;
  }
  at::Tensor probabilities;
  if (batch.count > 0) {
    probabilities = class_probabilities(model.network, batch_tensor(batch, model.preprocess),
                                        Engine::kFused, model.flip_average, model.multi_label);
  }
  const std::size_t classes = model.classes.size();
  std::size_t failed = 0;
  std::size_t row = 0;
  for (std::size_t i = first; i < last; ++i) {
    const Result<void>& outcome = outcomes[i - first];
    if (outcome) {
      const float* values = probabilities.data_ptr<float>() + row++ * classes;
      command.print(
          json::serialize(row_to_json(command.files[i], {values, classes}, model, command)));
    } else {
      ++failed;
      command.print(json::serialize(
          json::object{{"file", command.files[i]}, {"error", outcome.error().message}}));
    }
  }
  return failed;
}

}  // namespace

Result<std::size_t> run_prediction(const PredictCommand& command) {
  try {
    at::set_num_threads(available_processors());
    const TempFolder scratch_folder = TRY(TempFolder::create());
    const Model model = TRY(load_model(command.model, scratch_folder.path()));
    Scratch scratch;
    std::size_t failed = 0;
    for (std::size_t first = 0; first < command.files.size(); first += kBatch) {
      failed += predict_batch(model, command, first, std::min(command.files.size(), first + kBatch),
                              scratch);
    }
    return failed;
  } catch (const c10::Error& error) {
    return Error{Code::kInternal, fmt::format("libtorch: {}", error.what_without_backtrace())};
  } catch (const std::exception& error) {
    return Error{Code::kInternal, error.what()};
  }
}

}  // namespace atelier::vision
