#include "vision/fine_tune.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "vision/optimizer.h"

namespace atelier::vision {
namespace {

constexpr double kSecondsBetweenLines = 3;
constexpr double kWarmUp = 0.1;
// Weights are averaged over the last few hundred steps; fewer at the start, so that it is not
// remembered.
constexpr double kAverageDecay = 0.995;

std::span<float> floats(const at::Tensor& tensor) {
  return {tensor.data_ptr<float>(), static_cast<std::size_t>(tensor.numel())};
}

Augmentation augmentation_of(const Hyperparameters& h) {
  Augmentation a;
  a.random_crop = h.random_crop_area < 1;
  a.scale = {h.random_crop_area, 1.0};
  a.ratio = {0.9, 1.1};
  a.flip = h.random_flip ? 0.5 : 0.0;
  if (h.augmentation_type == AugmentationType::kNone) return a;
  a.random_crop = true;
  if (h.random_crop_area >= 1) a.scale = {0.5, 1.0};
  a.ratio = {0.75, 4.0 / 3.0};
  if (h.augmentation_type != AugmentationType::kCrop) {
    a.brightness = 0.4;
    a.contrast = 0.4;
    a.saturation = 0.4;
  }
  return a;
}

// The state of one fine-tuning; one thread.
class FineTuner {
 public:
  FineTuner(Network& network, const Split& split, const FineTunePlan& plan)
      : network_(network), split_(split), plan_(plan), optimizer_({}, {}) {
    network.set_trained(plan.frozen_units);
    std::vector<std::size_t> sizes;
    for (NamedValue& value : network.values()) {
      averages_.push_back(value.tensor.detach().clone());
      if (value.buffer || value.unit < plan.frozen_units) continue;
      trained_.push_back(&value);
      sizes.push_back(static_cast<std::size_t>(value.tensor.numel()));
    }
    optimizer_ = Optimizer(plan.h.optimizer, sizes);
  }

  Result<FineTuneResult> run() {
    at::manual_seed(plan_.h.seed);
    start_ = plan_.budget->elapsed();
    const double processor_start = process_seconds();
    double best = -1;
    std::int64_t since_best = 0;
    for (std::int64_t epoch = 1; epoch <= plan_.h.epochs && !done_; ++epoch) {
      TRY(run_epoch(epoch));
      result_.images_per_second =
          static_cast<double>(result_.pictures) / std::max(1e-9, training_seconds_);
      if (result_.stopped && best >= 0) break;
      EvaluationRun validation = TRY(validate(epoch));
      const double improved_by = validation.evaluation.top_1 - best;
      if (improved_by > 0) {
        since_best = improved_by > plan_.h.early_stopping_tolerance * std::max(0.0, best)
                         ? 0
                         : since_best + 1;
        best += improved_by;
        keep_best(epoch, std::move(validation));
      } else {
        ++since_best;
      }
      if (plan_.h.early_stopping && epoch >= plan_.h.early_stopping_min_epochs &&
          since_best >= plan_.h.early_stopping_patience) {
        plan_.print(fmt::format("early stopping: no better for {} epochs", since_best));
        break;
      }
    }
    result_.images_per_processor_second =
        static_cast<double>(result_.pictures) / std::max(1e-9, process_seconds() - processor_start);
    restore_best();
    return std::move(result_);
  }

 private:
  [[nodiscard]] double progress() const {
    const double by_pictures =
        static_cast<double>(result_.pictures) /
        static_cast<double>(plan_.h.epochs * static_cast<std::int64_t>(split_.train.size()));
    const double reserve = plan_.reserve_seconds + evaluation_seconds_;
    return std::max(by_pictures, plan_.budget->spent(start_, reserve));
  }

