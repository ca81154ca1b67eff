#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "objects/internal/s3_access.h"
#include "objects/internal/s3_call.h"

namespace atelier::objects::internal {
namespace {

constexpr std::uint64_t kMaxCopyBytes = std::uint64_t{5} << 30;

struct Source {
  ObjectRecord object{};
  Body body{};
};

Result<Source> open_source(Call& call) {
  const auto [bucket, key] = TRY(parse_copy_source(*call.request.header("x-amz-copy-source")));
  const auto owner = call.request.header("x-amz-source-expected-bucket-owner");
  if (owner && *owner != call.caller.principal.account) {
    return s3_error("AccessDenied", fmt::format("the source's bucket belongs to {}, not to {}",
                                                call.caller.principal.account, *owner));
  }
  Source source;
  std::tie(source.object, source.body) = TRY(call.store.get(bucket, key));
  if (check_read_conditions(call.request, "x-amz-copy-source-", source.object.etag,
                            source.object.modified) != Condition::kHolds) {
    return s3_error("PreconditionFailed",
                    "at least one of the conditions on the source did not hold");
  }
  return source;
}

// Reads `range` of the source into `incoming`.
Result<void> read_source(const Source& source, const ByteRange& range, IncomingBody& incoming) {
  if (!source.body.file) {
    const std::string_view bytes =
        std::string_view{source.body.bytes}.substr(range.first, range.length);
    return incoming.append(std::as_bytes(std::span{bytes.data(), bytes.size()}));
  }
  std::vector<std::byte> piece(std::size_t{1} << 20);
  for (std::uint64_t done = 0; done < range.length;) {
    const std::size_t want = std::min<std::uint64_t>(piece.size(), range.length - done);
    const ssize_t got =
        pread(source.body.file.get(), piece.data(), want, static_cast<off_t>(range.first + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return error_from_errno("read a stored body", errno);
    if (got == 0) return Error{Code::kDataLoss, "a stored body is shorter than its row says"};
    TRY(incoming.append(std::span{piece}.first(static_cast<std::size_t>(got))));
    done += static_cast<std::uint64_t>(got);
  }
  return {};
}

Result<bool> replaces(const S3Request& request, std::string_view header) {
  const std::string_view directive = request.header(header).value_or("COPY");
  if (directive == "REPLACE") return true;
  if (directive == "COPY") return false;
  return s3_error("InvalidArgument",
                  fmt::format("{} is '{}'; it must be COPY or REPLACE", header, directive));
}

CallResult copy_answer(std::string_view root, std::string_view etag, Time modified,
                       const std::optional<Checksum>& checksum) {
  XmlWriter xml;
  xml.open_root(root);
  xml.element("LastModified", format_iso8601(modified, true));
  xml.element("ETag", quote_etag(etag));
  if (checksum) {
    xml.element(fmt::format("Checksum{}", checksum_name(checksum->kind)), checksum->value);
    if (root == "CopyObjectResult") {
      xml.element("ChecksumType", checksum->composite ? "COMPOSITE" : "FULL_OBJECT");
    }
  }
  xml.close(root);
  return xml_response(std::move(xml));
}

// What the new object says about itself: the source's words or the request's.
Result<void> choose_headers(const S3Request& request, const ObjectRecord& source,
                            NewObject& object) {
  const StoredHeaders given = TRY(stored_headers(request));
  if (TRY(replaces(request, "x-amz-metadata-directive"))) {
    object.headers = given;
  } else {
    object.headers = source.headers;
    // Encryption is asked for anew with every copy.
    std::erase_if(object.headers,
                  [](const auto& pair) { return pair.first.starts_with("x-amz-server-side"); });
    for (const auto& pair : given) {
      if (pair.first.starts_with("x-amz-server-side")) object.headers.push_back(pair);
    }
  }
  object.tags =
      TRY(replaces(request, "x-amz-tagging-directive")) ? TRY(stored_tags(request)) : source.tags;
  return {};
}

}  // namespace

CallResult copy_object(Call& call) {
  const S3Request& request = call.request;
  const auto [source_bucket, source_key] =
      TRY(parse_copy_source(*request.header("x-amz-copy-source")));
  const Source source = TRY(open_source(call));
  NewObject object;
  object.bucket = request.bucket;
  object.key = request.key;
  object.conditions = write_conditions(request);
  TRY(choose_headers(request, source.object, object));
  if (!source.object.tags.empty() && !TRY(replaces(request, "x-amz-tagging-directive"))) {
    TRY(require_copy_of_tags(call, source_bucket, source_key));
  }
  if (source_bucket == object.bucket && source_key == object.key &&
      !TRY(replaces(request, "x-amz-metadata-directive")) &&
      !request.header("x-amz-server-side-encryption") &&
      !request.header("x-amz-checksum-algorithm")) {
    return s3_error(
        "InvalidRequest",
        "a copy of an object onto itself must change its metadata, encryption or checksum");
  }
  if (source.object.size > kMaxCopyBytes) {
    return s3_error(
        "InvalidRequest",
        fmt::format("the source has {} bytes; one request can copy {}: copy it in parts",
                    source.object.size, kMaxCopyBytes));
  }
  const bool from_parts = source.object.etag.find('-') != std::string::npos;
  const bool other_checksum =
      call.announced &&
      (!source.object.checksum || call.announced->kind != source.object.checksum->kind);
  ObjectRecord stored;
  if (from_parts || other_checksum) {
    // The copy is one piece: its ETag and checksum are of its bytes, which have to be read for it.
    const ChecksumKind kind = call.announced           ? call.announced->kind
                              : source.object.checksum ? source.object.checksum->kind
                                                       : ChecksumKind::kCrc64Nvme;
    IncomingBody incoming{call.store.start_body(), kind};
    TRY(read_source(source, {0, source.object.size}, incoming));
    object.etag = to_hex(incoming.take_md5());
    object.checksum = incoming.take_checksum();
    stored = TRY(call.store.put(object, incoming.take_body()));
  } else {
    object.etag = source.object.etag;
    object.checksum = source.object.checksum;
    stored = TRY(call.store.copy(object, source_bucket, source_key, source.object.etag));
  }
  CallResult response =
      copy_answer("CopyObjectResult", stored.etag, stored.modified, stored.checksum);
  if (response) add_encryption(response->headers, stored.headers);
  return response;
}

CallResult upload_part_copy(Call& call) {
  const Source source = TRY(open_source(call));
  ByteRange range{0, source.object.size};
  if (const auto text = call.request.header("x-amz-copy-source-range")) {
    const std::optional<ByteRange> asked = TRY(parse_range(text, source.object.size));
    if (!asked) {
      return s3_error(
          "InvalidArgument",
          fmt::format("x-amz-copy-source-range is '{}'; it must be bytes=first-last", *text));
    }
    range = *asked;
    if (fmt::format("bytes={}-{}", range.first, range.first + range.length - 1) != *text) {
      return s3_error("InvalidArgument",
                      fmt::format("x-amz-copy-source-range is '{}'; it must be bytes=first-last "
                                  "within the {} bytes of the source",
                                  *text, source.object.size));
    }
  }
  if (range.length > kMaxCopyBytes) {
    return s3_error("InvalidRequest",
                    fmt::format("{} bytes; one request can copy {}", range.length, kMaxCopyBytes));
  }
  IncomingBody incoming{TRY(call.store.start_part(*call.upload, call.part_number, range.length)),
                        call.upload->checksum_kind.value_or(ChecksumKind::kCrc64Nvme)};
  TRY(read_source(source, range, incoming));
  PartRecord part;
  part.number = call.part_number;
  part.etag = to_hex(incoming.take_md5());
  part.checksum = incoming.take_checksum();
  const PartRecord stored = TRY(call.store.put_part(*call.upload, part, incoming.take_body()));
  return copy_answer("CopyPartResult", stored.etag, stored.modified, stored.checksum);
}

}  // namespace atelier::objects::internal
