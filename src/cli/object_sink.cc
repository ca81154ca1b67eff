#include "cli/object_sink.h"

#include <fmt/core.h>

namespace atelier::cli {
namespace {

// Enough requests in flight to fill two cores, little enough memory to forget about.
constexpr std::size_t kBatch = 2000;
constexpr std::size_t kBatchBytes = std::size_t{64} << 20;
// Left while an import runs: what is found with it is our own, cut off, and may be written over.
constexpr const char* kUnderway = ".importing";

class ObjectSink final : public datasets::Sink {
 public:
  ObjectSink(objects::ObjectStore& store, objects::Location at)
      : store_(store), at_(std::move(at)) {
    if (!at_.key.empty() && !at_.key.ends_with('/')) at_.key += '/';
  }

  Result<void> prepare() {
    TRY(store_.create_bucket(at_.bucket));
    objects::ListOptions options;
    options.prefix = at_.key;
    options.max_keys = 1;
    const objects::ListPage page = TRY(store_.list(at_.bucket, options));
    if (page.objects.empty()) return {};
    const bool ours = TRY(exists(kUnderway)) || TRY(exists(datasets::kManifestName));
    if (ours) return {};
    return Error{
        Code::kAlreadyExists,
        fmt::format("{} holds objects that no import put there, such as '{}'; name another prefix",
                    at_.uri(), page.objects.front().key)};
  }

  Result<std::optional<std::string>> manifest() override {
    Result<std::string> text =
        store_.get_bytes(at_.bucket, key(datasets::kManifestName), std::size_t{16} << 20);
    if (text) return std::optional<std::string>{std::move(*text)};
    if (text.error().code == Code::kNotFound) return std::optional<std::string>{};
    return text.error();
  }

  Result<void> put(std::string path, std::string bytes) override {
    if (!started_) {
      TRY(store_.put(at_.bucket, key(kUnderway), "", {}));
      started_ = true;
    }
    batch_bytes_ += bytes.size();
    batch_.push_back({key(path), {}, std::move(bytes), {}});
    if (batch_.size() >= kBatch || batch_bytes_ >= kBatchBytes) return flush();
    return {};
  }

  Result<void> finish(std::string manifest) override {
    TRY(flush());
    TRY(store_.put(at_.bucket, key(datasets::kManifestName), manifest,
                   {"application/json", {}, false}));
    return store_.remove(at_.bucket, key(kUnderway));
  }

 private:
  std::string key(std::string_view path) const { return at_.key + std::string{path}; }

  Result<bool> exists(std::string_view path) {
    const Result<objects::ObjectInfo> info = store_.head(at_.bucket, key(path));
    if (info) return true;
    if (info.error().code == Code::kNotFound) return false;
    return info.error();
  }

  Result<void> flush() {
    batch_bytes_ = 0;
    if (batch_.empty()) return {};
    return store_.upload_many(at_.bucket, std::exchange(batch_, {}), {});
  }

  objects::ObjectStore& store_;
  objects::Location at_;
  std::vector<objects::Upload> batch_;
  std::size_t batch_bytes_ = 0;
  bool started_ = false;
};

}  // namespace

Result<std::unique_ptr<datasets::Sink>> object_sink(objects::ObjectStore& store,
                                                    const std::string& destination) {
  auto sink = std::make_unique<ObjectSink>(store, TRY(objects::parse_s3_uri(destination)));
  TRY(sink->prepare());
  return std::unique_ptr<datasets::Sink>{std::move(sink)};
}

}  // namespace atelier::cli
