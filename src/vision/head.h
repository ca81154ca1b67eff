// The first phases of a training: features of the frozen trunk, each computed once, and a
// classifier on them. Alone it is `fine_tune=head`; before a fine-tuning it saves the trunk from
// the noise of a random classifier (Kumar et al., "Fine-tuning can distort pretrained features",
// 2022).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "vision/backbone.h"
#include "vision/checkpoint.h"
#include "vision/image_folder.h"

namespace atelier::vision {

struct FeatureSet {
  at::Tensor features;                 // [rows, feature_count], fp32
  std::vector<std::uint32_t> samples;  // which sample of the folder each row shows
  std::vector<DamagedPicture> damaged;
  bool from_cache = false;
};

struct FeatureOptions {
  Engine engine = Engine::kFused;
  std::size_t batch_size = 128;
  bool mirrored_too = false;  // each picture and its mirror image
  bool fail_on_damage = false;
  // Shared by jobs; empty: nothing is kept. `content_key` must name data and weights by content.
  std::filesystem::path cache;
  std::string content_key;
  std::function<bool(std::size_t done, std::size_t all)> progress;  // false: stop
  // Where rows are kept for a run that is interrupted; null: nowhere. A row is written once.
  CheckpointFolder* parts = nullptr;
  std::function<bool()> part_due;
  std::function<void(StateWriter&)> save_part;
};

// A set that was stopped holds what was done until then.
Result<FeatureSet> compute_features(const Network& network, const ImageFolder& folder,
                                    std::vector<std::uint32_t> order, const Preprocess& spec,
                                    const FeatureOptions& options);

struct HeadOptions {
  std::int64_t passes = 30;
  double learning_rate = 5e-3;
  double weight_decay = 0.01;
  double label_smoothing = 0.05;
  std::uint64_t seed = 1;
  at::Tensor class_weights;  // undefined: all the same
};

// Trains the network's classifier; returns the mean loss of the last pass.
double fit_head(Network& network, const ImageFolder& folder, const FeatureSet& set,
                const HeadOptions& options);

}  // namespace atelier::vision