  Result<void> run_epoch(std::int64_t epoch) {
    const double started = plan_.budget->elapsed();
    std::vector<std::uint32_t> order;
    for (const std::uint32_t i :
         shuffled_order(split_.train.size(), plan_.h.seed, static_cast<std::uint64_t>(epoch))) {
      order.push_back(split_.train[i]);
    }
    LoaderOptions loading;
    loading.preprocess = plan_.preprocess;
    loading.augmentation = augmentation_of(plan_.h);
    loading.batch_size = static_cast<std::size_t>(plan_.h.mini_batch_size);
    loading.last = LastBatch::kMergeSingle;
    loading.seed = plan_.h.seed;
    loading.epoch = static_cast<std::uint64_t>(epoch);
    loading.fail_on_damage = plan_.h.fail_on_corrupt;
    const auto loader = TRY(BatchLoader::create(*split_.train_folder, std::move(order), loading));
    epoch_loss_ = 0;
    epoch_correct_ = epoch_pictures_ = 0;
    std::size_t batches = 0;
    while (!done_) {
      std::optional<Batch> batch = TRY(loader->next());
      if (!batch) break;
      // Batch normalisation has no variance to go by in a single picture.
      if (batch->count > 1) TRY(step(*batch, epoch));
      loader->recycle(std::move(*batch));
      print_progress(epoch, ++batches, loader->batch_count());
      if (plan_.stopped()) done_ = result_.stopped = true;
      if (plan_.budget->spent(start_, plan_.reserve_seconds + evaluation_seconds_) >= 1) {
        done_ = result_.out_of_time = true;
      }
    }
    for (const DamagedPicture& picture : loader->damaged()) {
      result_.damaged[picture.path] = picture.reason.message;
    }
    if (epoch_pictures_ == 0) {
      return Error{Code::kFailedPrecondition, "fewer than two training pictures could be read"};
    }
    epoch_seconds_ = plan_.budget->elapsed() - started;
    training_seconds_ += epoch_seconds_;
    return {};
  }

  Result<void> step(const Batch& batch, std::int64_t epoch) {
    const double share =
        plan_.h.lr_scheduler_step.empty()
            ? cosine_share(progress(), kWarmUp)
            : step_share(epoch - 1, plan_.h.lr_scheduler_step, plan_.h.lr_scheduler_factor);
    const at::Tensor labels = at::from_blob(const_cast<std::int64_t*>(batch.labels.data()),
                                            {static_cast<std::int64_t>(batch.count)}, at::kLong);
    const Pass pass{.train = true, .frozen_units = plan_.frozen_units, .engine = plan_.engine};
    at::Tensor pooled = network_.features(batch_tensor(batch, plan_.preprocess), pass);
    if (plan_.h.dropout_rate > 0) pooled = at::dropout(pooled, plan_.h.dropout_rate, true);
    const at::Tensor logits = network_.logits(pooled);
    const at::Tensor loss = at::cross_entropy_loss(
        logits, labels, plan_.class_weights, at::Reduction::Mean, -100, plan_.h.label_smoothing);
    const double value = loss.item<double>();
    if (!std::isfinite(value)) {
      return Error{
          Code::kInvalidArgument,
          fmt::format("the training loss is {} at step {}: learning_rate {} is too high for "
                      "these pictures; try a third of it",
                      value, steps_ + 1, plan_.h.learning_rate)};
    }
    loss.backward();
    update(plan_.h.learning_rate * share);
    const auto count = static_cast<std::int64_t>(batch.count);
    epoch_loss_ += value * static_cast<double>(count);
    epoch_correct_ += logits.argmax(1).eq(labels).sum().item<std::int64_t>();
    epoch_pictures_ += count;
    result_.pictures += batch.count;
    recent_loss_ = steps_ == 1 ? value : 0.95 * recent_loss_ + 0.05 * value;
    return {};
  }

  void update(double learning_rate) {
    ++steps_;
    optimizer_.begin_step();
    for (std::size_t i = 0; i < trained_.size(); ++i) {
      at::Tensor& tensor = trained_[i]->tensor;
      const at::Tensor grad = tensor.grad().contiguous();
      const bool head = trained_[i]->unit == network_.unit_count();
      optimizer_.update(i, floats(tensor), floats(grad),
                        learning_rate * (head ? plan_.h.head_learning_rate_factor : 1.0),
                        tensor.dim() > 1);
      tensor.mutable_grad().reset();
    }
    const auto t = static_cast<double>(steps_);
    const auto decay = static_cast<float>(std::min(kAverageDecay, t / (9 + t)));
    for (std::size_t i = 0; i < averages_.size(); ++i) {
      average_into(floats(averages_[i]), floats(network_.values()[i].tensor), decay);
    }
  }

  // Exchanges the network's values with the averaged ones.
  void swap_averages() {
    for (std::size_t i = 0; i < averages_.size(); ++i) {
      const std::span<float> values = floats(network_.values()[i].tensor);
      const std::span<float> averages = floats(averages_[i]);
      std::swap_ranges(values.begin(), values.end(), averages.begin());
    }
  }

