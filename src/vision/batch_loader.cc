#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>

#include "vision/image_folder.h"

namespace atelier::vision {
namespace {

// Files that cannot be read because the system is in trouble are no damaged pictures.
bool is_damage(const Error& error) {
  return error.code == Code::kDataLoss || error.code == Code::kInvalidArgument ||
         error.code == Code::kResourceExhausted || error.code == Code::kUnimplemented;
}

struct Range {
  std::size_t begin = 0;
  std::size_t end = 0;
};

std::vector<Range> plan_batches(std::size_t count, const LoaderOptions& options) {
  std::vector<Range> ranges;
  for (std::size_t at = 0; at < count; at += options.batch_size) {
    ranges.push_back({at, std::min(at + options.batch_size, count)});
  }
  if (ranges.size() < 2) return ranges;
  const std::size_t last = ranges.back().end - ranges.back().begin;
  if (options.last == LastBatch::kDrop && last < options.batch_size) ranges.pop_back();
  if (options.last == LastBatch::kMergeSingle && last == 1 && options.batch_size > 1) {
    ranges.pop_back();
    ranges.back().end = count;
  }
  return ranges;
}

// A batch in the making. Every picture has its row from the start, so threads write without asking
// one another.
struct Work {
  Batch batch;
  std::vector<std::optional<Error>> errors;  // of each row
  std::size_t done = 0;
};

}  // namespace

struct BatchLoader::Impl {
  const ImageFolder& folder;
  std::vector<std::uint32_t> order;
  LoaderOptions options;
  std::vector<Range> ranges;
  std::size_t row_floats = 0;

  std::mutex mutex;
  std::condition_variable room;      // for workers: there is a picture to make
  std::condition_variable finished;  // for next(): a picture was made
  std::deque<Work> window;           // batches given[0] .. being made or waiting
  std::size_t given = 0;             // batches taken by next()
  std::size_t next_batch = 0;        // where the next picture to make is
  std::size_t next_row = 0;
  bool stopping = false;
  std::vector<PixelBuffer> spare;
  std::vector<DamagedPicture> damaged;
  Scratch own_scratch;
  std::vector<std::byte> own_bytes;
  std::vector<std::jthread> workers;

  Impl(const ImageFolder& folder_in, std::vector<std::uint32_t> order_in,
       const LoaderOptions& options_in)
      : folder(folder_in), order(std::move(order_in)), options(options_in) {
    ranges = plan_batches(order.size(), options);
    row_floats = options.preprocess.output_floats();
    given = next_batch = std::min(options.first_batch, ranges.size());
    for (unsigned i = 0; i < options.threads; ++i) workers.emplace_back([this] { work(); });
  }

  ~Impl() {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    room.notify_all();
  }

  // Called with the lock.
  PixelBuffer take_buffer(std::size_t floats) {
    for (PixelBuffer& buffer : spare) {
      if (buffer.size() < floats) continue;
      PixelBuffer taken = std::move(buffer);
      buffer = std::move(spare.back());
      spare.pop_back();
      return taken;
    }
    return PixelBuffer(floats);
  }

  void open_batch() {
    const Range range = ranges[next_batch];
    const std::size_t rows = range.end - range.begin;
    Work& made = window.emplace_back();
    made.batch.pixels = take_buffer(rows * row_floats);
    made.errors.resize(rows);
  }

  Result<void> make_row(std::uint32_t sample, float* row, Scratch& scratch,
                        std::vector<std::byte>& buffer) const {
    const std::span<const std::byte> bytes =
        TRY(read_picture(folder, folder.samples[sample], options.limits.max_bytes, buffer));
    const std::span<float> out(row, row_floats);
    if (!options.augmentation)
      return preprocess(bytes, options.preprocess, out, scratch, options.limits);
    return preprocess_augmented(bytes, options.preprocess, *options.augmentation,
                                {options.seed, options.epoch, sample}, out, scratch,
                                options.limits);
  }

  // Whether a worker may begin a picture: pictures are begun in the order of the epoch, at most
  // `prefetch` batches ahead.
  bool has_work() const {
    return next_batch < ranges.size() && next_batch <= given + options.prefetch;
  }

