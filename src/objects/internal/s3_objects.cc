#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "objects/internal/s3_access.h"
#include "objects/internal/s3_call.h"

namespace atelier::objects::internal {
namespace {

constexpr std::uint64_t kMaxPutBytes = std::uint64_t{5} << 30;

// Parameters of a read that replace stored headers in the answer.
constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kOverrides = {{
    {"response-content-type", "content-type"},
    {"response-content-language", "content-language"},
    {"response-expires", "expires"},
    {"response-cache-control", "cache-control"},
    {"response-content-disposition", "content-disposition"},
    {"response-content-encoding", "content-encoding"},
}};

bool is_header_text(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte == '\t' || (byte >= 0x20 && byte != 0x7F);
  });
}

Result<void> add_stored(http::Headers& headers, const S3Request& request,
                        const ObjectRecord& object) {
  bool typed = false;
  for (const auto& [name, value] : object.headers) {
    if (name == "x-amz-server-side-encryption-context") continue;  // never given back
    headers.add(name, value);
    typed = typed || name == "content-type";
  }
  if (!typed) headers.add("content-type", "binary/octet-stream");
  for (const auto& [parameter, name] : kOverrides) {
    const auto value = request.parameter(parameter);
    if (!value) continue;
    if (!is_header_text(*value)) {
      return s3_error("InvalidArgument",
                      fmt::format("{} has characters that no header can hold", parameter));
    }
    headers.set(name, std::string{*value});
  }
  const auto tags = http::parse_query(object.tags);
  if (!object.tags.empty() && tags)
    headers.add("x-amz-tagging-count", std::to_string(tags->size()));
  return {};
}

// What partNumber names. An object that was not put in parts is its own part 1.
struct NamedPart {
  ByteRange range{};
  std::optional<Checksum> checksum{};
};

