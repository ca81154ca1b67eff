// Multipart uploads of the LocalStore.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>

#include "base/id.h"
#include "objects/internal/file_ranges.h"
#include "objects/internal/local_store_impl.h"

namespace atelier::objects::internal {
namespace {

// For how long a completion can be asked for again, by a client that missed the answer.
constexpr std::chrono::hours kRememberFinished{24};

UploadRecord read_upload(const Rows& row, std::string bucket, int first) {
  UploadRecord upload;
  upload.bucket = std::move(bucket);
  upload.key = row.bytes(first);
  upload.id = row.bytes(first + 1);
  upload.created = from_epoch_milliseconds(row.integer(first + 2));
  upload.headers = unpack_headers(row.bytes(first + 3));
  upload.tags = row.bytes(first + 4);
  upload.checksum_kind = find_checksum_kind(row.bytes(first + 5));
  upload.composite = row.integer(first + 6) != 0;
  return upload;
}

// "body, file, place"
BodyRef read_ref(const Rows& row, int first) {
  BodyRef ref{row.integer(first), row.text(first + 1)};
  if (!row.null(first + 2)) ref.place = static_cast<std::uint64_t>(row.integer(first + 2));
  return ref;
}

Error invalid_part(unsigned number, std::string_view why) {
  return Error{Code::kInvalidArgument, fmt::format("InvalidPart: part {} {}", number, why)};
}

}  // namespace

Result<std::string> StoreImpl::create_upload(const UploadRecord& upload) {
  const std::string id = random_id();
  const std::string headers = pack_headers(upload.headers);
  TRY(commit([&](Database& db, Garbage&) -> Result<void> {
    const std::int64_t bucket = TRY(bucket_id(db, upload.bucket));
    const Time now = clock_.now();
    TRY(db.run("DELETE FROM uploads WHERE finished < ?",
               {to_epoch_milliseconds(now - kRememberFinished)}));
    TRY(
        db.run("INSERT INTO uploads(bucket, key, id, created, headers, tags, checksum, composite) "
               "VALUES(?, ?, ?, ?, ?, ?, ?, ?)",
               {bucket, Blob{upload.key}, id, to_epoch_milliseconds(now), headers, upload.tags,
                upload.checksum_kind ? checksum_name(*upload.checksum_kind) : "",
                std::int64_t{upload.composite}}));
    return {};
  }));
  return id;
}

Result<UploadRecord> StoreImpl::find_upload(const std::string& bucket, const std::string& key,
                                            const std::string& id) {
  const auto db = TRY(reader());
  const std::int64_t bucket_number = TRY(bucket_id(**db, bucket));
  Rows row = TRY((**db).query(
      "SELECT key, id, created, headers, tags, checksum, composite FROM uploads WHERE bucket = ? "
      "AND key = ? AND id = ? AND finished IS NULL",
      {bucket_number, Blob{key}, id}));
  if (!TRY(row.step())) return no_such_upload(id);
  return read_upload(row, bucket, 0);
}

Result<StoredSlots> StoreImpl::load_slots(const UploadRecord& upload) {
  const auto db = TRY(reader());
  StoredSlots slots;
  {
    const std::int64_t bucket = TRY(bucket_id(**db, upload.bucket));
    Rows row = TRY((**db).query(
        "SELECT file, slot_bytes FROM uploads WHERE bucket = ? AND key = ? AND id = ? AND finished "
        "IS NULL",
        {bucket, Blob{upload.key}, upload.id}));
    if (!TRY(row.step())) return no_such_upload(upload.id);
    slots.file = row.text(0);
    slots.slot_bytes = static_cast<std::uint64_t>(row.integer(1));
  }
  Rows rows = TRY(
      (**db).query("SELECT number FROM parts WHERE upload = ? AND place IS NOT NULL", {upload.id}));
  while (TRY(rows.step())) slots.taken.insert(static_cast<unsigned>(rows.integer(0)));
  return slots;
}

Result<std::unique_ptr<PendingBody>> StoreImpl::start_part(const UploadRecord& upload,
                                                           unsigned number, std::uint64_t length) {
  std::unique_ptr<PartSlots::Slot> slot =
      TRY(slots_->reserve(upload.id, number, length, [&] { return load_slots(upload); }));
  std::unique_ptr<PendingBody> body = std::make_unique<StoreBody>(*files_, std::move(slot));
  return body;
}

Result<PartRecord> StoreImpl::put_part(const UploadRecord& upload, const PartRecord& part,
                                       std::unique_ptr<PendingBody> body) {
  auto& pending = static_cast<StoreBody&>(*body);
  TRY(pending.seal());
  PartRecord stored = part;
  stored.size = pending.size();
  TRY(commit([&](Database& db, Garbage& garbage) {
    return insert_part(db, garbage, upload, pending, stored);
  }));
  pending.adopted();
  return stored;
}

Result<void> StoreImpl::insert_part(Database& db, Garbage& garbage, const UploadRecord& upload,
                                    const StoreBody& body, PartRecord& part) const {
  const std::int64_t bucket = TRY(bucket_id(db, upload.bucket));
  {
    Rows open = TRY(db.query(
        "SELECT 1 FROM uploads WHERE bucket = ? AND key = ? AND id = ? AND finished IS NULL",
        {bucket, Blob{upload.key}, upload.id}));
    if (!TRY(open.step())) return no_such_upload(upload.id);
  }
  BodyRef old;
  {
    Rows find = TRY(db.query("SELECT body, file, place FROM parts WHERE upload = ? AND number = ?",
                             {upload.id, std::int64_t{part.number}}));
    if (TRY(find.step())) old = read_ref(find, 0);
  }
  TRY(drop_body(db, garbage, old));
  const BodyRef ref = TRY(body.insert(db));
  if (body.slot() != nullptr) {
    TRY(db.run(
        "UPDATE uploads SET file = ?, slot_bytes = ? WHERE bucket = ? AND key = ? AND id = ?",
        {ref.file, static_cast<std::int64_t>(body.slot()->slot_bytes), bucket, Blob{upload.key},
         upload.id}));
  }
  part.modified = clock_.now();
  const std::string checksum = pack_checksum(part.checksum);
  TRY(db.run(
      "INSERT OR REPLACE INTO parts(upload, number, size, modified, etag, checksum, body, file, "
      "place) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?)",
      {upload.id, std::int64_t{part.number}, static_cast<std::int64_t>(part.size),
       to_epoch_milliseconds(part.modified), part.etag, checksum, ref.inline_id, ref.file_value(),
       ref.place_value()}));
  return {};
}

Result<StoreImpl::StoredParts> StoreImpl::load_parts(Database& db, const std::string& upload_id) {
  Rows rows = TRY(
      db.query("SELECT number, size, modified, etag, checksum, body, file, place FROM parts WHERE "
               "upload = ? ORDER BY number",
               {upload_id}));
  StoredParts parts;
  while (TRY(rows.step())) {
    StoredPart part;
    part.record = {
        static_cast<unsigned>(rows.integer(0)), static_cast<std::uint64_t>(rows.integer(1)),
        from_epoch_milliseconds(rows.integer(2)), rows.text(3), unpack_checksum(rows.bytes(4))};
    part.ref = read_ref(rows, 5);
    parts.emplace(part.record.number, std::move(part));
  }
  return parts;
}

Result<std::vector<PartRecord>> StoreImpl::list_parts(const std::string& upload_id,
                                                      unsigned after_number, std::size_t limit) {
  const auto db = TRY(reader());
  const StoredParts parts = TRY(load_parts(**db, upload_id));
  std::vector<PartRecord> page;
  for (auto at = parts.upper_bound(after_number); at != parts.end() && page.size() < limit; ++at) {
    page.push_back(at->second.record);
  }
  return page;
}

namespace {

bool is_passed(const UploadQuery& query, std::string_view key, std::string_view id) {
  if (query.after_key.empty() || key != query.after_key) return false;
  return query.after_id.empty() || id <= query.after_id;
}

}  // namespace

Result<UploadPage> StoreImpl::list_uploads(const UploadQuery& query) {
  const auto db = TRY(reader());
  const std::int64_t bucket = TRY(bucket_id(**db, query.bucket));
  const std::int64_t before = query.created_before ? to_epoch_milliseconds(*query.created_before)
                                                   : std::numeric_limits<std::int64_t>::max();
  UploadPage page;
  std::optional<std::string> from = std::max(query.after_key, query.prefix);
  // A marker that is a common prefix: all under it has been listed.
  if (!query.delimiter.empty() && query.after_key.ends_with(query.delimiter)) {
    from = after_prefix(query.after_key);
  }
  while (from && !page.truncated) {
    const std::string start = *std::exchange(from, std::nullopt);
    Rows rows = TRY((**db).query(
        "SELECT key, id, created, headers, tags, checksum, composite FROM uploads WHERE bucket = ? "
        "AND key >= ? AND finished IS NULL AND created < ? ORDER BY key, id",
        {bucket, Blob{start}, before}));
    while (TRY(rows.step())) {
      const std::string_view key = rows.bytes(0);
      if (!key.starts_with(query.prefix)) break;
      if (is_passed(query, key, rows.bytes(1))) continue;
      if (page.uploads.size() + page.common_prefixes.size() >= query.limit) {
        page.truncated = true;
        break;
      }
      const std::size_t cut = query.delimiter.empty()
                                  ? std::string_view::npos
                                  : key.find(query.delimiter, query.prefix.size());
      if (cut != std::string_view::npos) {
        page.common_prefixes.emplace_back(key.substr(0, cut + query.delimiter.size()));
        page.last_key = page.common_prefixes.back();
        page.last_id.clear();
        from = after_prefix(page.last_key);
        break;
      }
      page.uploads.push_back(read_upload(rows, query.bucket, 0));
      page.last_key = page.uploads.back().key;
      page.last_id = page.uploads.back().id;
    }
  }
  return page;
}

Result<void> StoreImpl::drop_parts(Database& db, Garbage& garbage,
                                   const std::string& upload_id) const {
  const StoredParts parts = TRY(load_parts(db, upload_id));
  for (const auto& [number, part] : parts) TRY(drop_body(db, garbage, part.ref));
  TRY(db.run("DELETE FROM parts WHERE upload = ?", {upload_id}));
  return {};
}

Result<void> StoreImpl::abort_upload(const std::string& bucket, const std::string& key,
                                     const std::string& id) {
  TRY(commit_removal([&](Database& db, Garbage& garbage) -> Result<void> {
    const std::int64_t bucket_number = TRY(bucket_id(db, bucket));
    {
      Rows found = TRY(db.query(
          "SELECT file FROM uploads WHERE bucket = ? AND key = ? AND id = ? AND finished IS NULL",
          {bucket_number, Blob{key}, id}));
      if (!TRY(found.step())) return no_such_upload(id);
      if (!found.null(0)) garbage.push_back(found.text(0));
    }
    TRY(db.run("DELETE FROM uploads WHERE bucket = ? AND key = ? AND id = ?",
               {bucket_number, Blob{key}, id}));
    return drop_parts(db, garbage, id);
  }));
  slots_->forget(id);
  return {};
}

Result<ObjectRecord> StoreImpl::answer_again(const CompleteUpload& request) {
  std::string etag;
  {
    const auto db = TRY(reader());
    const std::int64_t bucket = TRY(bucket_id(**db, request.bucket));
    Rows row = TRY((**db).query(
        "SELECT etag FROM uploads WHERE bucket = ? AND key = ? AND id = ? AND finished IS NOT NULL",
        {bucket, Blob{request.key}, request.id}));
    if (!TRY(row.step())) return no_such_upload(request.id);
    etag = row.bytes(0);
  }
  Result<ObjectRecord> object = head(request.bucket, request.key);
  if (!object || object->etag != etag) return no_such_upload(request.id);
  return object;
}

namespace {

// The parts that make up the object, in order, once the client's list was found right.
template <typename Parts>
auto choose_parts(const CompleteUpload& request, const Parts& stored)
    -> Result<std::vector<const typename Parts::mapped_type*>> {
  if (request.parts.empty()) {
    return Error{Code::kInvalidArgument, "MalformedXML: the list of parts is empty"};
  }
  std::vector<const typename Parts::mapped_type*> chosen;
  unsigned before = 0;
  for (const CompletedPart& part : request.parts) {
    if (part.number <= before) {
      return Error{Code::kInvalidArgument,
                   fmt::format("InvalidPartOrder: part {} follows part {}; part numbers must rise",
                               part.number, before)};
    }
    before = part.number;
    const auto at = stored.find(part.number);
    if (at == stored.end()) return invalid_part(part.number, "was not uploaded");
    const PartRecord& record = at->second.record;
    if (record.etag != part.etag) {
      return invalid_part(part.number,
                          fmt::format("has the ETag '{}', not '{}'", record.etag, part.etag));
    }
    if (part.checksum && part.checksum != record.checksum) {
      return invalid_part(part.number, "was stored with another checksum");
    }
    chosen.push_back(&at->second);
  }
  for (std::size_t i = 0; i + 1 < chosen.size(); ++i) {
    const PartRecord& record = chosen[i]->record;
    if (record.size >= kMinPartBytes) continue;
    return Error{
        Code::kInvalidArgument,
        fmt::format("EntityTooSmall: part {} has {} bytes; every part but the last needs {}",
                    record.number, record.size, kMinPartBytes)};
  }
  return chosen;
}

// Of the whole, when every part has one of the same kind.
Result<std::optional<Checksum>> checksum_of(const UploadRecord& upload,
                                            const std::vector<PartRecord>& parts) {
  std::vector<PartChecksum> sums;
  const std::optional<Checksum>& first = parts.front().checksum;
  for (const PartRecord& part : parts) {
    if (!part.checksum || part.checksum->kind != first->kind) return std::optional<Checksum>{};
    sums.push_back({part.checksum->value, part.size});
  }
  const bool composite =
      upload.checksum_kind ? upload.composite : first->kind != ChecksumKind::kCrc64Nvme;
  return std::optional{TRY(combine_checksums(first->kind, composite, sums))};
}

Result<void> compare_whole(const CompleteUpload& request, const NewObject& object) {
  std::uint64_t size = 0;
  for (const ObjectPart& part : object.parts) size += part.size;
  if (size > kMaxObjectBytes) {
    return Error{Code::kInvalidArgument,
                 fmt::format("EntityTooLarge: the parts have {} bytes; an object can have {}", size,
                             kMaxObjectBytes)};
  }
  if (request.size && *request.size != size) {
    return Error{Code::kInvalidArgument,
                 fmt::format("InvalidRequest: x-amz-mp-object-size is {}, the parts have {} bytes",
                             *request.size, size)};
  }
  if (request.composite && object.checksum && *request.composite != object.checksum->composite) {
    return Error{Code::kDataLoss,
                 fmt::format("BadDigest: the upload's checksum is of the type {}",
                             object.checksum->composite ? "COMPOSITE" : "FULL_OBJECT")};
  }
  if (!request.checksum || !object.checksum) return {};
  if (request.checksum->kind == object.checksum->kind &&
      request.checksum->value == object.checksum->value) {
    return {};
  }
  return Error{Code::kDataLoss, fmt::format("BadDigest: the {} of the parts is {}, not {}",
                                            checksum_name(object.checksum->kind),
                                            object.checksum->value, request.checksum->value)};
}

// "An MD5 of the parts' MD5s, and their number."
Result<std::string> etag_of(const std::vector<PartRecord>& parts) {
  std::string raws;
  for (const PartRecord& part : parts) raws += TRY(from_hex(part.etag));
  return fmt::format("{}-{}", to_hex(digest(Digest::kMd5, raws)), parts.size());
}

}  // namespace

Result<std::string> StoreImpl::inline_bytes(std::int64_t id) {
  const auto db = TRY(reader());
  Rows row = TRY((**db).query("SELECT bytes FROM bodies WHERE id = ?", {id}));
  if (TRY(row.step())) return row.text(0);
  return Error{Code::kInvalidArgument, "InvalidPart: a part was replaced meanwhile"};
}

Result<void> StoreImpl::copy_part(const StoredPart& part, StoreBody& to) {
  if (!part.ref.file.empty()) {
    const UniqueFd fd = TRY(files_->open_body(part.ref.file));
    return to.append_file(fd.get(), part.ref.place.value_or(0), part.record.size);
  }
  if (part.ref.inline_id == 0) return {};
  const std::string bytes = TRY(inline_bytes(part.ref.inline_id));
  return to.append(std::as_bytes(std::span{bytes.data(), bytes.size()}));
}

Result<void> StoreImpl::copy_part_into(const StoredPart& part, int fd, std::uint64_t offset) {
  if (!part.ref.file.empty()) {
    const UniqueFd from = TRY(files_->open_body(part.ref.file));
    return copy_range(from.get(), 0, fd, offset, part.record.size);
  }
  if (part.ref.inline_id == 0) return {};
  const std::string bytes = TRY(inline_bytes(part.ref.inline_id));
  return write_all_at(fd, std::as_bytes(std::span{bytes.data(), bytes.size()}), offset);
}

Result<std::unique_ptr<StoreBody>> StoreImpl::adopt_slots(const StoredParts& stored,
                                                          const ChosenParts& parts) {
  std::unique_ptr<StoreBody> none;
  std::string file;
  std::size_t in_place = 0;
  std::uint64_t size = 0;
  for (const StoredPart* part : parts) {
    if (part->ref.place) {
      if (*part->ref.place != size) return none;
      file = part->ref.file;
      ++in_place;
    }
    size += part->record.size;
  }
  // A part that lies there and is not chosen may be chosen by the next attempt: it must stay.
  const auto lying = std::count_if(stored.begin(), stored.end(), [](const auto& entry) {
    return entry.second.ref.place.has_value();
  });
  if (in_place == 0 || static_cast<std::size_t>(lying) != in_place) return none;
  const UniqueFd fd = TRY(files_->open_for_writing(file));
  // No row refers to what is written here: a crash in between leaves the upload as it was.
  std::uint64_t offset = 0;
  for (const StoredPart* part : parts) {
    if (!part->ref.place) TRY(copy_part_into(*part, fd.get(), offset));
    offset += part->record.size;
  }
  // Behind the end there may be the rest of a longer body that was refused.
  TRY(set_length(fd.get(), size));
  TRY(files_->sync(file, fd.get()));
  auto body = std::make_unique<StoreBody>(*files_);
  body->use_file(file, size);
  return body;
}

Result<std::unique_ptr<StoreBody>> StoreImpl::join_parts(const ChosenParts& parts) {
  auto body = std::make_unique<StoreBody>(*files_);
  const BodyRef& first = parts.front()->ref;
  if (parts.size() == 1 && !first.file.empty() && !first.place) {
    TRY(body->link_file(first.file, parts.front()->record.size));
    return body;
  }
  for (const StoredPart* part : parts) TRY(copy_part(*part, *body));
  return body;
}

namespace {

// Keeps parts out of the upload's file while it becomes an object's.
class Closed {
 public:
  Closed(PartSlots& slots, const std::string& upload)
      : slots_(slots), upload_(upload), held_(slots.close(upload)) {}
  Closed(const Closed&) = delete;
  Closed& operator=(const Closed&) = delete;
  ~Closed() {
    if (held_) slots_.reopen(upload_);
  }
  explicit operator bool() const { return held_; }

