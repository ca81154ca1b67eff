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
                               bool flip_average, bool multi_label) {
  const at::NoGradGuard no_gradients;
  const Pass pass{.engine = engine};
  const auto of_view = [&](const at::Tensor& view) {
    const at::Tensor logits = network.logits(network.features(view, pass));
    return multi_label ? at::sigmoid(logits) : at::softmax(logits, 1);
  };
  at::Tensor probabilities = of_view(pictures);
  if (flip_average) {
    probabilities = (probabilities + of_view(at::flip(pictures, {3}))) * 0.5;
  }
  return probabilities.contiguous();
}

at::Tensor targets_of(const ImageFolder& folder, std::span<const std::uint32_t> samples) {
  const auto count = static_cast<std::int64_t>(samples.size());
  if (!folder.multi_label) {
    at::Tensor numbers = at::empty({count}, at::kLong);
    auto* to = numbers.data_ptr<std::int64_t>();
    for (const std::uint32_t sample : samples) *to++ = folder.samples[sample].label;
    return numbers;
  }
  const std::size_t classes = folder.classes.size();
  at::Tensor targets = at::zeros({count, static_cast<std::int64_t>(classes)}, at::kFloat);
  auto* row = targets.data_ptr<float>();
  for (const std::uint32_t sample : samples) {
    for (const std::uint32_t label : folder.label_sets[sample]) row[label] = 1;
    row += classes;
  }
  return targets;
}

at::Tensor training_loss(const at::Tensor& logits, const at::Tensor& targets,
                         const at::Tensor& weights, double label_smoothing) {
  if (targets.dim() == 1) {
    return at::cross_entropy_loss(logits, targets, weights, at::Reduction::Mean, -100,
                                  label_smoothing);
  }
  const at::Tensor smoothed = targets * (1 - label_smoothing) + label_smoothing / 2;
  return at::binary_cross_entropy_with_logits(logits, smoothed, {}, weights, at::Reduction::Mean);
}

at::Tensor loss_weights(std::span<const std::uint64_t> counts, std::size_t pictures,
                        bool multi_label) {
  at::Tensor weights = at::zeros({static_cast<std::int64_t>(counts.size())}, at::kFloat);
  const auto all = static_cast<float>(pictures);
  for (std::size_t c = 0; c < counts.size(); ++c) {
    if (counts[c] == 0) continue;
    const auto count = static_cast<float>(counts[c]);
    weights.data_ptr<float>()[c] = multi_label ? std::clamp((all - count) / count, 0.01F, 100.0F)
                                               : all / (static_cast<float>(counts.size()) * count);
  }
  return weights;
}

std::int64_t right_answers(const at::Tensor& logits, const at::Tensor& targets) {
  if (targets.dim() == 1) return logits.argmax(1).eq(targets).sum().item<std::int64_t>();
  return logits.ge(0).eq(targets.ge(0.5)).sum().item<std::int64_t>();
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
  const auto classes = static_cast<std::size_t>(network.class_count());
  Evaluator evaluator(classes, options.k, folder.multi_label);
  EvaluationRun run;
  std::size_t done = 0;
  for (;;) {
    std::optional<Batch> batch = TRY(loader->next());
    if (!batch) break;
    done += batch->count;
    if (batch->count > 0) {
      const at::Tensor probabilities =
          class_probabilities(network, batch_tensor(*batch, spec), options.engine,
                              options.flip_average, folder.multi_label);
      const std::span<const float> rows(probabilities.data_ptr<float>(),
                                        static_cast<std::size_t>(probabilities.numel()));
      if (folder.multi_label) {
        for (std::size_t i = 0; i < batch->count; ++i) {
          evaluator.add_set(rows.subspan(i * classes, classes),
                            folder.label_sets[batch->indices[i]]);
        }
      } else {
        evaluator.add(rows, batch->labels);
        note_mistakes(*batch, probabilities, run.mistakes);
      }
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
