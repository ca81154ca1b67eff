// The store behind the embedded S3: buckets, objects and multipart uploads in a local folder.
//
//   auto store = TRY(LocalStore::open("/var/lib/atelier/objects", system_clock()));
//   auto body = store->start_body();
//   TRY(body->append(bytes));
//   TRY(store->put({.bucket = "b", .key = "k", .etag = ...}, std::move(body)));
//
// The index is one SQLite database with keys as blobs, so that any key is safe and byte order is
// S3's order. Bodies of up to kInlineBytes live in the index, larger ones in files of their own. A
// change is durable when a call returns, visible whole or not at all, and undone by a crash before
// that. Readers never wait for writers. docs/decisions/embedded-s3.md says why.
//
// The message of an Error starts with S3's code where there is one: "NoSuchKey: ...".
//
// Safe from many threads. One process at a time may have a folder open.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "base/time.h"
#include "objects/checksum.h"

namespace atelier::objects {

inline constexpr std::size_t kInlineBytes = std::size_t{64} << 10;
inline constexpr std::uint64_t kMinPartBytes = std::uint64_t{5} << 20;
inline constexpr std::uint64_t kMaxObjectBytes = std::uint64_t{5} << 40;

// Header fields that are kept with an object and given back, names in lower case.
using StoredHeaders = std::vector<std::pair<std::string, std::string>>;

struct BucketRecord {
  std::string name{};
  std::string region{};  // as asked for at creation; may be empty
  Time created{};
};

// A part of an object that was uploaded in parts.
struct ObjectPart {
  unsigned number = 0;
  std::uint64_t size = 0;
  std::string checksum{};  // base64, of the object's kind; "": none was kept

  friend bool operator==(const ObjectPart&, const ObjectPart&) = default;
};

struct ObjectRecord {
  std::string key{};
  std::uint64_t size = 0;
  Time modified{};
  std::string etag{};  // without quotes
  std::optional<Checksum> checksum{};
  StoredHeaders headers{};          // empty in listings
  std::string tags{};               // "a=1&b=2", encoded; empty in listings
  std::vector<ObjectPart> parts{};  // of a multipart upload; empty in listings
};

// An object's bytes: in memory, or an open file that stays readable whatever happens to the object.
struct Body {
  std::string bytes{};
  UniqueFd file{};
};

struct Conditions {
  std::string if_match{};      // "": none; "*": any object; else an ETag without quotes
  bool if_none_match = false;  // no object may be there
};

struct NewObject {
  std::string bucket{};
  std::string key{};
  std::string etag{};
  std::optional<Checksum> checksum{};
  StoredHeaders headers{};
  std::string tags{};
  std::vector<ObjectPart> parts{};
  Conditions conditions{};
};

// A body on its way in. Dropping it leaves nothing behind.
class PendingBody {
 public:
  virtual ~PendingBody() = default;
  virtual Result<void> append(std::span<const std::byte> bytes) = 0;
  [[nodiscard]] virtual std::uint64_t size() const = 0;
};

struct ListQuery {
  std::string bucket{};
  std::string prefix{};
  std::string delimiter{};
  std::string from{};  // keys from this on
  std::size_t limit = 1000;
};
// The smallest key greater than `key`, and the smallest that is greater than every key with
// `prefix` (nothing when there is none): what to list from.
std::string after_key(std::string_view key);
std::optional<std::string> after_prefix(std::string_view prefix);

struct ListResult {
  std::vector<ObjectRecord> objects{};
  std::vector<std::string> common_prefixes{};
  bool truncated = false;
  std::string last{};       // the last key or common prefix of the page
  std::string next_from{};  // ListQuery::from of the next page
};

struct UploadRecord {
  std::string id{};
  std::string bucket{};
  std::string key{};
  Time created{};
  StoredHeaders headers{};
  std::string tags{};
  std::optional<ChecksumKind> checksum_kind{};  // as asked for at creation
  bool composite = false;
};
struct PartRecord {
  unsigned number = 0;
  std::uint64_t size = 0;
  Time modified{};
  std::string etag{};
  std::optional<Checksum> checksum{};
};
struct UploadQuery {
  std::string bucket{};
  std::string prefix{};
  std::string delimiter{};
  std::string after_key{};  // uploads of this key too, behind `after_id`, when that is given
  std::string after_id{};
  std::optional<Time> created_before{};
  std::size_t limit = 1000;
};
struct UploadPage {
  std::vector<UploadRecord> uploads{};
  std::vector<std::string> common_prefixes{};
  bool truncated = false;
  std::string last_key{};  // UploadQuery::after_key and after_id of the next page
  std::string last_id{};
};

// One of many removals in one request.
struct Removal {
  std::string key{};
  std::string if_match{};  // as in Conditions
};
struct CompletedPart {
  unsigned number = 0;
  std::string etag{};
  std::optional<Checksum> checksum{};
};
struct CompleteUpload {
  std::string bucket{};
  std::string key{};
  std::string id{};
  std::vector<CompletedPart> parts{};
  Conditions conditions{};
  std::optional<Checksum> checksum{};   // of the whole, as the client has it
  std::optional<bool> composite{};      // what that is of, as the client has it
  std::optional<std::uint64_t> size{};  // as the client has it
};

class LocalStore {
 public:
  static Result<std::unique_ptr<LocalStore>> open(const std::filesystem::path& folder,
                                                  const Clock& clock);
  virtual ~LocalStore() = default;

