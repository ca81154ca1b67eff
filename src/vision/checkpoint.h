// Checkpoints: states of a training from which it goes on as if nothing had happened.
//
//   CheckpointFolder folder = TRY(CheckpointFolder::open("/opt/ml/checkpoints", "state-3f9c", 2));
//   StateWriter writer;
//   transfer(writer, state);                        // one function for both directions
//   TRY(folder.save(writer));                       // whole and durable, or not at all
//   std::optional<Checkpoint> last = folder.newest(damaged);
//   StateReader reader(*last);
//   transfer(reader, state);
//   TRY(reader.finish());
//
// A checkpoint is one safetensors file, STEM-000012.safetensors, that appears by a rename after an
// fsync; a digest over all that it holds is checked before it is used. The folder may be shared:
// files of other stems are neither read nor removed. One thread.
#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/result.h"
#include "vision/weights.h"

namespace atelier::vision {

// A state on its way into a file. What is given as a span must stay as it is until it is saved.
class StateWriter {
 public:
  void operator()(const std::string& name, std::int64_t value);
  void operator()(const std::string& name, std::uint64_t value);
  void operator()(const std::string& name, bool value);
  void operator()(const std::string& name, double value);  // bit for bit
  void operator()(const std::string& name, const std::string& value);
  // Numbers of any type, each bit of them.
  template <typename T>
  void operator()(const std::string& name, std::span<T> values) {
    add(name, std::as_bytes(values));
  }
  template <typename T>
  requires std::is_trivially_copyable_v<T>
  void operator()(const std::string& name, const std::vector<T>& values) {
    (*this)(name, std::span(values));
  }
  // Things that are no plain numbers: each(archive, prefix of its names, thing).
  template <typename T, typename Each>
  void list(const std::string& name, std::vector<T>& things, Each each) {
    (*this)(name + ".count", static_cast<std::uint64_t>(things.size()));
    for (std::size_t i = 0; i < things.size(); ++i) {
      each(*this, name + "." + std::to_string(i) + ".", things[i]);
    }
  }

  [[nodiscard]] const boost::json::object& values() const { return values_; }
  [[nodiscard]] const std::vector<NamedTensor>& tensors() const { return tensors_; }

 private:
  void add(const std::string& name, std::span<const std::byte> bytes);

  boost::json::object values_;
  std::vector<NamedTensor> tensors_;
};

// A checkpoint that was read and found whole.
struct Checkpoint {
  std::uint64_t number = 0;
  std::filesystem::path path;
  boost::json::object values;
  WeightFile file;
};

// The other direction, with the same calls. What is missing or has another size is remembered, and
// finish() says the first.
class StateReader {
 public:
  explicit StateReader(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {}
  void operator()(const std::string& name, std::int64_t& value);
  void operator()(const std::string& name, std::uint64_t& value);
  void operator()(const std::string& name, bool& value);
  void operator()(const std::string& name, double& value);
  void operator()(const std::string& name, std::string& value);
  // Into numbers that are there already: the size must fit.
  template <typename T>
  void operator()(const std::string& name, std::span<T> values) {
    copy(name, std::as_writable_bytes(values));
  }
  template <typename T>
  requires std::is_trivially_copyable_v<T>
  void operator()(const std::string& name, std::vector<T>& values) {
    values.resize(size_of(name, sizeof(T)));
    copy(name, std::as_writable_bytes(std::span(values)));
  }
  template <typename T, typename Each>
  void list(const std::string& name, std::vector<T>& things, Each each) {
    std::uint64_t count = 0;
    (*this)(name + ".count", count);
    things.clear();
    // Each has at least one value of its own, so a count that is a lie ends at the first that lacks
    // it, and takes no more memory than what is there.
    for (std::uint64_t i = 0; i < count && failed_.empty(); ++i) {
      each(*this, name + "." + std::to_string(i) + ".", things.emplace_back());
    }
  }
  [[nodiscard]] Result<void> finish() const;

 private:
  const boost::json::value* find(const std::string& name);
  [[nodiscard]] std::size_t size_of(const std::string& name, std::size_t element);
  void copy(const std::string& name, std::span<std::byte> into);
  void fail(const std::string& name, std::string_view what);

  const Checkpoint& checkpoint_;
  std::string failed_;
};

class CheckpointFolder {
 public:
  // Makes the folder, and removes what a writer of `stem` that was killed left half done. `kept`
  // checkpoints are kept; 0: all of them.
  static Result<CheckpointFolder> open(const std::filesystem::path& folder, const std::string& stem,
                                       std::size_t kept);
  // The newest whole one. Those that are not whole are passed over, with a line each in `damaged`.
  std::optional<Checkpoint> newest(std::vector<std::string>& damaged);
  // The one of that number; kDataLoss when it is not whole.
  [[nodiscard]] Result<Checkpoint> read(std::uint64_t number) const;
  // Writes the next number; then, that being durable, removes the oldest beyond `kept`.
  Result<void> save(const StateWriter& state);
  // Removes those of that number and above, as far as that is possible.
  void remove_from(std::uint64_t number);
  [[nodiscard]] std::vector<std::uint64_t> numbers() const;  // rising

 private:
  CheckpointFolder(std::filesystem::path folder, std::string stem, std::size_t kept)
      : folder_(std::move(folder)), stem_(std::move(stem)), kept_(kept) {}
  [[nodiscard]] std::filesystem::path path_of(std::uint64_t number) const;

  std::filesystem::path folder_;
  std::string stem_;
  std::size_t kept_;
};

// When the next checkpoint is due: `interval` seconds after the last one or at the end of an epoch,
// but never so often that they take more than a hundredth of the time, unless the interval was
// asked for. Seconds are of any one clock.
class CheckpointPace {
 public:
  CheckpointPace(std::optional<double> asked_interval, double now)
      : asked_(asked_interval), last_(now) {}
  [[nodiscard]] bool due(double now, bool end_of_epoch) const;
  void saved(double started, double ended);
  [[nodiscard]] std::uint64_t count() const { return count_; }
  [[nodiscard]] double cost() const { return cost_; }  // seconds, of all of them

 private:
  std::optional<double> asked_;
  double last_;
  double last_cost_ = 0, cost_ = 0;
  std::uint64_t count_ = 0;
};

}  // namespace atelier::vision