  void work() {
    Scratch scratch;
    std::vector<std::byte> buffer;
    std::unique_lock lock(mutex);
    while (true) {
      room.wait(lock, [this] { return stopping || has_work() || next_batch >= ranges.size(); });
      if (stopping || next_batch >= ranges.size()) return;
      if (next_row == 0) open_batch();
      const std::size_t batch = next_batch;
      const std::size_t row = next_row++;
      const Range range = ranges[batch];
      if (next_row == range.end - range.begin) {
        ++next_batch;
        next_row = 0;
      }
      Work& mine = window[batch - given];  // a deque keeps its elements where they are
      float* out = mine.batch.pixels.data() + row * row_floats;
      const std::uint32_t sample = order[range.begin + row];
      lock.unlock();
      Result<void> made = make_row(sample, out, scratch, buffer);
      lock.lock();
      if (!made) mine.errors[row] = std::move(made).error();
      if (++mine.done == range.end - range.begin) finished.notify_one();
    }
  }

  Work make_inline() {
    Work made;
    {
      const std::lock_guard lock(mutex);
      open_batch();
      made = std::move(window.front());
      window.pop_front();
      ++next_batch;
    }
    const Range range = ranges[given];
    for (std::size_t row = 0; row < range.end - range.begin; ++row) {
      Result<void> done =
          make_row(order[range.begin + row], made.batch.pixels.data() + row * row_floats,
                   own_scratch, own_bytes);
      if (!done) made.errors[row] = std::move(done).error();
    }
    return made;
  }

  Work take() {
    if (workers.empty()) return make_inline();
    std::unique_lock lock(mutex);
    const std::size_t rows = ranges[given].end - ranges[given].begin;
    finished.wait(lock, [&] { return !window.empty() && window.front().done == rows; });
    Work made = std::move(window.front());
    window.pop_front();
    ++given;
    lock.unlock();
    room.notify_all();
    return made;
  }

  // Leaves damaged rows out and moves the others up.
  Result<void> finish(const Range& range, Work& made) {
    Batch& batch = made.batch;
    for (std::size_t row = 0; row < range.end - range.begin; ++row) {
      const std::uint32_t sample = order[range.begin + row];
      const Sample& entry = folder.samples[sample];
      if (made.errors[row]) {
        Error error = made.errors[row]->within(fmt::format("picture '{}'", entry.name()));
        if (options.fail_on_damage || !is_damage(error)) return error;
        damaged.push_back({sample, entry.name(), std::move(error)});
        continue;
      }
      if (batch.count != row) {
        std::memcpy(batch.pixels.data() + batch.count * row_floats,
                    batch.pixels.data() + row * row_floats, row_floats * sizeof(float));
      }
      batch.labels.push_back(entry.label);
      batch.indices.push_back(sample);
      ++batch.count;
    }
    return {};
  }
};

BatchLoader::BatchLoader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
BatchLoader::~BatchLoader() = default;

Result<std::unique_ptr<BatchLoader>> BatchLoader::create(const ImageFolder& folder,
                                                         std::vector<std::uint32_t> order,
                                                         const LoaderOptions& options) {
  TRY(check_preprocess(options.preprocess));
  if (options.augmentation) TRY(check_augmentation(*options.augmentation));
  if (options.batch_size == 0) return Error{Code::kInvalidArgument, "a batch size of 0"};
  for (const std::uint32_t sample : order) {
    if (sample >= folder.samples.size()) {
      return Error{Code::kOutOfRange,
                   fmt::format("sample {} of a data set of {}", sample, folder.samples.size())};
    }
  }
  return std::unique_ptr<BatchLoader>(
      new BatchLoader(std::make_unique<Impl>(folder, std::move(order), options)));
}

Result<std::optional<Batch>> BatchLoader::next() {
  while (impl_->given < impl_->ranges.size()) {
    const Range range = impl_->ranges[impl_->given];
    Work made = impl_->take();
    if (impl_->workers.empty()) ++impl_->given;
    TRY(impl_->finish(range, made));
    if (made.batch.count > 0) return std::optional<Batch>(std::move(made.batch));
    recycle(std::move(made.batch));  // every picture of it was damaged
  }
  return std::optional<Batch>();
}

void BatchLoader::recycle(Batch batch) {
  if (batch.pixels.size() == 0) return;
  const std::lock_guard lock(impl_->mutex);
  if (impl_->spare.size() <= impl_->options.prefetch)
    impl_->spare.push_back(std::move(batch.pixels));
}

std::size_t BatchLoader::batch_count() const { return impl_->ranges.size(); }
std::size_t BatchLoader::position() const { return impl_->given; }
const std::vector<DamagedPicture>& BatchLoader::damaged() const { return impl_->damaged; }

}  // namespace atelier::vision
