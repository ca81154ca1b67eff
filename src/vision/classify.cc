#include "vision/classify.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>

namespace atelier::vision {
namespace {

void note_mistakes(const Batch& batch, const at::Tensor& probabilities,
                   std::vector<Mistake>& mistakes) {
  const std::int64_t classes = probabilities.size(1);
  const float* row = probabilities.data_ptr<float>();
  for (std::size_t i = 0; i < batch.count; ++i, row += classes) {
    const auto guess = static_cast<std::uint32_t>(std::max_element(row, row + classes) - row);
    const auto truth = static_cast<std::uint32_t>(batch.labels[i]);
    if (guess != truth) mistakes.push_back({batch.indices[i], truth, guess, row[guess]});
  }
}

}  // namespace

at::Tensor batch_tensor(const Batch& batch, const Preprocess& spec) {
  return at::from_blob(
             batch.pixels.data(),
             {static_cast<std::int64_t>(batch.count), spec.height, spec.width, spec.channels},
             at::TensorOptions().dtype(at::kFloat))
      .permute({0, 3, 1, 2});
}

at::Tensor class_probabilities(const Network& network, const at::Tensor& pictures, Engine engine,
                               bool flip_average) {
  const at::NoGradGuard no_gradients;
  const Pass pass{.engine = engine};
  const auto softmax = [&](const at::Tensor& view) {
    return at::softmax(network.logits(network.features(view, pass)), 1);
  };
  at::Tensor probabilities = softmax(pictures);
  if (flip_average) {
    probabilities = (probabilities + softmax(at::flip(pictures, {3}))) * 0.5;
  }
  return probabilities.contiguous();
}

Result<EvaluationRun> evaluate(const Network& network, const ImageFolder& folder,
                               std::vector<std::uint32_t> order, const Preprocess& spec,
                               const EvaluationOptions& options) {
  const std::size_t all = order.size();
  LoaderOptions loading;
  loading.preprocess = spec;
  loading.batch_size = options.batch_size;
  loading.threads = options.threads;
  loading.fail_on_damage = options.fail_on_damage;
  const auto loader = TRY(BatchLoader::create(folder, std::move(order), loading));
  Evaluator evaluator(static_cast<std::size_t>(network.class_count()), options.k);
  EvaluationRun run;
  std::size_t done = 0;
  for (;;) {
    std::optional<Batch> batch = TRY(loader->next());
    if (!batch) break;
    done += batch->count;
    if (batch->count > 0) {
      const at::Tensor probabilities = class_probabilities(network, batch_tensor(*batch, spec),
                                                           options.engine, options.flip_average);
      evaluator.add(std::span(probabilities.data_ptr<float>(),
                              static_cast<std::size_t>(probabilities.numel())),
                    batch->labels);
      note_mistakes(*batch, probabilities, run.mistakes);
    }
    loader->recycle(std::move(*batch));
    if (options.progress && !options.progress(done, all)) {
      return Error{Code::kCancelled, fmt::format("stopped after {} of {} pictures", done, all)};
    }
  }
  std::stable_sort(
      run.mistakes.begin(), run.mistakes.end(),
      [](const Mistake& a, const Mistake& b) { return a.probability > b.probability; });
  if (run.mistakes.size() > options.max_mistakes) run.mistakes.resize(options.max_mistakes);
  run.evaluation = evaluator.finish();
  run.damaged = loader->damaged();
  return run;
}

}  // namespace atelier::vision
