#include "vision/head.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/file.h"
#include "base/hash.h"
#include "vision/classify.h"
#include "vision/internal/fine_tune_state.h"
#include "vision/optimizer.h"
#include "vision/schedule.h"

namespace atelier::vision {
namespace {

// A feature file: this header, the sample of each row, then the rows.
struct FeatureHeader {
  std::uint64_t magic = 0x3274616566746121ULL;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};

std::filesystem::path feature_file(const FeatureOptions& options, const Network& network,
                                   const std::vector<std::uint32_t>& order) {
  if (options.cache.empty()) return {};
  Hasher hasher(Digest::kSha256);
  hasher.update(options.content_key);
  hasher.update(
      fmt::format("|{}|{}|{}|", network.name(), engine_name(options.engine), options.mirrored_too));
  hasher.update(std::as_bytes(std::span(order)));
  return options.cache / ("features-" + to_hex(hasher.finish()).substr(0, 32) + ".bin");
}

Result<FeatureSet> read_features(const std::filesystem::path& path, std::int64_t columns) {
  const std::string bytes = TRY(read_file(path, std::size_t{16} << 30));
  FeatureHeader header;
  const FeatureHeader expected;
  if (bytes.size() < sizeof(header)) return Error{Code::kDataLoss, "a feature file is short"};
  std::memcpy(&header, bytes.data(), sizeof(header));
  const auto rows = static_cast<std::size_t>(header.rows);
  const std::size_t row_bytes = 4 + static_cast<std::size_t>(columns) * 4;
  if (header.magic != expected.magic || header.columns != columns || header.rows < 0 ||
      (bytes.size() - sizeof(header)) / row_bytes != rows ||
      (bytes.size() - sizeof(header)) % row_bytes != 0) {
    return Error{Code::kDataLoss, fmt::format("'{}' is no feature file", path.string())};
  }
  FeatureSet set;
  set.from_cache = true;
  set.samples.resize(rows);
  const char* at = bytes.data() + sizeof(header);
  std::memcpy(set.samples.data(), at, rows * 4);
  set.features = at::empty({header.rows, columns}, at::kFloat);
  std::memcpy(set.features.data_ptr(), at + rows * 4, rows * static_cast<std::size_t>(columns) * 4);
  return set;
}

void write_features(const std::filesystem::path& path, const FeatureSet& set) {
  const FeatureHeader header{.rows = set.features.size(0), .columns = set.features.size(1)};
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof(header));
  bytes.append(reinterpret_cast<const char*>(set.samples.data()), set.samples.size() * 4);
  bytes.append(static_cast<const char*>(set.features.data_ptr()),
               static_cast<std::size_t>(set.features.numel()) * 4);
  if (!make_folders(path.parent_path())) return;
  ignore_error(write_file_durably(path, bytes), "the next job computes them again");
}

// The features of one pass over a folder, kept part by part where a run may be interrupted. A part
// holds the rows of the batches [first, next) of the order.
class FeaturePass {
 public:
  FeaturePass(const Network& network, const ImageFolder& folder, const Preprocess& spec,
              const FeatureOptions& options)
      : network_(network), folder_(folder), spec_(spec), options_(options) {}

  Result<FeatureSet> run(std::vector<std::uint32_t> order) {
    if (options_.parts != nullptr) restore();
    const std::size_t all = order.size();
    LoaderOptions loading;
    loading.preprocess = spec_;
    loading.batch_size = options_.batch_size;
    loading.first_batch = next_batch_;
    loading.fail_on_damage = options_.fail_on_damage;
    const auto loader = TRY(BatchLoader::create(folder_, std::move(order), loading));
    while (!stopped_) {
      std::optional<Batch> batch = TRY(loader->next());
      if (!batch) break;
      done_ += batch->count;
      if (batch->count > 0) add(*batch);
      loader->recycle(std::move(*batch));
      next_batch_ = loader->position();
      if (options_.progress) stopped_ = !options_.progress(done_, all);
      if (options_.part_due && options_.part_due()) save(*loader);
    }
    if (stopped_) save(*loader);
    if (rows_.empty()) {
      return Error{Code::kFailedPrecondition,
                   fmt::format("no picture of '{}' could be read", folder_.root.string())};
    }
    set_.features = at::cat(rows_);
    note_damage(*loader);
    return std::move(set_);
  }
  [[nodiscard]] bool stopped() const { return stopped_; }

