// The parts of LocalStore's implementation that its source files share.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "objects/internal/body_files.h"
#include "objects/internal/group_commit.h"
#include "objects/internal/part_slots.h"
#include "objects/local_store.h"
#include "sqlite/sqlite.h"

namespace atelier::objects::internal {

using sqlite::Blob;
using sqlite::Rows;

// Where a row says that its body is; empty bodies are nowhere.
struct BodyRef {
  std::int64_t inline_id = 0;
  std::string file;
  std::optional<std::uint64_t> place{};  // of a part within the upload's file
  [[nodiscard]] sqlite::Value file_value() const {
    return file.empty() ? sqlite::Value{nullptr} : sqlite::Value{std::string_view{file}};
  }
  [[nodiscard]] sqlite::Value place_value() const {
    return place ? sqlite::Value{static_cast<std::int64_t>(*place)} : sqlite::Value{nullptr};
  }
  friend bool operator==(const BodyRef&, const BodyRef&) = default;
};

// A body before it has a row: in memory, then in a file as soon as it outgrows kInlineBytes; or in
// the place that was kept for a part.
class StoreBody final : public PendingBody {
 public:
  explicit StoreBody(BodyFiles& files, std::unique_ptr<PartSlots::Slot> slot = nullptr)
      : files_(files), slot_(std::move(slot)) {}
  StoreBody(const StoreBody&) = delete;
  StoreBody& operator=(const StoreBody&) = delete;
  ~StoreBody() override;

  Result<void> append(std::span<const std::byte> bytes) override;
  [[nodiscard]] std::uint64_t size() const override { return size_; }
  // Appends `length` bytes of an open file from `offset` on, in the kernel where that can be.
  Result<void> append_file(int fd, std::uint64_t offset, std::uint64_t length);
  // Takes another body's file under a second name.
  Result<void> link_file(const std::string& name, std::uint64_t size);
  // The body is a durable file that has a row already, which stays when this is dropped.
  void use_file(const std::string& name, std::uint64_t size);
  [[nodiscard]] const PartSlots::Slot* slot() const { return slot_.get(); }
  // Makes a body in a file durable.
  Result<void> seal();
  // Writes the body into the index (or finds that it is in a file already).
  Result<BodyRef> insert(Database& db) const;
  // The row is there: the file stays.
  void adopted();

 private:
  Result<void> append_to_slot(std::span<const std::byte> bytes);
  Result<void> move_to_file();

  BodyFiles& files_;
  std::unique_ptr<PartSlots::Slot> slot_;
  std::string bytes_;
  std::string name_;
  bool borrowed_ = false;  // the file has a row of somebody else
  UniqueFd fd_;
  std::uint64_t size_ = 0;
};

class StoreImpl final : public LocalStore {
 public:
  static Result<std::unique_ptr<StoreImpl>> open(const std::filesystem::path& folder,
                                                 const Clock& clock);
  ~StoreImpl() override;

  Result<bool> create_bucket(const std::string& name, const std::string& region) override;
  Result<BucketRecord> find_bucket(const std::string& name) override;
  Result<void> delete_bucket(const std::string& name) override;
  Result<std::vector<BucketRecord>> list_buckets() override;
  Result<std::string> bucket_document(const std::string& bucket, const std::string& name) override;
  Result<void> set_bucket_document(const std::string& bucket, const std::string& name,
                                   const std::string& document) override;
  std::unique_ptr<PendingBody> start_body() override;
  Result<ObjectRecord> put(const NewObject& object, std::unique_ptr<PendingBody> body) override;
  Result<ObjectRecord> head(const std::string& bucket, const std::string& key) override;
  Result<std::pair<ObjectRecord, Body>> get(const std::string& bucket,
                                            const std::string& key) override;
  Result<ObjectRecord> copy(const NewObject& object, const std::string& source_bucket,
                            const std::string& source_key, const std::string& source_etag) override;
  Result<void> remove(const std::string& bucket, const std::string& key,
                      const std::string& if_match) override;
  Result<std::vector<Result<void>>> remove_many(const std::string& bucket,
                                                const std::vector<Removal>& removals) override;
  Result<void> set_tags(const std::string& bucket, const std::string& key,
                        const std::string& tags) override;
  Result<ListResult> list(const ListQuery& query) override;
  Result<std::string> create_upload(const UploadRecord& upload) override;
  Result<UploadRecord> find_upload(const std::string& bucket, const std::string& key,
                                   const std::string& id) override;
  Result<std::unique_ptr<PendingBody>> start_part(const UploadRecord& upload, unsigned number,
                                                  std::uint64_t length) override;
  Result<PartRecord> put_part(const UploadRecord& upload, const PartRecord& part,
                              std::unique_ptr<PendingBody> body) override;
  Result<std::vector<PartRecord>> list_parts(const std::string& upload_id, unsigned after_number,
                                             std::size_t limit) override;
  Result<UploadPage> list_uploads(const UploadQuery& query) override;
  Result<void> abort_upload(const std::string& bucket, const std::string& key,
                            const std::string& id) override;
  Result<ObjectRecord> complete_upload(const CompleteUpload& request) override;
  Result<bool> shrink() override;

