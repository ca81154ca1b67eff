#include "vision/fine_tune.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "base/rng.h"
#include "vision/classify.h"
#include "vision/internal/fine_tune_state.h"
#include "vision/optimizer.h"

namespace atelier::vision {
namespace {

constexpr double kSecondsBetweenLines = 3;
constexpr double kWarmUp = 0.1;
// Weights are averaged over the last few hundred steps; fewer at the start, so that it is not
// remembered.
constexpr double kAverageDecay = 0.995;
constexpr std::uint64_t kDropoutStream = 0x64726f70;

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
    s_.start = last_line_ = counted_ = plan.budget->elapsed();
    processor_counted_ = process_seconds();
  }

  Result<FineTuneResult> run() {
    if (plan_.resume != nullptr) TRY(resume());
    while (!s_.finished && !result().stopped) {
      if (!s_.epoch_trained) TRY(run_epoch());
      if (!result().stopped) TRY(finish_epoch());
    }
    if (result().stopped) save();
    result().images_per_second =
        static_cast<double>(result().pictures) / std::max(1e-9, s_.training_seconds);
    result().images_per_processor_second =
        static_cast<double>(result().pictures) / std::max(1e-9, result().processor_seconds);
    leave_best();
    return std::move(s_.result);
  }

 private:
  FineTuneResult& result() { return s_.result; }

  [[nodiscard]] double progress() const {
    const double by_pictures =
        static_cast<double>(s_.result.pictures) /
        static_cast<double>(plan_.h.epochs * static_cast<std::int64_t>(split_.train.size()));
    return std::max(by_pictures, plan_.budget->spent(s_.start, reserve()));
  }
  [[nodiscard]] double reserve() const { return plan_.reserve_seconds + s_.evaluation_seconds; }

  // All that the rest of the run depends on, in both directions.
  template <typename Archive>
  void transfer_all(Archive& archive) {
    transfer(archive, s_);
    optimizer_.transfer(archive);
    if (result().best_epoch > 0 && best_.empty()) best_ = copies_of(averages_);
    for (std::size_t i = 0; i < averages_.size(); ++i) {
      const NamedValue& value = network_.values()[i];
      archive("value." + value.name, floats(value.tensor));
      archive("average." + value.name, floats(averages_[i]));
      if (!best_.empty()) archive("best." + value.name, floats(best_[i]));
    }
  }

  Result<void> resume() {
    StateReader reader(*plan_.resume);
    transfer_all(reader);
    TRY(reader.finish());
    TRY(check_state(s_, {.classes = static_cast<std::size_t>(network_.class_count()),
                         .multi_label = split_.train_folder->multi_label,
                         .trained_pictures = split_.train.size(),
                         .validation_pictures = split_.validation_folder->samples.size()}));
    pictures_at_line_ = result().pictures;
    plan_.print(fmt::format("resumed: epoch={}/{} batch={} steps={} checkpoint={}", s_.epoch,
                            plan_.h.epochs, s_.next_batch, s_.steps,
                            plan_.resume->path.filename().string()));
    return {};
  }

  void save() {
    if (!plan_.save_checkpoint) return;
    StateWriter writer;
    transfer_all(writer);
    plan_.save_checkpoint(writer);
  }
  void save_when_due(bool end_of_epoch) {
    if (plan_.checkpoint_due && plan_.checkpoint_due(end_of_epoch)) save();
  }

  // Adds the seconds since the last call to what the run has taken.
  void count_time(bool training) {
    const double now = plan_.budget->elapsed();
    const double processor_now = process_seconds();
    result().processor_seconds += processor_now - processor_counted_;
    if (training) {
      s_.epoch_seconds += now - counted_;
      s_.training_seconds += now - counted_;
    }
    counted_ = now;
    processor_counted_ = processor_now;
  }

  Result<std::unique_ptr<BatchLoader>> open_epoch() const {
    const auto epoch = static_cast<std::uint64_t>(s_.epoch);
    std::vector<std::uint32_t> order;
    for (const std::uint32_t i : shuffled_order(split_.train.size(), plan_.h.seed, epoch)) {
      order.push_back(split_.train[i]);
    }
    LoaderOptions loading;
    loading.preprocess = plan_.preprocess;
    loading.augmentation = augmentation_of(plan_.h);
    loading.batch_size = static_cast<std::size_t>(plan_.h.mini_batch_size);
    loading.first_batch = s_.next_batch;
    loading.last = LastBatch::kMergeSingle;
    loading.seed = plan_.h.seed;
    loading.epoch = epoch;
    loading.fail_on_damage = plan_.h.fail_on_corrupt;
    return BatchLoader::create(*split_.train_folder, std::move(order), loading);
  }

