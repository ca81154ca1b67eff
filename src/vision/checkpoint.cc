#include "vision/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"

namespace atelier::vision {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kExtension = ".safetensors";
constexpr double kInterval = 30;
// Checkpoints may take this share of the time (target T9).
constexpr double kShare = 0.01;

// Over everything that a checkpoint means, so that a damaged header is found as well as damaged
// numbers.
std::string digest_of(std::string_view values, const std::vector<NamedTensor>& tensors) {
  Hasher hasher(Digest::kSha256);
  hasher.update(fmt::format("{}|{}", values.size(), values));
  for (const NamedTensor& tensor : tensors) {
    hasher.update(fmt::format("|{}|{}|{}|", tensor.name.size(), tensor.name, tensor.bytes.size()));
    hasher.update(tensor.bytes);
  }
  return to_hex(hasher.finish());
}

// Paths may hold any byte, JSON only UTF-8: what is not plain ASCII is written as %FF.
std::string to_ascii(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f || c == '%') {
      text += fmt::format("%{:02X}", byte);
    } else {
      text += c;
    }
  }
  return text;
}
std::optional<std::string> from_ascii(std::string_view text) {
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      bytes += text[i];
      continue;
    }
    const Result<std::string> byte = from_hex(text.substr(i + 1, 2));
    if (!byte || byte->size() != 1) return std::nullopt;
    bytes += *byte;
    i += 2;
  }
  return bytes;
}

// The number in STEM-000012.safetensors.
std::optional<std::uint64_t> number_in(std::string_view name, std::string_view stem) {
  if (!name.starts_with(stem) || !name.ends_with(kExtension)) return std::nullopt;
  name.remove_prefix(stem.size());
  if (name.size() < kExtension.size() + 2 || name.front() != '-') return std::nullopt;
  name.remove_prefix(1);
  name.remove_suffix(kExtension.size());
  std::uint64_t number = 0;
  const auto [end, failed] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (failed != std::errc{} || end != name.data() + name.size()) return std::nullopt;
  return number;
}

}  // namespace

void StateWriter::operator()(const std::string& name, std::int64_t value) { values_[name] = value; }
void StateWriter::operator()(const std::string& name, std::uint64_t value) {
  values_[name] = value;
}
void StateWriter::operator()(const std::string& name, bool value) { values_[name] = value; }
void StateWriter::operator()(const std::string& name, double value) {
  values_[name] = fmt::format("{:a}", value);
}
void StateWriter::operator()(const std::string& name, const std::string& value) {
  values_[name] = to_ascii(value);
}

void StateWriter::add(const std::string& name, std::span<const std::byte> bytes) {
  tensors_.push_back({name, Dtype::kU8, {static_cast<std::int64_t>(bytes.size())}, bytes});
}

void StateReader::fail(const std::string& name, std::string_view what) {
  if (failed_.empty()) failed_ = fmt::format("'{}' {}", name, what);
}

const json::value* StateReader::find(const std::string& name) {
  const json::value* value = checkpoint_.values.if_contains(name);
  if (value == nullptr) fail(name, "is missing");
  return value;
}

void StateReader::operator()(const std::string& name, std::int64_t& value) {
  const json::value* found = find(name);
  if (found == nullptr) return;
  boost::json::error_code not_one;
  const auto number = found->to_number<std::int64_t>(not_one);
  if (not_one) return fail(name, "is no integer");
  value = number;
}
void StateReader::operator()(const std::string& name, std::uint64_t& value) {
  const json::value* found = find(name);
  if (found == nullptr) return;
  boost::json::error_code not_one;
  const auto number = found->to_number<std::uint64_t>(not_one);
  if (not_one) return fail(name, "is no integer from 0");
  value = number;
}
void StateReader::operator()(const std::string& name, bool& value) {
  const json::value* found = find(name);
  if (found == nullptr) return;
  if (!found->is_bool()) return fail(name, "is neither true nor false");
  value = found->as_bool();
}
void StateReader::operator()(const std::string& name, double& value) {
  std::string text;
  (*this)(name, text);
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0') return fail(name, "is no number");
  value = number;
}
void StateReader::operator()(const std::string& name, std::string& value) {
  const json::value* found = find(name);
  if (found == nullptr) return;
  if (!found->is_string()) return fail(name, "is no text");
  const auto bytes = from_ascii(found->as_string());
  if (!bytes) return fail(name, "is no text of ours");
  value = *bytes;
}

std::size_t StateReader::size_of(const std::string& name, std::size_t element) {
  const NamedTensor* tensor = checkpoint_.file.find(name);
  if (tensor == nullptr) {
    fail(name, "is missing");
    return 0;
  }
  if (tensor->bytes.size() % element != 0) fail(name, "has a size that is none of its kind");
  return tensor->bytes.size() / element;
}