  // False when it was there already.
  virtual Result<bool> create_bucket(const std::string& name, const std::string& region) = 0;
  virtual Result<BucketRecord> find_bucket(const std::string& name) = 0;
  virtual Result<void> delete_bucket(const std::string& name) = 0;
  virtual Result<std::vector<BucketRecord>> list_buckets() = 0;
  // Documents about a bucket, such as its tags: kept as they come, "" when there is none.
  virtual Result<std::string> bucket_document(const std::string& bucket,
                                              const std::string& name) = 0;
  virtual Result<void> set_bucket_document(const std::string& bucket, const std::string& name,
                                           const std::string& document) = 0;

  virtual std::unique_ptr<PendingBody> start_body() = 0;

  virtual Result<ObjectRecord> put(const NewObject& object, std::unique_ptr<PendingBody> body) = 0;
  virtual Result<ObjectRecord> head(const std::string& bucket, const std::string& key) = 0;
  virtual Result<std::pair<ObjectRecord, Body>> get(const std::string& bucket,
                                                    const std::string& key) = 0;
  // Gives `object` the body of another one, in no time whatever its size. kAborted when the source
  // is no longer the one with `source_etag`.
  virtual Result<ObjectRecord> copy(const NewObject& object, const std::string& source_bucket,
                                    const std::string& source_key,
                                    const std::string& source_etag) = 0;
  // An object that is not there is removed already.
  virtual Result<void> remove(const std::string& bucket, const std::string& key,
                              const std::string& if_match = {}) = 0;
  // What became of each, in their order; in one transaction.
  virtual Result<std::vector<Result<void>>> remove_many(const std::string& bucket,
                                                        const std::vector<Removal>& removals) = 0;
  virtual Result<void> set_tags(const std::string& bucket, const std::string& key,
                                const std::string& tags) = 0;
  virtual Result<ListResult> list(const ListQuery& query) = 0;

  // Returns the id.
  virtual Result<std::string> create_upload(const UploadRecord& upload) = 0;
  virtual Result<UploadRecord> find_upload(const std::string& bucket, const std::string& key,
                                           const std::string& id) = 0;
  // For a part of `length` bytes, which may find its place in the object at once.
  virtual Result<std::unique_ptr<PendingBody>> start_part(const UploadRecord& upload,
                                                          unsigned number,
                                                          std::uint64_t length) = 0;
  virtual Result<PartRecord> put_part(const UploadRecord& upload, const PartRecord& part,
                                      std::unique_ptr<PendingBody> body) = 0;
  virtual Result<std::vector<PartRecord>> list_parts(const std::string& upload_id,
                                                     unsigned after_number, std::size_t limit) = 0;
  virtual Result<UploadPage> list_uploads(const UploadQuery& query) = 0;
  virtual Result<void> abort_upload(const std::string& bucket, const std::string& key,
                                    const std::string& id) = 0;
  // Joins the parts, whose numbers must rise and whose ETags must be those that were stored; in no
  // time when they lie side by side already. Asked again after it was done, the answer is the same.
  virtual Result<ObjectRecord> complete_upload(const CompleteUpload& request) = 0;

  // Gives room in the index that removals have left back to the disk, a bounded amount a call.
  // False when there is none to give.
  virtual Result<bool> shrink() = 0;
};

}  // namespace atelier::objects
