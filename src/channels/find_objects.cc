#include "channels/find_objects.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <unordered_map>

namespace atelier::channels {
namespace {

constexpr unsigned kFullPage = 1000;
constexpr unsigned kSmallPage = 10;
constexpr std::size_t kMaxNamed = 20;

// A text that sorts before the key, with few keys between: the key without its last character.
std::string just_before(const std::string& key) {
  std::size_t end = key.size() - 1;
  while (end > 0 && (static_cast<unsigned char>(key[end]) & 0xC0U) == 0x80U) --end;
  return key.substr(0, end);
}

std::string common_prefix(const std::vector<std::string>& sorted) {
  const std::string& first = sorted.front();
  const std::string& last = sorted.back();
  std::size_t size = 0;
  while (size < first.size() && size < last.size() && first[size] == last[size]) ++size;
  // Not in the middle of a character.
  while (size > 0 && size < first.size() &&
         (static_cast<unsigned char>(first[size]) & 0xC0U) == 0x80U) {
    --size;
  }
  return first.substr(0, size);
}

class Search {
 public:
  Search(objects::ObjectStore& store, const std::string& bucket, std::vector<std::string> sorted)
      : store_(store), bucket_(bucket), keys_(std::move(sorted)) {}

  Result<std::unordered_map<std::string, objects::ObjectInfo>> go() {
    objects::ListOptions options;
    options.prefix = common_prefix(keys_);
    while (next_ < keys_.size()) {
      options.start_after = std::max(just_before(keys_[next_]), passed_);
      const objects::ListPage page = TRY(store_.list(bucket_, options));
      const std::size_t before = found_.size();
      merge(page);
      // Where the keys lie far apart, most of a page is of no use.
      const bool dense = 20 * (found_.size() - before) >= page.objects.size();
      options.max_keys = dense ? kFullPage : kSmallPage;
    }
    if (missing_ == 0) return std::move(found_);
    return Error{
        Code::kNotFound,
        fmt::format("{} objects that the manifest names are not in bucket '{}': '{}'{}", missing_,
                    bucket_, fmt::join(named_, "', '"), missing_ > named_.size() ? ", ..." : "")};
  }

 private:
  void merge(const objects::ListPage& page) {
    for (const objects::ObjectInfo& object : page.objects) {
      while (next_ < keys_.size() && keys_[next_] < object.key) miss();
      if (next_ < keys_.size() && keys_[next_] == object.key) {
        found_.emplace(object.key, object);
        ++next_;
      }
      passed_ = object.key;
    }
    if (page.next_token.empty()) {
      while (next_ < keys_.size()) miss();
    }
  }
  void miss() {
    if (++missing_ <= kMaxNamed) named_.push_back(keys_[next_]);
    ++next_;
  }

  objects::ObjectStore& store_;
  const std::string& bucket_;
  std::vector<std::string> keys_;
  std::size_t next_ = 0;
  std::string passed_;  // the last key that was listed
  std::unordered_map<std::string, objects::ObjectInfo> found_;
  std::size_t missing_ = 0;
  std::vector<std::string> named_;
};

}  // namespace

Result<std::vector<objects::ObjectInfo>> find_objects(objects::ObjectStore& store,
                                                      const std::string& bucket,
                                                      std::vector<std::string> keys) {
  std::vector<objects::ObjectInfo> objects;
  if (keys.empty()) return objects;
  std::vector<std::string> sorted = keys;
  std::ranges::sort(sorted);
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  auto found = TRY(Search(store, bucket, std::move(sorted)).go());
  for (const std::string& key : keys) {
    const auto object = found.find(key);
    if (object == found.end()) continue;  // a second mention
    objects.push_back(std::move(object->second));
    found.erase(object);
  }
  return objects;
}

}  // namespace atelier::channels