 private:
  PartSlots& slots_;
  const std::string& upload_;
  const bool held_;
};

NewObject object_of(const CompleteUpload& request, const UploadRecord& upload) {
  return {.bucket = request.bucket,
          .key = request.key,
          .headers = upload.headers,
          .tags = upload.tags,
          .conditions = request.conditions};
}

}  // namespace

Result<ObjectRecord> StoreImpl::complete_upload(const CompleteUpload& request) {
  const Result<UploadRecord> upload = find_upload(request.bucket, request.key, request.id);
  if (!upload) return answer_again(request);
  // Before the parts are looked at: none comes to lie in the file after that.
  const Closed closed{*slots_, request.id};
  const StoredParts stored = TRY(load_parts(**TRY(reader()), request.id));
  const ChosenParts parts = TRY(choose_parts(request, stored));
  std::vector<PartRecord> records;
  NewObject object = object_of(request, *upload);
  for (const StoredPart* part : parts) records.push_back(part->record);
  object.etag = TRY(etag_of(records));
  object.checksum = TRY(checksum_of(*upload, records));
  for (const PartRecord& part : records) {
    const bool kept = object.checksum && part.checksum;
    object.parts.push_back({part.number, part.size, kept ? part.checksum->value : std::string{}});
  }
  TRY(compare_whole(request, object));

  std::unique_ptr<StoreBody> body;
  if (closed) body = TRY(adopt_slots(stored, parts));
  const bool adopts = body != nullptr;
  if (!adopts) body = TRY(join_parts(parts));
  TRY(body->seal());
  ObjectRecord result;
  Result<void> done = commit([&](Database& db, Garbage& garbage) {
    return finish_upload(db, garbage, request, object, parts, *body, adopts, result);
  });
  // Somebody else may have completed it meanwhile.
  if (!done && done.error().code == Code::kNotFound) return answer_again(request);
  TRY(std::move(done));
  body->adopted();
  return result;
}

Result<void> StoreImpl::finish_upload(Database& db, Garbage& garbage, const CompleteUpload& request,
                                      const NewObject& object, const ChosenParts& parts,
                                      const StoreBody& body, bool adopts,
                                      ObjectRecord& result) const {
  // A part may have been replaced, or the upload aborted, while the parts were joined.
  const StoredParts now = TRY(load_parts(db, request.id));
  for (const StoredPart* part : parts) {
    const auto at = now.find(part->record.number);
    if (at == now.end()) return no_such_upload(request.id);
    if (at->second.ref != part->ref) {
      return invalid_part(part->record.number, "was replaced meanwhile");
    }
  }
  TRY(replace_object(db, garbage, object, body, result));
  TRY(drop_parts(db, garbage, request.id));
  const std::int64_t bucket = TRY(bucket_id(db, request.bucket));
  if (!adopts) {
    Rows file = TRY(db.query("SELECT file FROM uploads WHERE bucket = ? AND key = ? AND id = ?",
                             {bucket, Blob{request.key}, request.id}));
    if (TRY(file.step()) && !file.null(0)) garbage.push_back(file.text(0));
  }
  TRY(db.run(
      "UPDATE uploads SET finished = ?, etag = ?, file = NULL WHERE bucket = ? AND key = ? "
      "AND id = ?",
      {to_epoch_milliseconds(clock_.now()), object.etag, bucket, Blob{request.key}, request.id}));
  return {};
}

}  // namespace atelier::objects::internal
