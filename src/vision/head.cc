#include "vision/head.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/file.h"
#include "base/hash.h"
#include "vision/classify.h"
#include "vision/optimizer.h"
#include "vision/schedule.h"

namespace atelier::vision {
namespace {

// A feature file: this header, the labels, then the rows.
struct FeatureHeader {
  std::uint64_t magic = 0x3174616566746121ULL;
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
  const std::size_t row_bytes = 8 + static_cast<std::size_t>(columns) * 4;
  if (header.magic != expected.magic || header.columns != columns || header.rows < 0 ||
      (bytes.size() - sizeof(header)) / row_bytes != rows ||
      (bytes.size() - sizeof(header)) % row_bytes != 0) {
    return Error{Code::kDataLoss, fmt::format("'{}' is no feature file", path.string())};
  }
  FeatureSet set;
  set.from_cache = true;
  set.labels.resize(rows);
  const char* at = bytes.data() + sizeof(header);
  std::memcpy(set.labels.data(), at, rows * 8);
  set.features = at::empty({header.rows, columns}, at::kFloat);
  std::memcpy(set.features.data_ptr(), at + rows * 8, rows * static_cast<std::size_t>(columns) * 4);
  return set;
}

void write_features(const std::filesystem::path& path, const FeatureSet& set) {
  const FeatureHeader header{.rows = set.features.size(0), .columns = set.features.size(1)};
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof(header));
  bytes.append(reinterpret_cast<const char*>(set.labels.data()), set.labels.size() * 8);
  bytes.append(static_cast<const char*>(set.features.data_ptr()),
               static_cast<std::size_t>(set.features.numel()) * 4);
  if (!make_folders(path.parent_path())) return;
  ignore_error(write_file_durably(path, bytes), "the next job computes them again");
}

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
  const std::size_t all = order.size();
  LoaderOptions loading;
  loading.preprocess = spec;
  loading.batch_size = options.batch_size;
  loading.fail_on_damage = options.fail_on_damage;
  const auto loader = TRY(BatchLoader::create(folder, std::move(order), loading));
  const at::NoGradGuard no_gradients;
  const Pass pass{.engine = options.engine};
  FeatureSet set;
  std::vector<at::Tensor> rows;
  std::size_t done = 0;
  bool stopped = false;
  while (!stopped) {
    std::optional<Batch> batch = TRY(loader->next());
    if (!batch) break;
    done += batch->count;
    if (batch->count > 0) {
      const at::Tensor pictures = batch_tensor(*batch, spec);
      rows.push_back(network.features(pictures, pass));
      set.labels.insert(set.labels.end(), batch->labels.begin(), batch->labels.end());
      if (options.mirrored_too) {
        rows.push_back(network.features(at::flip(pictures, {3}), pass));
        set.labels.insert(set.labels.end(), batch->labels.begin(), batch->labels.end());
      }
    }
    loader->recycle(std::move(*batch));
    if (options.progress) stopped = !options.progress(done, all);
  }
  if (rows.empty()) {
    return Error{Code::kFailedPrecondition,
                 fmt::format("no picture of '{}' could be read", folder.root.string())};
  }
  set.features = at::cat(rows);
  set.damaged = loader->damaged();
  if (!file.empty() && !stopped && set.damaged.empty()) write_features(file, set);
  return set;
}

double fit_head(Network& network, const FeatureSet& set, const HeadOptions& options) {
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
  const at::Tensor labels =
      at::from_blob(const_cast<std::int64_t*>(set.labels.data()), {count}, at::kLong);
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
      const at::Tensor loss = at::cross_entropy_loss(
          network.logits(set.features.index_select(0, rows)), labels.index_select(0, rows),
          options.class_weights, at::Reduction::Mean, -100, options.label_smoothing);
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
