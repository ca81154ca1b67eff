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

}  // namespace atelier::objects::internal
