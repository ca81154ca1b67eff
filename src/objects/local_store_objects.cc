// Objects of the LocalStore: put, get, copy, remove, list.
#include <fmt/format.h>

#include "objects/internal/local_store_impl.h"

namespace atelier::objects::internal {
namespace {

Error precondition_failed(std::string_view what) {
  return Error{
      Code::kFailedPrecondition,
      fmt::format("PreconditionFailed: at least one of the preconditions did not hold: {}", what)};
}

Result<void> check_conditions(const Conditions& conditions, std::string_view key,
                              const std::optional<std::string>& present_etag) {
  if (conditions.if_none_match && present_etag) {
    return precondition_failed("If-None-Match: * while the object exists");
  }
  if (conditions.if_match.empty()) return {};
  if (!present_etag) return no_such_key(key);
  if (conditions.if_match != "*" && conditions.if_match != *present_etag) {
    return precondition_failed("If-Match");
  }
  return {};
}

}  // namespace

std::unique_ptr<PendingBody> StoreImpl::start_body() {
  return std::make_unique<StoreBody>(*files_);
}

Result<void> StoreImpl::replace_object(Database& db, Garbage& garbage, const NewObject& object,
                                       const StoreBody& body, ObjectRecord& stored) const {
  const std::int64_t bucket = TRY(bucket_id(db, object.bucket));
  BodyRef old;
  std::optional<std::string> old_etag;
  {
    Rows find = TRY(db.query("SELECT etag, body, file FROM objects WHERE bucket = ? AND key = ?",
                             {bucket, Blob{object.key}}));
    if (TRY(find.step())) {
      old_etag = find.text(0);
      old = {find.integer(1), find.text(2)};
    }
  }
  TRY(check_conditions(object.conditions, object.key, old_etag));

  TRY(drop_body(db, garbage, old));
  const BodyRef ref = TRY(body.insert(db));
  stored = {object.key,      body.size(),    clock_.now(), object.etag,
            object.checksum, object.headers, object.tags,  object.parts};
  const std::string headers = pack_headers(object.headers);
  const std::string checksum = pack_checksum(object.checksum);
  const std::string parts = pack_parts(object.parts);
  TRY(db.run(
      "INSERT OR REPLACE INTO objects(bucket, key, size, modified, etag, checksum, headers, tags, "
      "part_sizes, body, file) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
      {bucket, Blob{object.key}, static_cast<std::int64_t>(body.size()),
       to_epoch_milliseconds(stored.modified), object.etag, checksum, headers, object.tags, parts,
       ref.inline_id, ref.file_value()}));
  return {};
}

Result<ObjectRecord> StoreImpl::put(const NewObject& object, std::unique_ptr<PendingBody> body) {
  auto& pending = static_cast<StoreBody&>(*body);
  TRY(pending.seal());
  ObjectRecord stored;
  TRY(commit([&](Database& db, Garbage& garbage) {
    return replace_object(db, garbage, object, pending, stored);
  }));
  pending.adopted();
  return stored;
}

Result<StoreImpl::FoundObject> StoreImpl::find_object(const std::string& bucket,
                                                      const std::string& key, bool body) {
  const auto db = TRY(reader());
  constexpr const char* kHead =
      "SELECT o.size, o.modified, o.etag, o.checksum, o.headers, o.tags, o.part_sizes, o.body, "
      "o.file FROM buckets b JOIN objects o ON o.bucket = b.id WHERE b.name = ? AND o.key = ?";
  constexpr const char* kGet =
      "SELECT o.size, o.modified, o.etag, o.checksum, o.headers, o.tags, o.part_sizes, o.body, "
      "o.file, i.bytes FROM buckets b JOIN objects o ON o.bucket = b.id LEFT JOIN bodies i ON "
      "i.id = o.body WHERE b.name = ? AND o.key = ?";
  Rows row = TRY((**db).query(body ? kGet : kHead, {bucket, Blob{key}}));
  if (!TRY(row.step())) {
    TRY(bucket_id(**db, bucket));
    return no_such_key(key);
  }
  FoundObject found;
  found.record = {key,
                  static_cast<std::uint64_t>(row.integer(0)),
                  from_epoch_milliseconds(row.integer(1)),
                  row.text(2),
                  unpack_checksum(row.bytes(3)),
                  unpack_headers(row.bytes(4)),
                  row.text(5),
                  unpack_parts(row.bytes(6))};
  found.ref = {row.integer(7), row.text(8)};
  if (body && found.ref.inline_id != 0) found.bytes = row.bytes(9);
  return found;
}

Result<ObjectRecord> StoreImpl::head(const std::string& bucket, const std::string& key) {
  return TRY(find_object(bucket, key, false)).record;
}

Result<std::pair<ObjectRecord, Body>> StoreImpl::get(const std::string& bucket,
                                                     const std::string& key) {
  while (true) {
    FoundObject found = TRY(find_object(bucket, key, true));
    Body body{.bytes = std::move(found.bytes), .file = {}};
    if (found.ref.file.empty()) return std::pair{std::move(found.record), std::move(body)};
    Result<UniqueFd> file = files_->open_body(found.ref.file);
    if (file) {
      body.file = *std::move(file);
      return std::pair{std::move(found.record), std::move(body)};
    }
    if (file.error().code != Code::kNotFound) return file.error();
    // Replaced between the look-up and the open: the index has the new one. When it still names
    // the same file, that file was lost.
    if (TRY(find_object(bucket, key, false)).ref == found.ref) {
      return Error{Code::kDataLoss, fmt::format("the body of '{}/{}' is gone: {}", bucket, key,
                                                file.error().message)};
    }
  }
}

Result<ObjectRecord> StoreImpl::copy(const NewObject& object, const std::string& source_bucket,
                                     const std::string& source_key,
                                     const std::string& source_etag) {
  auto body = std::make_unique<StoreBody>(*files_);
  const FoundObject source = TRY(find_object(source_bucket, source_key, true));
  if (source.record.etag != source_etag) {
    return Error{Code::kAborted, "OperationAborted: the source changed while it was copied"};
  }
  if (source.ref.file.empty()) {
    TRY(body->append(std::as_bytes(std::span{source.bytes.data(), source.bytes.size()})));
  } else {
    Result<void> linked = body->link_file(source.ref.file, source.record.size);
    if (!linked && linked.error().code == Code::kNotFound) {
      return Error{Code::kAborted, "OperationAborted: the source was removed while it was copied"};
    }
    TRY(std::move(linked));
  }
  return put(object, std::move(body));
}

Result<void> StoreImpl::remove_row(Database& db, Garbage& garbage, std::int64_t bucket,
                                   const std::string& key, const std::string& if_match) const {
  BodyRef old;
  {
    Rows find = TRY(db.query("SELECT etag, body, file FROM objects WHERE bucket = ? AND key = ?",
                             {bucket, Blob{key}}));
    if (!TRY(find.step())) return {};
    TRY(check_conditions({.if_match = if_match}, key, find.text(0)));
    old = {find.integer(1), find.text(2)};
  }
  TRY(drop_body(db, garbage, old));
  TRY(db.run("DELETE FROM objects WHERE bucket = ? AND key = ?", {bucket, Blob{key}}));
  return {};
}

Result<void> StoreImpl::remove(const std::string& bucket, const std::string& key,
                               const std::string& if_match) {
  return commit_removal([&](Database& db, Garbage& garbage) -> Result<void> {
    return remove_row(db, garbage, TRY(bucket_id(db, bucket)), key, if_match);
  });
}

Result<std::vector<Result<void>>> StoreImpl::remove_many(const std::string& bucket,
                                                         const std::vector<Removal>& removals) {
  std::vector<Result<void>> outcomes;
  TRY(commit_removal([&](Database& db, Garbage& garbage) -> Result<void> {
    outcomes.clear();
    const std::int64_t id = TRY(bucket_id(db, bucket));
    for (const Removal& removal : removals) {
      Result<void> removed = remove_row(db, garbage, id, removal.key, removal.if_match);
      // A condition that does not hold concerns one object; all else concerns the store.
      if (!removed && removed.error().code != Code::kFailedPrecondition) return removed;
      outcomes.push_back(std::move(removed));
    }
    return {};
  }));
  return outcomes;
}

Result<void> StoreImpl::set_tags(const std::string& bucket, const std::string& key,
                                 const std::string& tags) {
  return commit([&](Database& db, Garbage&) -> Result<void> {
    const std::int64_t id = TRY(bucket_id(db, bucket));
    const std::int64_t changed = TRY(
        db.run("UPDATE objects SET tags = ? WHERE bucket = ? AND key = ?", {tags, id, Blob{key}}));
    if (changed == 0) return no_such_key(key);
    return {};
  });
}

namespace {

// The page of a listing as it fills.
class Page {
 public:
  Page(const ListQuery& query, ListResult& result) : query_(query), result_(result) {}

