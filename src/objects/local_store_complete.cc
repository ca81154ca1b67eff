// How a multipart upload of the LocalStore becomes an object.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "objects/internal/file_ranges.h"
#include "objects/internal/local_store_impl.h"

namespace atelier::objects::internal {
namespace {

Error invalid_part(unsigned number, std::string_view why) {
  return Error{Code::kInvalidArgument, fmt::format("InvalidPart: part {} {}", number, why)};
}

}  // namespace

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