Result<std::optional<NamedPart>> find_part(const S3Request& request, const ObjectRecord& object) {
  const auto text = request.parameter("partNumber");
  if (!text) return std::optional<NamedPart>{};
  const std::uint64_t number = TRY(parse_number("partNumber", *text, 1, 10'000));
  if (request.header("range")) {
    return s3_error("InvalidRequest", "a request can have a Range or a partNumber, not both");
  }
  if (object.parts.empty() && number == 1) {
    return std::optional{NamedPart{{0, object.size}, object.checksum}};
  }
  NamedPart named;
  for (const ObjectPart& part : object.parts) {
    if (part.number == number) {
      named.range.length = part.size;
      if (object.checksum && !part.checksum.empty()) {
        named.checksum = Checksum{object.checksum->kind, object.checksum->composite, part.checksum};
      }
      return std::optional{std::move(named)};
    }
    named.range.first += part.size;
  }
  return s3_error("InvalidPartNumber",
                  fmt::format("part {} does not exist; the object has {}", number,
                              std::max<std::size_t>(object.parts.size(), 1)));
}

http::Response not_modified(const ObjectRecord& object) {
  http::Response response = empty_response(304);
  response.headers.add("ETag", quote_etag(object.etag));
  response.headers.add("Last-Modified", format_http_date(object.modified));
  return response;
}

void give_body(http::Response& response, Body body, const ByteRange& range) {
  if (body.file) {
    response.body = http::FileSlice{std::move(body.file), range.first, range.length};
  } else if (range.length == body.bytes.size()) {
    response.body = std::move(body.bytes);
  } else {
    response.body = body.bytes.substr(range.first, range.length);
  }
}

http::Response out_of_range(const Call& call, const Error& error, std::uint64_t size) {
  http::Response response = error_response(to_s3_error(error), call.request.head.method,
                                           call.request.head.path(), call.request.id);
  response.headers.add("Content-Range", fmt::format("bytes */{}", size));
  return response;
}

}  // namespace

CallResult get_object(Call& call) {
  const S3Request& request = call.request;
  TRY(refuse_version(request));
  const bool head = request.head.method == "HEAD";
  ObjectRecord object;
  Body body;
  if (head) {
    object = TRY(call.store.head(request.bucket, request.key));
  } else {
    std::tie(object, body) = TRY(call.store.get(request.bucket, request.key));
  }
  switch (check_read_conditions(request, "", object.etag, object.modified)) {
    case Condition::kFailed:
      return s3_error("PreconditionFailed", "at least one of the preconditions did not hold");
    case Condition::kNotModified:
      return not_modified(object);
    case Condition::kHolds:
      break;
  }
  const std::optional<NamedPart> part = TRY(find_part(request, object));
  std::optional<ByteRange> range;
  if (part) {
    range = part->range;
  } else {
    Result<std::optional<ByteRange>> asked = parse_range(request.header("range"), object.size);
    if (!asked) return out_of_range(call, asked.error(), object.size);
    range = *asked;
  }
  http::Response response;
  http::Headers& headers = response.headers;
  headers.add("ETag", quote_etag(object.etag));
  headers.add("Last-Modified", format_http_date(object.modified));
  headers.add("Accept-Ranges", "bytes");
  TRY(add_stored(headers, request, object));
  if (!object.parts.empty() && part) {
    headers.add("x-amz-mp-parts-count", std::to_string(object.parts.size()));
  }
  const bool whole = !range || range->length == object.size;
  if (http::equal_without_case(request.header("x-amz-checksum-mode").value_or(""), "enabled")) {
    if (part) {
      add_checksum(headers, part->checksum);
    } else if (whole) {
      add_checksum(headers, object.checksum);
    }
  }
  if (range) {
    response.status = 206;
    const std::uint64_t last = range->first + range->length - (range->length > 0 ? 1 : 0);
    headers.add("Content-Range", fmt::format("bytes {}-{}/{}", range->first, last, object.size));
  }
  const ByteRange given = range.value_or(ByteRange{0, object.size});
  if (head) {
    response.head_content_length = given.length;
  } else {
    give_body(response, std::move(body), given);
  }
  return response;
}

Result<std::uint64_t> announced_length(const S3Request& request) {
  const std::optional<std::uint64_t> length = http::decoded_length(request.head);
  if (!length) return s3_error("MissingContentLength", "the request needs a Content-Length");
  if (*length <= kMaxPutBytes) return *length;
  return s3_error("EntityTooLarge",
                  fmt::format("{} bytes; one request can carry {}", *length, kMaxPutBytes));
}

ChecksumKind checksum_kind_of(const Call& call) {
  return call.announced ? call.announced->kind : ChecksumKind::kCrc64Nvme;
}

Result<void> prepare_put(Call& call) {
  const S3Request& request = call.request;
  TRY(call.store.find_bucket(request.bucket));
  TRY(stored_headers(request));
  TRY(stored_tags(request));
  if (request.header("x-amz-copy-source")) return {};
  TRY(announced_length(request));
  call.incoming = std::make_unique<IncomingBody>(call.store.start_body(), checksum_kind_of(call));
  return {};
}

CallResult put_object(Call& call) {
  if (call.request.header("x-amz-copy-source")) return copy_object(call);
  NewObject object;
  object.bucket = call.request.bucket;
  object.key = call.request.key;
  object.etag = to_hex(call.md5);
  object.checksum = call.checksum;
  object.headers = TRY(stored_headers(call.request));
  object.tags = TRY(stored_tags(call.request));
  object.conditions = write_conditions(call.request);
  const ObjectRecord stored = TRY(call.store.put(object, call.incoming->take_body()));
  http::Response response = empty_response(200);
  response.headers.add("ETag", quote_etag(stored.etag));
  add_checksum(response.headers, stored.checksum);
  add_encryption(response.headers, stored.headers);
  return response;
}

CallResult delete_object(Call& call) {
  TRY(refuse_version(call.request));
  const std::string if_match = write_conditions(call.request).if_match;
  TRY(call.store.remove(call.request.bucket, call.request.key, if_match));
  return empty_response(204);
}

namespace {

void write_delete_error(XmlWriter& xml, std::string_view key, const Error& error) {
  const S3Error said = to_s3_error(error);
  xml.open("Error");
  xml.element("Key", key);
  xml.element("Code", said.code);
  xml.element("Message", said.message);
  xml.close("Error");
}

}  // namespace

CallResult delete_objects(Call& call) {
  const DeleteRequest request = TRY(parse_delete(call.document));
  // Each key is asked alone, and the answer names those that were refused.
  std::vector<Removal> allowed;
  XmlWriter xml;
  xml.open_root("DeleteResult");
  for (const Removal& removal : request.removals) {
    const Result<void> may = require_on_object(call, "s3:DeleteObject", removal.key);
    if (may) {
      allowed.push_back(removal);
    } else {
      write_delete_error(xml, removal.key, may.error());
    }
  }
  const std::vector<Result<void>> outcomes =
      TRY(call.store.remove_many(call.request.bucket, allowed));
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    const std::string& key = allowed[i].key;
    if (!outcomes[i]) {
      write_delete_error(xml, key, outcomes[i].error());
    } else if (!request.quiet) {
      xml.open("Deleted");
      xml.element("Key", key);
      xml.close("Deleted");
    }
  }
  xml.close("DeleteResult");
  return xml_response(std::move(xml));
}