 private:
  void add(const Batch& batch) {
    const at::NoGradGuard no_gradients;
    const Pass pass{.engine = options_.engine};
    const at::Tensor pictures = batch_tensor(batch, spec_);
    rows_.push_back(network_.features(pictures, pass));
    set_.samples.insert(set_.samples.end(), batch.indices.begin(), batch.indices.end());
    if (!options_.mirrored_too) return;
    rows_.push_back(network_.features(at::flip(pictures, {3}), pass));
    set_.samples.insert(set_.samples.end(), batch.indices.begin(), batch.indices.end());
  }

  void note_damage(const BatchLoader& loader) {
    const auto& damaged = loader.damaged();
    set_.damaged.insert(set_.damaged.end(),
                        damaged.begin() + static_cast<std::ptrdiff_t>(damaged_noted_),
                        damaged.end());
    damaged_noted_ = damaged.size();
  }

  void save(const BatchLoader& loader) {
    if (options_.parts == nullptr || saved_batches_ == next_batch_) return;
    note_damage(loader);
    at::Tensor rows =
        saved_tensors_ == rows_.size()
            ? at::empty({0, network_.feature_count()}, at::kFloat)
            : at::cat(std::vector(rows_.begin() + static_cast<std::ptrdiff_t>(saved_tensors_),
                                  rows_.end()))
                  .contiguous();
    std::vector<std::uint32_t> samples(
        set_.samples.begin() + static_cast<std::ptrdiff_t>(saved_rows_), set_.samples.end());
    std::vector<DamagedPicture> damaged(
        set_.damaged.begin() + static_cast<std::ptrdiff_t>(saved_damaged_), set_.damaged.end());
    StateWriter writer;
    transfer_part(writer, rows, samples, damaged);
    options_.save_part(writer);
    mark_saved();
  }

  template <typename Archive>
  void transfer_part(Archive& archive, at::Tensor& rows, std::vector<std::uint32_t>& samples,
                     std::vector<DamagedPicture>& damaged) {
    archive("first_batch", saved_batches_);
    archive("next_batch", next_batch_);
    archive("done", done_);
    archive("samples", samples);
    if (!rows.defined()) {
      // A part that lies about its samples fits no rows; each picture is there twice at most.
      const bool possible = samples.size() / 2 <= folder_.samples.size();
      rows = at::empty(
          {possible ? static_cast<std::int64_t>(samples.size()) : 0, network_.feature_count()},
          at::kFloat);
    }
    archive("features", std::span(rows.data_ptr<float>(), static_cast<std::size_t>(rows.numel())));
    transfer(archive, "damaged", damaged);
  }

  void mark_saved() {
    saved_batches_ = next_batch_;
    saved_tensors_ = rows_.size();
    saved_rows_ = set_.samples.size();
    saved_damaged_ = set_.damaged.size();
  }

  // Takes over the parts that follow one another from the start; what is behind a damaged one is
  // computed again.
  void restore() {
    for (const std::uint64_t number : options_.parts->numbers()) {
      const Result<Checkpoint> part = options_.parts->read(number);
      const bool fits = part && take_over(*part);
      if (fits) continue;
      options_.parts->remove_from(number);
      return;
    }
  }