void StateReader::copy(const std::string& name, std::span<std::byte> into) {
  const NamedTensor* tensor = checkpoint_.file.find(name);
  if (tensor == nullptr) return fail(name, "is missing");
  if (tensor->bytes.size() != into.size()) {
    return fail(name, fmt::format("has {} bytes instead of {}", tensor->bytes.size(), into.size()));
  }
  if (!into.empty()) std::memcpy(into.data(), tensor->bytes.data(), into.size());
}

Result<void> StateReader::finish() const {
  if (failed_.empty()) return {};
  return Error{Code::kDataLoss,
               fmt::format("checkpoint '{}': {}", checkpoint_.path.string(), failed_)};
}

Result<CheckpointFolder> CheckpointFolder::open(const fs::path& folder, const std::string& stem,
                                                std::size_t kept) {
  TRY(make_folders(folder));
  std::error_code failed;
  for (fs::directory_iterator it(folder, failed), end; !failed && it != end; it.increment(failed)) {
    const std::string name = it->path().filename().string();
    std::error_code ignored;
    if (name.starts_with("." + stem + "-") && name.ends_with(".tmp")) fs::remove(*it, ignored);
  }
  if (failed) {
    return Error{Code::kIo,
                 fmt::format("checkpoint folder '{}': {}", folder.string(), failed.message())};
  }
  return CheckpointFolder(folder, stem, kept);
}

fs::path CheckpointFolder::path_of(std::uint64_t number) const {
  return folder_ / fmt::format("{}-{:06}{}", stem_, number, kExtension);
}

std::vector<std::uint64_t> CheckpointFolder::numbers() const {
  std::vector<std::uint64_t> found;
  std::error_code failed;
  for (fs::directory_iterator it(folder_, failed), end; !failed && it != end;
       it.increment(failed)) {
    if (const auto number = number_in(it->path().filename().string(), stem_))
      found.push_back(*number);
  }
  std::ranges::sort(found);
  return found;
}

Result<Checkpoint> CheckpointFolder::read(std::uint64_t number) const {
  const fs::path path = path_of(number);
  WeightFile file = TRY(read_weights(path));
  const auto& texts = file.metadata();
  const auto values = texts.find("state");
  const auto expected = texts.find("sha256");
  if (values == texts.end() || expected == texts.end()) {
    return Error{Code::kDataLoss, fmt::format("'{}' is no checkpoint", path.string())};
  }
  if (digest_of(values->second, file.tensors()) != expected->second) {
    return Error{Code::kDataLoss,
                 fmt::format("'{}' is damaged: its digest does not fit", path.string())};
  }
  const json::value parsed = TRY(parse_json(values->second));
  if (!parsed.is_object()) return Error{Code::kDataLoss, "the state is no object"};
  return Checkpoint{number, path, parsed.as_object(), std::move(file)};
}

std::optional<Checkpoint> CheckpointFolder::newest(std::vector<std::string>& damaged) {
  const std::vector<std::uint64_t> all = numbers();
  for (auto number = all.rbegin(); number != all.rend(); ++number) {
    Result<Checkpoint> checkpoint = read(*number);
    if (checkpoint) return *std::move(checkpoint);
    damaged.push_back(checkpoint.error().message);
  }
  return std::nullopt;
}

Result<void> CheckpointFolder::save(const StateWriter& state) {
  const std::vector<std::uint64_t> there = numbers();
  const std::uint64_t number = there.empty() ? 1 : there.back() + 1;
  const std::string values = json::serialize(state.values());
  TRY(write_safetensors(path_of(number), state.tensors(),
                        {{"state", values}, {"sha256", digest_of(values, state.tensors())}}));
  if (kept_ == 0) return {};
  for (std::size_t i = 0; i + kept_ <= there.size(); ++i) {
    std::error_code ignored;
    fs::remove(path_of(there[i]), ignored);
  }
  return {};
}

void CheckpointFolder::remove_from(std::uint64_t number) {
  for (const std::uint64_t there : numbers()) {
    std::error_code ignored;
    if (there >= number) fs::remove(path_of(there), ignored);
  }
}

bool CheckpointPace::due(double now, bool end_of_epoch) const {
  if (asked_) return end_of_epoch || now - last_ >= *asked_;
  // The first costs what it costs; those after it as much as the last one.
  if (now - last_ < last_cost_ / kShare) return false;
  return now - last_ >= kInterval || (end_of_epoch && count_ > 0);
}

void CheckpointPace::saved(double started, double ended) {
  last_ = ended;
  last_cost_ = ended - started;
  cost_ += last_cost_;
  ++count_;
}

}  // namespace atelier::vision