  [[nodiscard]] bool full() const {
    return result_.objects.size() + result_.common_prefixes.size() >= query_.limit;
  }
  // The common prefix that `key` falls under, if any.
  [[nodiscard]] std::optional<std::string_view> prefix_of(std::string_view key) const {
    if (query_.delimiter.empty()) return std::nullopt;
    const std::size_t at = key.find(query_.delimiter, query_.prefix.size());
    if (at == std::string_view::npos) return std::nullopt;
    return key.substr(0, at + query_.delimiter.size());
  }
  void add_object(const Rows& row) {
    ObjectRecord record;
    record.key = row.bytes(0);
    record.size = static_cast<std::uint64_t>(row.integer(1));
    record.modified = from_epoch_milliseconds(row.integer(2));
    record.etag = row.bytes(3);
    record.checksum = unpack_checksum(row.bytes(4));
    result_.last = record.key;
    result_.next_from = after_key(record.key);
    result_.objects.push_back(std::move(record));
  }
  // Where the listing goes on behind the prefix; nothing at the end of all keys.
  std::optional<std::string> add_prefix(std::string_view prefix) {
    result_.last = prefix;
    result_.common_prefixes.emplace_back(prefix);
    std::optional<std::string> next = after_prefix(prefix);
    result_.next_from = next.value_or(std::string{});
    return next;
  }

 private:
  const ListQuery& query_;
  ListResult& result_;
};

}  // namespace

Result<ListResult> StoreImpl::list(const ListQuery& query) {
  const auto db = TRY(reader());
  const std::int64_t bucket = TRY(bucket_id(**db, query.bucket));
  ListResult result;
  if (query.limit == 0) return result;
  Page page{query, result};
  std::optional<std::string> from = std::max(query.from, query.prefix);
  while (from) {
    const std::string start = *std::exchange(from, std::nullopt);
    Rows rows = TRY((**db).query(
        "SELECT key, size, modified, etag, checksum FROM objects WHERE bucket = ? AND key >= ? "
        "ORDER BY key",
        {bucket, Blob{start}}));
    while (TRY(rows.step())) {
      const std::string_view key = rows.bytes(0);
      if (!key.starts_with(query.prefix)) break;
      if (page.full()) {
        result.truncated = true;
        break;
      }
      if (const auto prefix = page.prefix_of(key)) {
        from = page.add_prefix(*prefix);  // skips what is under it with one seek
        break;
      }
      page.add_object(rows);
    }
  }
  return result;
}

}  // namespace atelier::objects::internal