  Result<void> run_epoch() {
    count_time(false);
    const auto loader = TRY(open_epoch());
    bool out_of_batches = false;
    while (!result().stopped && !result().out_of_time) {
      std::optional<Batch> batch = TRY(loader->next());
      out_of_batches = !batch;
      if (!batch) break;
      // Batch normalisation has no variance to go by in a single picture.
      if (batch->count > 1) TRY(step(*batch));
      loader->recycle(std::move(*batch));
      s_.next_batch = loader->position();
      for (const DamagedPicture& picture : loader->damaged()) {
        result().damaged[picture.path] = picture.reason.message;
      }
      count_time(true);
      print_progress(loader->batch_count());
      if (plan_.stopped()) result().stopped = true;
      if (plan_.budget->spent(s_.start, reserve()) >= 1) result().out_of_time = true;
      if (!result().stopped) save_when_due(false);
    }
    s_.epoch_trained = out_of_batches || result().out_of_time;
    if (s_.epoch_trained && s_.epoch_pictures == 0) {
      return Error{Code::kFailedPrecondition, "fewer than two training pictures could be read"};
    }
    return {};
  }

  // Validates, keeps the best, and says whether there is another epoch.
  Result<void> finish_epoch() {
    std::optional<EvaluationRun> validation = TRY(validate());
    if (!validation) {
      result().stopped = true;
      return {};
    }
    const double improved_by = validation->evaluation.top_1 - s_.best_accuracy;
    if (improved_by > 0) {
      s_.since_best =
          improved_by > plan_.h.early_stopping_tolerance * std::max(0.0, s_.best_accuracy)
              ? 0
              : s_.since_best + 1;
      s_.best_accuracy = validation->evaluation.top_1;
      keep_best(*std::move(validation));
    } else {
      ++s_.since_best;
    }
    s_.finished = s_.epoch >= plan_.h.epochs || result().out_of_time;
    if (plan_.h.early_stopping && s_.epoch >= plan_.h.early_stopping_min_epochs &&
        s_.since_best >= plan_.h.early_stopping_patience) {
      plan_.print(fmt::format("early stopping: no better for {} epochs", s_.since_best));
      s_.finished = true;
    }
    ++s_.epoch;
    s_.next_batch = 0;
    s_.epoch_trained = false;
    s_.epoch_loss = s_.epoch_seconds = 0;
    s_.epoch_correct = s_.epoch_pictures = 0;
    count_time(false);
    save_when_due(true);
    return {};
  }

  Result<void> step(const Batch& batch) {
    const double share =
        plan_.h.lr_scheduler_step.empty()
            ? cosine_share(progress(), kWarmUp)
            : step_share(s_.epoch - 1, plan_.h.lr_scheduler_step, plan_.h.lr_scheduler_factor);
    const at::Tensor targets = targets_of(*split_.train_folder, batch.indices);
    // Drawn by counter: the same after a resume.
    at::manual_seed(rng(plan_.h.seed, kDropoutStream, static_cast<std::uint64_t>(s_.steps)));
    const Pass pass{.train = true, .frozen_units = plan_.frozen_units, .engine = plan_.engine};
    at::Tensor pooled = network_.features(batch_tensor(batch, plan_.preprocess), pass);
    if (plan_.h.dropout_rate > 0) pooled = at::dropout(pooled, plan_.h.dropout_rate, true);
    const at::Tensor logits = network_.logits(pooled);
    const at::Tensor loss =
        training_loss(logits, targets, plan_.class_weights, plan_.h.label_smoothing);
    const double value = loss.item<double>();
    if (!std::isfinite(value)) {
      return Error{
          Code::kInvalidArgument,
          fmt::format("the training loss is {} at step {}: learning_rate {} is too high for "
                      "these pictures; try a third of it",
                      value, s_.steps + 1, plan_.h.learning_rate)};
    }
    loss.backward();
    update(plan_.h.learning_rate * share);
    const auto count = static_cast<std::int64_t>(batch.count);
    s_.epoch_loss += value * static_cast<double>(count);
    s_.epoch_correct += right_answers(logits, targets);
    s_.epoch_pictures += count;
    result().pictures += batch.count;
    s_.recent_loss = s_.steps == 1 ? value : 0.95 * s_.recent_loss + 0.05 * value;
    return {};
  }