  bool take_over(const Checkpoint& part) {
    const std::uint64_t expected = next_batch_;
    const std::uint64_t done_before = done_;
    StateReader reader(part);
    at::Tensor rows;
    std::vector<std::uint32_t> samples;
    std::vector<DamagedPicture> damaged;
    transfer_part(reader, rows, samples, damaged);
    const bool known = std::ranges::all_of(
        samples, [this](std::uint32_t sample) { return sample < folder_.samples.size(); });
    if (!reader.finish() || !known || saved_batches_ != expected) {
      saved_batches_ = next_batch_ = expected;
      done_ = done_before;
      return false;
    }
    rows_.push_back(rows);
    set_.samples.insert(set_.samples.end(), samples.begin(), samples.end());
    set_.damaged.insert(set_.damaged.end(), damaged.begin(), damaged.end());
    mark_saved();
    return true;
  }

  const Network& network_;
  const ImageFolder& folder_;
  const Preprocess& spec_;
  const FeatureOptions& options_;
  FeatureSet set_;
  std::vector<at::Tensor> rows_;
  bool stopped_ = false;
  std::uint64_t done_ = 0, next_batch_ = 0, saved_batches_ = 0;
  std::size_t saved_tensors_ = 0, saved_rows_ = 0, saved_damaged_ = 0, damaged_noted_ = 0;
};

}  // namespace

Result<FeatureSet> compute_features(const Network& network, const ImageFolder& folder,
                                    std::vector<std::uint32_t> order, const Preprocess& spec,
                                    const FeatureOptions& options) {
  const std::filesystem::path file = feature_file(options, network, order);
  if (!file.empty()) {
    Result<FeatureSet> kept = read_features(file, network.feature_count());
    if (kept) return kept;
    ignore_error(kept, "they are computed now");
  }
  FeaturePass pass(network, folder, spec, options);
  FeatureSet set = TRY(pass.run(std::move(order)));
  if (!file.empty() && !pass.stopped() && set.damaged.empty()) write_features(file, set);
  return set;
}

double fit_head(Network& network, const ImageFolder& folder, const FeatureSet& set,
                const HeadOptions& options) {
  network.set_trained(network.unit_count());
  std::vector<NamedValue*> trained;
  std::vector<std::size_t> sizes;
  for (NamedValue& value : network.values()) {
    if (value.unit < network.unit_count()) continue;
    trained.push_back(&value);
    sizes.push_back(static_cast<std::size_t>(value.tensor.numel()));
  }
  Optimizer optimizer({.kind = OptimizerKind::kAdamW, .weight_decay = options.weight_decay}, sizes);
  const std::int64_t count = set.features.size(0);
  const std::int64_t batch = std::min<std::int64_t>(256, count);
  const at::Tensor targets = targets_of(folder, set.samples);
  const std::int64_t batches = (count + batch - 1) / batch;
  double loss_sum = 0;
  for (std::int64_t pass = 0; pass < options.passes; ++pass) {
    const auto order = shuffled_order(static_cast<std::size_t>(count), options.seed,
                                      static_cast<std::uint64_t>(pass));
    const std::vector<std::int64_t> wide(order.begin(), order.end());
    const at::Tensor shuffled = at::tensor(wide, at::kLong);
    loss_sum = 0;
    for (std::int64_t b = 0; b < batches; ++b) {
      const at::Tensor rows = shuffled.slice(0, b * batch, std::min(count, (b + 1) * batch));
      const at::Tensor loss = training_loss(network.logits(set.features.index_select(0, rows)),
                                            targets.index_select(0, rows), options.class_weights,
                                            options.label_smoothing);
      loss.backward();
      const double progress =
          static_cast<double>(pass * batches + b) / static_cast<double>(options.passes * batches);
      optimizer.begin_step();
      for (std::size_t i = 0; i < trained.size(); ++i) {
        at::Tensor& tensor = trained[i]->tensor;
        const at::Tensor grad = tensor.grad().contiguous();
        optimizer.update(i, {tensor.data_ptr<float>(), sizes[i]},
                         {grad.data_ptr<float>(), sizes[i]},
                         options.learning_rate * cosine_share(progress, 0.1), tensor.dim() > 1);
        tensor.mutable_grad().reset();
      }
      loss_sum += loss.item<double>();
    }
  }
  return loss_sum / static_cast<double>(batches);
}

}  // namespace atelier::vision