  // How good the averaged weights are.
  Result<EvaluationRun> validate(std::int64_t epoch) {
    EpochRecord record{.epoch = epoch, .seconds = epoch_seconds_};
    record.train_loss = epoch_loss_ / static_cast<double>(epoch_pictures_);
    record.train_accuracy =
        static_cast<double>(epoch_correct_) / static_cast<double>(epoch_pictures_);
    plan_.print(fmt::format("Epoch[{}] Train-accuracy={:.6f}", epoch, record.train_accuracy));
    plan_.print(fmt::format("Epoch[{}] Train-loss={:.6f}", epoch, record.train_loss));
    plan_.print(fmt::format("Epoch[{}] Time cost={:.3f}", epoch, epoch_seconds_));
    plan_.print(fmt::format("train-loss: {:.6f}", record.train_loss));
    const double started = plan_.budget->elapsed();
    EvaluationOptions options;
    options.engine = plan_.engine;
    options.flip_average = plan_.flip_average;
    options.k = static_cast<std::size_t>(plan_.h.top_k);
    options.fail_on_damage = plan_.h.fail_on_corrupt;
    swap_averages();
    Result<EvaluationRun> run =
        evaluate(network_, *split_.validation_folder, split_.validation, plan_.preprocess, options);
    swap_averages();
    if (!run) return run.error();
    evaluation_seconds_ = plan_.budget->elapsed() - started;
    for (const std::string& line : validation_lines(epoch, run->evaluation)) plan_.print(line);
    record.validation_accuracy = run->evaluation.top_1;
    record.validation_top_k = run->evaluation.top_k;
    record.validation_loss = run->evaluation.loss;
    result_.epochs.push_back(record);
    return run;
  }

  void keep_best(std::int64_t epoch, EvaluationRun validation) {
    result_.best_epoch = epoch;
    result_.best = std::move(validation);
    best_.clear();
    for (const at::Tensor& average : averages_) best_.push_back(average.clone());
  }

  void restore_best() {
    const at::NoGradGuard no_gradients;
    for (std::size_t i = 0; i < best_.size(); ++i) network_.values()[i].tensor.copy_(best_[i]);
  }

  void print_progress(std::int64_t epoch, std::size_t batch, std::size_t batches) {
    const double now = plan_.budget->elapsed();
    if (now - last_line_ < kSecondsBetweenLines) return;
    const double since = now - std::max(last_line_, start_);
    const double rate =
        static_cast<double>(result_.pictures - pictures_at_line_) / std::max(1e-9, since);
    last_line_ = now;
    pictures_at_line_ = result_.pictures;
    const double p = progress();
    const double eta = p > 0 ? (now - start_) * (1 - p) / p : 0;
    plan_.print(
        fmt::format("progress: phase=fine-tune epoch={}/{} step={}/{} images_per_second={:.0f} "
                    "eta_seconds={:.0f} train_loss={:.4f}",
                    epoch, plan_.h.epochs, batch, batches, rate, eta, recent_loss_));
  }

  Network& network_;
  const Split& split_;
  const FineTunePlan& plan_;
  Optimizer optimizer_;
  std::vector<NamedValue*> trained_;
  std::vector<at::Tensor> averages_, best_;
  FineTuneResult result_;
  bool done_ = false;
  std::int64_t steps_ = 0;
  double start_ = 0, epoch_seconds_ = 0, training_seconds_ = 0, evaluation_seconds_ = 0;
  double epoch_loss_ = 0, recent_loss_ = 0, last_line_ = 0;
  std::int64_t epoch_correct_ = 0, epoch_pictures_ = 0;
  std::uint64_t pictures_at_line_ = 0;
};

}  // namespace

std::vector<std::string> validation_lines(std::int64_t epoch, const Evaluation& e) {
  return {fmt::format("Epoch[{}] Validation-accuracy={:.6f}", epoch, e.top_1),
          fmt::format("Epoch[{}] Validation-top_k_accuracy_{}={:.6f}", epoch, e.k, e.top_k),
          fmt::format("Epoch[{}] Validation-loss={:.6f}", epoch, e.loss),
          fmt::format("val_accuracy: {:.6f}", e.top_1),
          fmt::format("val_top_{}_accuracy: {:.6f}", e.k, e.top_k),
          fmt::format("val_loss: {:.6f}", e.loss)};
}

Result<FineTuneResult> fine_tune(Network& network, const Split& split, const FineTunePlan& plan) {
  return FineTuner(network, split, plan).run();
}

}  // namespace atelier::vision
