// A data set of labelled pictures, and batches of it. Usually it is a folder of class folders;
// listed_data.h reads the other forms into the same type.
//
//   train/ankle-boot/00001.png
//   train/bag/00002.png                       class 0 is "ankle-boot", class 1 is "bag"
//
// Classes are numbered in the byte order of their folders' names, as SageMaker and torchvision do;
// a class folder without pictures keeps its number. Hidden files and folders (.ipynb_checkpoints,
// ._x.jpg), __MACOSX and Thumbs.db are no classes and no pictures. A symbolic link is followed only
// to a place inside of the data set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "vision/preprocess.h"

namespace atelier::vision {

struct Sample {
  static constexpr std::uint64_t kWholeFile = ~std::uint64_t{0};

  std::string path;         // from the root, with '/': "ankle-boot/00001.png"
  std::uint32_t label = 0;  // of several the first, 0 when there is none
  std::uint64_t bytes = 0;
  std::uint64_t offset = kWholeFile;  // of a record in a RecordIO file

  // For people: the path, or "train.rec@4096".
  [[nodiscard]] std::string name() const {
    return offset == kWholeFile ? path : path + "@" + std::to_string(offset);
  }
};

struct ImageFolder {
  std::filesystem::path root;
  std::vector<std::string> classes;         // by number
  std::vector<Sample> samples;              // in a fixed order; class folders: by class, then path
  std::vector<std::uint64_t> class_counts;  // samples of each class
  // With several labels a picture: rising class numbers of each sample. Empty otherwise.
  bool multi_label = false;
  std::vector<std::vector<std::uint32_t>> label_sets;
  std::vector<std::string>
      warnings;  // empty classes, files that are no pictures, links out of the folder
};

struct IndexOptions {
  // The classes of the model: numbers are those of this list, and a folder that is not in it is an
  // error that names it. Absent for training, where the folders decide.
  std::optional<std::vector<std::string>> classes = {};
  std::size_t max_samples = 50'000'000;
};

// kNotFound when `root` is not there, kFailedPrecondition when it holds no class or no picture.
Result<ImageFolder> index_image_folder(const std::filesystem::path& root,
                                       const IndexOptions& options = {});

// The picture's file: read into `buffer`, which grows and is used again; the span lies in it.
Result<std::span<const std::byte>> read_picture(const ImageFolder& folder, const Sample& sample,
                                                std::uint64_t max_bytes,
                                                std::vector<std::byte>& buffer);

// SHA-256 in hexadecimal over the classes and the samples' paths, sizes and labels, and over the
// contents too when `contents`.
Result<std::string> fingerprint(const ImageFolder& folder, bool contents);

// 0..count-1 in an order that depends on (seed, epoch) alone.
std::vector<std::uint32_t> shuffled_order(std::size_t count, std::uint64_t seed,
                                          std::uint64_t epoch);

// Floats on a 64-byte boundary, not cleared: rows of NHWC pixels.
class PixelBuffer {
 public:
  PixelBuffer() = default;
  explicit PixelBuffer(std::size_t floats);
  [[nodiscard]] float* data() const { return data_.get(); }
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(float* pointer) const;
  };
  std::unique_ptr<float[], Free> data_;
  std::size_t size_ = 0;
};

// Row i of `pixels` is sample indices[i] with labels[i]. Own it as long as you like (a tensor may
// be laid over pixels.data() without a copy), and give it back with BatchLoader::recycle to save an
// allocation.
struct Batch {
  std::size_t count = 0;  // at most the batch size; damaged pictures are left out
  PixelBuffer pixels;     // count x height x width x channels
  std::vector<std::int64_t> labels;
  std::vector<std::uint32_t> indices;
};

struct DamagedPicture {
  std::uint32_t index = 0;
  std::string path;
  Error reason;
};

enum class LastBatch {
  kKeep,         // as it is
  kDrop,         // unless it is the only one
  kMergeSingle,  // a last batch of one joins the batch before it: batch normalisation cannot train
                 // on one picture
};

struct LoaderOptions {
  Preprocess preprocess = {};
  std::optional<Augmentation> augmentation = {};  // absent: evaluation views
  std::size_t batch_size = 32;
  std::size_t first_batch = 0;  // batches of the order that are passed over: where a run resumes
  LastBatch last = LastBatch::kKeep;
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  unsigned threads = 1;      // 0: decode in next(), on the caller's thread
  std::size_t prefetch = 2;  // batches being made or waiting, beyond the one in use
  bool fail_on_damage = false;
  ImageLimits limits = {};
};

// Makes the batches of one epoch in the given order; the same batches whatever the number of
// threads. Used by one thread; the destructor stops and joins the workers, wherever the epoch
// stands.
class BatchLoader {
 public:
  // `folder` must outlive the loader. `order` holds the samples of the epoch (shuffled_order or a
  // shard of it).
  static Result<std::unique_ptr<BatchLoader>> create(const ImageFolder& folder,
                                                     std::vector<std::uint32_t> order,
                                                     const LoaderOptions& options);
  ~BatchLoader();

  // The next batch, or nothing at the end.
  Result<std::optional<Batch>> next();
  void recycle(Batch batch);
  [[nodiscard]] std::size_t batch_count() const;
  // Batches of the order that next() is done with: the `first_batch` of a loader that goes on.
  [[nodiscard]] std::size_t position() const;
  // Pictures of the batches given so far that could not be read, in the order of the epoch.
  [[nodiscard]] const std::vector<DamagedPicture>& damaged() const;

 private:
  struct Impl;
  explicit BatchLoader(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace atelier::vision