 private:
  // A connection for reading, lent from a pool.
  class Reader {
   public:
    Reader(StoreImpl& store, std::unique_ptr<Database> connection)
        : store_(store), connection_(std::move(connection)) {}
    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;
    ~Reader();
    Database& operator*() { return *connection_; }

   private:
    StoreImpl& store_;
    std::unique_ptr<Database> connection_;
  };
  // What a change takes out of the index: files to be unlinked once it is committed.
  using Garbage = std::vector<std::string>;
  using Change = std::function<Result<void>(Database&, Garbage&)>;

  struct FoundObject {
    ObjectRecord record;
    BodyRef ref;
    std::string bytes;  // of an inline body, when asked for
  };
  struct StoredPart {
    PartRecord record;
    BodyRef ref;
  };
  using StoredParts = std::map<unsigned, StoredPart>;
  using ChosenParts = std::vector<const StoredPart*>;  // by the client, in order

  StoreImpl(std::filesystem::path folder, const Clock& clock)
      : folder_(std::move(folder)), clock_(clock) {}
  [[nodiscard]] Result<void> check_index() const;
  [[nodiscard]] bool begin_run() const;
  Result<void> recover(bool cut_short);
  Result<std::unique_ptr<Database>> connect() const;
  Result<std::unique_ptr<Reader>> reader();
  Result<void> commit(const Change& change);
  // Of a change that gives room back: it goes through on a full disk too, at the expense of the
  // reserve, a file that is there for this alone.
  Result<void> commit_removal(const Change& change);
  [[nodiscard]] bool is_tight() const;
  Result<void> give_back_pages();
  void keep_reserve();
  void release_reserve();
  void collect(const Garbage& garbage);

  Result<FoundObject> find_object(const std::string& bucket, const std::string& key, bool body);
  Result<void> replace_object(Database& db, Garbage& garbage, const NewObject& object,
                              const StoreBody& body, ObjectRecord& stored) const;
  Result<void> drop_body(Database& db, Garbage& garbage, const BodyRef& ref) const;
  // Without the file in which they may lie side by side.
  Result<void> drop_parts(Database& db, Garbage& garbage, const std::string& upload_id) const;
  Result<void> remove_row(Database& db, Garbage& garbage, std::int64_t bucket_id,
                          const std::string& key, const std::string& if_match) const;

  static Result<StoredParts> load_parts(Database& db, const std::string& upload_id);
  Result<void> insert_part(Database& db, Garbage& garbage, const UploadRecord& upload,
                           const StoreBody& body, PartRecord& part) const;
  Result<void> finish_upload(Database& db, Garbage& garbage, const CompleteUpload& request,
                             const NewObject& object, const ChosenParts& parts,
                             const StoreBody& body, bool adopts, ObjectRecord& result) const;
  Result<std::string> inline_bytes(std::int64_t id);
  Result<StoredSlots> load_slots(const UploadRecord& upload);
  // The file of the upload as it is or can be made, when the parts that lie in it are in their
  // places of the whole; else null.
  Result<std::unique_ptr<StoreBody>> adopt_slots(const StoredParts& stored,
                                                 const ChosenParts& parts);
  Result<void> copy_part(const StoredPart& part, StoreBody& to);
  Result<void> copy_part_into(const StoredPart& part, int fd, std::uint64_t offset);
  Result<std::unique_ptr<StoreBody>> join_parts(const ChosenParts& parts);
  Result<ObjectRecord> answer_again(const CompleteUpload& request);

  const std::filesystem::path folder_;
  const Clock& clock_;
  UniqueFd lock_;
  UniqueFd reserve_;
  std::mutex reserve_mutex_;
  std::unique_ptr<BodyFiles> files_;
  std::unique_ptr<PartSlots> slots_;
  std::unique_ptr<GroupCommit> writer_;
  std::mutex readers_mutex_;
  std::vector<std::unique_ptr<Database>> readers_;
  std::mutex collected_mutex_;
  Garbage collected_;  // unlinked, with a row in `garbage` still
};

// "NoSuchBucket" with the bucket's name.
Error no_such_bucket(std::string_view name);
Error no_such_key(std::string_view key);
Error no_such_upload(std::string_view id);
Result<std::int64_t> bucket_id(Database& db, const std::string& name);

// Rows keep lists as text.
std::string pack_headers(const StoredHeaders& headers);
StoredHeaders unpack_headers(std::string_view text);
std::string pack_checksum(const std::optional<Checksum>& checksum);
std::optional<Checksum> unpack_checksum(std::string_view text);
std::string pack_parts(const std::vector<ObjectPart>& parts);
std::vector<ObjectPart> unpack_parts(std::string_view text);

}  // namespace atelier::objects::internal