  void update(double learning_rate) {
    ++s_.steps;
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
    const auto t = static_cast<double>(s_.steps);
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

  [[nodiscard]] std::int64_t answers_per_picture() const {
    return split_.train_folder->multi_label ? network_.class_count() : 1;
  }

  // How good the averaged weights are; nothing when it was stopped.
  Result<std::optional<EvaluationRun>> validate() {
    const std::int64_t epoch = s_.epoch;
    EpochRecord record{.epoch = epoch, .seconds = s_.epoch_seconds};
    record.train_loss = s_.epoch_loss / static_cast<double>(s_.epoch_pictures);
    record.train_accuracy = static_cast<double>(s_.epoch_correct) /
                            static_cast<double>(s_.epoch_pictures * answers_per_picture());
    plan_.print(fmt::format("Epoch[{}] Train-accuracy={:.6f}", epoch, record.train_accuracy));
    plan_.print(fmt::format("Epoch[{}] Train-loss={:.6f}", epoch, record.train_loss));
    plan_.print(fmt::format("Epoch[{}] Time cost={:.3f}", epoch, s_.epoch_seconds));
    plan_.print(fmt::format("train-loss: {:.6f}", record.train_loss));
    const double started = plan_.budget->elapsed();
    EvaluationOptions options;
    options.engine = plan_.engine;
    options.flip_average = plan_.flip_average;
    options.k = static_cast<std::size_t>(plan_.h.top_k);
    options.fail_on_damage = plan_.h.fail_on_corrupt;
    options.progress = [this](std::size_t, std::size_t) { return !plan_.stopped(); };
    swap_averages();
    Result<EvaluationRun> run =
        evaluate(network_, *split_.validation_folder, split_.validation, plan_.preprocess, options);
    swap_averages();
    if (!run && run.error().code == Code::kCancelled) return std::optional<EvaluationRun>{};
    if (!run) return run.error();
    s_.evaluation_seconds = plan_.budget->elapsed() - started;
    for (const std::string& line : validation_lines(epoch, run->evaluation)) plan_.print(line);
    record.validation_accuracy = run->evaluation.top_1;
    record.validation_top_k = run->evaluation.top_k;
    record.validation_f1 = run->evaluation.micro_f1;
    record.validation_loss = run->evaluation.loss;
    result().epochs.push_back(record);
    return std::optional<EvaluationRun>(*std::move(run));
  }

  static std::vector<at::Tensor> copies_of(const std::vector<at::Tensor>& tensors) {
    std::vector<at::Tensor> copies;
    for (const at::Tensor& tensor : tensors) copies.push_back(tensor.clone());
    return copies;
  }

  void keep_best(EvaluationRun validation) {
    result().best_epoch = s_.epoch;
    result().best = std::move(validation);
    best_ = copies_of(averages_);
  }

  void leave_best() {
    const at::NoGradGuard no_gradients;
    const std::vector<at::Tensor>& left = best_.empty() ? averages_ : best_;
    for (std::size_t i = 0; i < left.size(); ++i) network_.values()[i].tensor.copy_(left[i]);
  }

  void print_progress(std::size_t batches) {
    const double now = plan_.budget->elapsed();
    if (now - last_line_ < kSecondsBetweenLines) return;
    const double since = now - last_line_;
    const double rate =
        static_cast<double>(result().pictures - pictures_at_line_) / std::max(1e-9, since);
    last_line_ = now;
    pictures_at_line_ = result().pictures;
    const double p = progress();
    const double eta = p > 0 ? (now - s_.start) * (1 - p) / p : 0;
    plan_.print(
        fmt::format("progress: phase=fine-tune epoch={}/{} step={}/{} images_per_second={:.0f} "
                    "eta_seconds={:.0f} train_loss={:.4f}",
                    s_.epoch, plan_.h.epochs, s_.next_batch, batches, rate, eta, s_.recent_loss));
  }

  Network& network_;
  const Split& split_;
  const FineTunePlan& plan_;
  Optimizer optimizer_;
  std::vector<NamedValue*> trained_;
  std::vector<at::Tensor> averages_, best_;
  FineTuneState s_;
  double counted_ = 0, processor_counted_ = 0, last_line_ = 0;
  std::uint64_t pictures_at_line_ = 0;
};

}  // namespace

std::vector<std::string> validation_lines(std::int64_t epoch, const Evaluation& e) {
  if (e.multi_label) {
    return {fmt::format("Epoch[{}] Validation-accuracy={:.6f}", epoch, e.top_1),
            fmt::format("Epoch[{}] Validation-f1={:.6f}", epoch, e.micro_f1),
            fmt::format("Epoch[{}] Validation-macro_f1={:.6f}", epoch, e.macro_f1),
            fmt::format("Epoch[{}] Validation-loss={:.6f}", epoch, e.loss),
            fmt::format("val_accuracy: {:.6f}", e.top_1),
            fmt::format("val_f1: {:.6f}", e.micro_f1),
            fmt::format("val_loss: {:.6f}", e.loss)};
  }
  return {fmt::format("Epoch[{}] Validation-accuracy={:.6f}", epoch, e.top_1),
          fmt::format("Epoch[{}] Validation-top_k_accuracy_{}={:.6f}", epoch, e.k, e.top_k),
          fmt::format("Epoch[{}] Validation-loss={:.6f}", epoch, e.loss),
          fmt::format("val_accuracy: {:.6f}", e.top_1),
          fmt::format("val_top_{}_accuracy: {:.6f}", e.k, e.top_k),
          fmt::format("val_loss: {:.6f}", e.loss)};
}

boost::json::array epochs_to_json(const std::vector<EpochRecord>& epochs, bool multi_label) {
  json::array array;
  for (const EpochRecord& r : epochs) {
    json::object one{{"epoch", r.epoch},
                     {"seconds", r.seconds},
                     {"train_loss", r.train_loss},
                     {"train_accuracy", r.train_accuracy},
                     {"validation_accuracy", r.validation_accuracy},
                     {"validation_loss", r.validation_loss}};
    if (multi_label) {
      one["validation_f1"] = r.validation_f1;
    } else {
      one["validation_top_k_accuracy"] = r.validation_top_k;
    }
    array.push_back(std::move(one));
  }
  return array;
}

Result<FineTuneResult> fine_tune(Network& network, const Split& split, const FineTunePlan& plan) {
  return FineTuner(network, split, plan).run();
}

}  // namespace atelier::vision