// Says of each key whether the caller may read it, not whether it is there.
CallResult check_readable(Call& call) {
  const DeleteRequest request = TRY(parse_delete(call.document));
  std::string answer;
  for (const Removal& asked : request.removals) {
    answer += require_on_object(call, "s3:GetObject", asked.key) ? '1' : '0';
  }
  XmlWriter xml;
  xml.open_root("ReadableResult");
  xml.element("Readable", answer);
  xml.close("ReadableResult");
  return xml_response(std::move(xml));
}

CallResult get_object_tagging(Call& call) {
  TRY(refuse_version(call.request));
  const ObjectRecord object = TRY(call.store.head(call.request.bucket, call.request.key));
  return tagging_response(object.tags);
}

CallResult put_object_tagging(Call& call) {
  TRY(refuse_version(call.request));
  const std::string tags = TRY(parse_tagging(call.document, kMaxObjectTags));
  TRY(call.store.set_tags(call.request.bucket, call.request.key, tags));
  return empty_response(200);
}

CallResult delete_object_tagging(Call& call) {
  TRY(refuse_version(call.request));
  TRY(call.store.set_tags(call.request.bucket, call.request.key, ""));
  return empty_response(204);
}

namespace {

// A page of the parts, when they were kept with checksums; their number in any case.
Result<void> write_object_parts(XmlWriter& xml, const Call& call, const ObjectRecord& object) {
  const std::uint64_t limit = TRY(parse_number(
      "x-amz-max-parts", call.request.header("x-amz-max-parts").value_or("1000"), 1, 2147483647));
  const std::uint64_t marker =
      TRY(parse_number("x-amz-part-number-marker",
                       call.request.header("x-amz-part-number-marker").value_or("0"), 0, 10'000));
  std::vector<const ObjectPart*> page;
  bool truncated = false;
  for (const ObjectPart& part : object.parts) {
    if (part.number <= marker || part.checksum.empty()) continue;
    truncated = page.size() == std::min<std::uint64_t>(limit, 1000);
    if (truncated) break;
    page.push_back(&part);
  }
  xml.open("ObjectParts");
  xml.element("PartsCount", std::uint64_t{object.parts.size()});
  if (!page.empty()) {
    xml.element("PartNumberMarker", marker);
    xml.element("NextPartNumberMarker", std::uint64_t{page.back()->number});
    xml.element("MaxParts", std::min<std::uint64_t>(limit, 1000));
    xml.element("IsTruncated", truncated);
  }
  for (const ObjectPart* part : page) {
    xml.open("Part");
    xml.element("PartNumber", std::uint64_t{part->number});
    xml.element("Size", part->size);
    xml.element(fmt::format("Checksum{}", checksum_name(object.checksum->kind)), part->checksum);
    xml.close("Part");
  }
  xml.close("ObjectParts");
  return {};
}

}  // namespace

CallResult get_object_attributes(Call& call) {
  TRY(refuse_version(call.request));
  const ObjectRecord object = TRY(call.store.head(call.request.bucket, call.request.key));
  const std::string wanted{
      call.request.head.headers.joined("x-amz-object-attributes").value_or("")};
  if (wanted.empty()) {
    return s3_error("InvalidArgument", "the header x-amz-object-attributes names no attribute");
  }
  const auto wants = [&](std::string_view name) { return wanted.find(name) != std::string::npos; };
  XmlWriter xml;
  xml.open_root("GetObjectAttributesResponse");
  if (wants("ETag")) xml.element("ETag", object.etag);
  if (wants("Checksum") && object.checksum) {
    xml.open("Checksum");
    xml.element(fmt::format("Checksum{}", checksum_name(object.checksum->kind)),
                object.checksum->value);
    xml.element("ChecksumType", object.checksum->composite ? "COMPOSITE" : "FULL_OBJECT");
    xml.close("Checksum");
  }
  if (wants("ObjectParts") && !object.parts.empty()) TRY(write_object_parts(xml, call, object));
  if (wants("StorageClass")) xml.element("StorageClass", "STANDARD");
  if (wants("ObjectSize")) xml.element("ObjectSize", object.size);
  xml.close("GetObjectAttributesResponse");
  http::Response response = xml_response(std::move(xml));
  response.headers.add("Last-Modified", format_http_date(object.modified));
  return response;
}

}  // namespace atelier::objects::internal
