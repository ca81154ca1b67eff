// Multipart uploads of the LocalStore.
#include <fmt/format.h>

#include <chrono>

#include "base/id.h"
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

Result<PartRecord> StoreImpl::put_part(const UploadRecord& upload, const PartRecord& part,
                                       std::unique_ptr<PendingBody> body) {
  auto& pending = static_cast<StoreBody&>(*body);
  TRY(pending.seal());
  PartRecord stored = part;
  stored.size = pending.size();
  const std::string checksum = pack_checksum(part.checksum);
  TRY(commit([&](Database& db, Garbage& garbage) -> Result<void> {
    const std::int64_t bucket = TRY(bucket_id(db, upload.bucket));
    {
      Rows open = TRY(db.query(
          "SELECT 1 FROM uploads WHERE bucket = ? AND key = ? AND id = ? AND finished IS NULL",
          {bucket, Blob{upload.key}, upload.id}));
      if (!TRY(open.step())) return no_such_upload(upload.id);
    }
    BodyRef old;
    {
      Rows find = TRY(db.query("SELECT body, file FROM parts WHERE upload = ? AND number = ?",
                               {upload.id, std::int64_t{part.number}}));
      if (TRY(find.step())) old = {find.integer(0), find.text(1)};
    }
    TRY(drop_body(db, garbage, old));
    const BodyRef ref = TRY(pending.insert(db));
    stored.modified = clock_.now();
    TRY(db.run(
        "INSERT OR REPLACE INTO parts(upload, number, size, modified, etag, checksum, body, file) "
        "VALUES(?, ?, ?, ?, ?, ?, ?, ?)",
        {upload.id, std::int64_t{part.number}, static_cast<std::int64_t>(stored.size),
         to_epoch_milliseconds(stored.modified), part.etag, checksum, ref.inline_id,
         ref.file_value()}));
    return {};
  }));
  pending.adopted();
  return stored;
}

Result<StoreImpl::StoredParts> StoreImpl::load_parts(Database& db, const std::string& upload_id) {
  Rows rows = TRY(db.query(
      "SELECT number, size, modified, etag, checksum, body, file FROM parts WHERE upload = "
      "? ORDER BY number",
      {upload_id}));
  StoredParts parts;
  while (TRY(rows.step())) {
    StoredPart part;
    part.record = {
        static_cast<unsigned>(rows.integer(0)), static_cast<std::uint64_t>(rows.integer(1)),
        from_epoch_milliseconds(rows.integer(2)), rows.text(3), unpack_checksum(rows.bytes(4))};
    part.ref = {rows.integer(5), rows.text(6)};
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

Result<std::pair<std::vector<UploadRecord>, bool>> StoreImpl::list_uploads(
    const UploadQuery& query) {
  const auto db = TRY(reader());
  const std::int64_t bucket = TRY(bucket_id(**db, query.bucket));
  // With a marker for the id, uploads of the marker's own key may follow; else they are all passed.
  const std::string from = std::max(query.after_key, query.prefix);
  Rows rows = TRY((**db).query(
      "SELECT key, id, created, headers, tags, checksum, composite FROM uploads WHERE bucket = ? "
      "AND key >= ? AND finished IS NULL ORDER BY key, id",
      {bucket, Blob{from}}));
  std::vector<UploadRecord> uploads;
  while (TRY(rows.step())) {
    const std::string_view key = rows.bytes(0);
    if (!key.starts_with(query.prefix)) break;
    if (!query.after_key.empty() && key == query.after_key &&
        (query.after_id.empty() || rows.bytes(1) <= query.after_id)) {
      continue;
    }
    if (uploads.size() == query.limit) return std::pair{std::move(uploads), true};
    uploads.push_back(read_upload(rows, query.bucket, 0));
  }
  return std::pair{std::move(uploads), false};
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
  return commit_removal([&](Database& db, Garbage& garbage) -> Result<void> {
    const std::int64_t bucket_number = TRY(bucket_id(db, bucket));
    const std::int64_t dropped = TRY(
        db.run("DELETE FROM uploads WHERE bucket = ? AND key = ? AND id = ? AND finished IS NULL",
               {bucket_number, Blob{key}, id}));
    if (dropped == 0) return no_such_upload(id);
    return drop_parts(db, garbage, id);
  });
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
  for (const std::uint64_t part : object.part_sizes) size += part;
  if (request.size && *request.size != size) {
    return Error{Code::kInvalidArgument,
                 fmt::format("InvalidRequest: x-amz-mp-object-size is {}, the parts have {} bytes",
                             *request.size, size)};
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

Result<std::unique_ptr<StoreBody>> StoreImpl::join_parts(
    const std::vector<const StoredPart*>& parts) {
  auto body = std::make_unique<StoreBody>(*files_);
  if (parts.size() == 1 && !parts.front()->ref.file.empty()) {
    TRY(body->link_file(parts.front()->ref.file, parts.front()->record.size));
    return body;
  }
  const auto db = TRY(reader());
  for (const StoredPart* part : parts) {
    if (!part->ref.file.empty()) {
      const UniqueFd fd = TRY(files_->open_body(part->ref.file));
      TRY(body->append_file(fd.get(), part->record.size));
    } else if (part->ref.inline_id != 0) {
      Rows row = TRY((**db).query("SELECT bytes FROM bodies WHERE id = ?", {part->ref.inline_id}));
      if (!TRY(row.step())) {
        return invalid_part(part->record.number, "was replaced meanwhile");
      }
      TRY(body->append(std::as_bytes(std::span{row.bytes(0).data(), row.bytes(0).size()})));
    }
  }
  return body;
}

Result<ObjectRecord> StoreImpl::complete_upload(const CompleteUpload& request) {
  const Result<UploadRecord> upload = find_upload(request.bucket, request.key, request.id);
  if (!upload) return answer_again(request);
  const StoredParts stored = TRY(load_parts(**TRY(reader()), request.id));
  const std::vector<const StoredPart*> parts = TRY(choose_parts(request, stored));
  std::vector<PartRecord> records;
  NewObject object{.bucket = request.bucket,
                   .key = request.key,
                   .headers = upload->headers,
                   .tags = upload->tags,
                   .conditions = request.conditions};
  for (const StoredPart* part : parts) {
    records.push_back(part->record);
    object.part_sizes.push_back(part->record.size);
  }
  object.etag = TRY(etag_of(records));
  object.checksum = TRY(checksum_of(*upload, records));
  TRY(compare_whole(request, object));

  const std::unique_ptr<StoreBody> body = TRY(join_parts(parts));
  TRY(body->seal());
  ObjectRecord result;
  TRY(commit([&](Database& db, Garbage& garbage) -> Result<void> {
    // A part may have been replaced, or the upload aborted, while the parts were joined.
    const StoredParts now = TRY(load_parts(db, request.id));
    for (const StoredPart* part : parts) {
      const auto at = now.find(part->record.number);
      if (at == now.end()) return no_such_upload(request.id);
      if (at->second.ref != part->ref) {
        return invalid_part(part->record.number, "was replaced meanwhile");
      }
    }
    TRY(replace_object(db, garbage, object, *body, result));
    TRY(drop_parts(db, garbage, request.id));
    TRY(db.run("UPDATE uploads SET finished = ?, etag = ? WHERE bucket = ? AND key = ? AND id = ?",
               {to_epoch_milliseconds(clock_.now()), object.etag,
                TRY(bucket_id(db, request.bucket)), Blob{request.key}, request.id}));
    return {};
  }));
  body->adopted();
  return result;
}

}  // namespace atelier::objects::internal
