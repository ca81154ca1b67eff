#include <fmt/format.h>

#include <algorithm>
#include <array>

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

// The bytes that partNumber names. An object that was not put in parts is its own part 1.
Result<std::optional<ByteRange>> part_range(const S3Request& request, const ObjectRecord& object) {
  const auto text = request.parameter("partNumber");
  if (!text) return std::optional<ByteRange>{};
  const std::uint64_t number = TRY(parse_number("partNumber", *text, 1, 10'000));
  if (request.header("range")) {
    return s3_error("InvalidRequest", "a request can have a Range or a partNumber, not both");
  }
  const std::size_t parts = std::max<std::size_t>(object.part_sizes.size(), 1);
  if (number > parts) {
    return s3_error("InvalidRange", fmt::format("part {} of {} does not exist", number, parts));
  }
  if (object.part_sizes.empty()) return std::optional{ByteRange{0, object.size}};
  ByteRange range;
  for (std::size_t i = 0; i + 1 < number; ++i) range.first += object.part_sizes[i];
  range.length = object.part_sizes[number - 1];
  return std::optional{range};
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
  std::optional<ByteRange> range = TRY(part_range(request, object));
  if (!range) {
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
  if (!object.part_sizes.empty() && request.parameter("partNumber")) {
    headers.add("x-amz-mp-parts-count", std::to_string(object.part_sizes.size()));
  }
  const bool whole = !range || range->length == object.size;
  if (whole &&
      http::equal_without_case(request.header("x-amz-checksum-mode").value_or(""), "enabled")) {
    add_checksum(headers, object.checksum);
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

Result<void> prepare_put(Call& call) {
  const S3Request& request = call.request;
  TRY(call.store.find_bucket(request.bucket));
  TRY(stored_headers(request));
  TRY(stored_tags(request));
  if (request.header("x-amz-copy-source")) return {};
  const std::optional<std::uint64_t> length = http::decoded_length(request.head);
  if (!length) return s3_error("MissingContentLength", "the request needs a Content-Length");
  if (*length > kMaxPutBytes) {
    return s3_error("EntityTooLarge",
                    fmt::format("{} bytes; one request can carry {}", *length, kMaxPutBytes));
  }
  const ChecksumKind kind = call.announced ? call.announced->kind : ChecksumKind::kCrc64Nvme;
  call.incoming = std::make_unique<IncomingBody>(call.store.start_body(), kind);
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

CallResult delete_objects(Call& call) {
  const DeleteRequest request = TRY(parse_delete(call.document));
  TRY(call.store.remove_many(call.request.bucket, request.keys));
  XmlWriter xml;
  xml.open_root("DeleteResult");
  for (const std::string& key : request.keys) {
    if (request.quiet) break;
    xml.open("Deleted");
    xml.element("Key", key);
    xml.close("Deleted");
  }
  xml.close("DeleteResult");
  return xml_response(std::move(xml));
}

CallResult get_object_tagging(Call& call) {
  TRY(refuse_version(call.request));
  const ObjectRecord object = TRY(call.store.head(call.request.bucket, call.request.key));
  XmlWriter xml;
  xml.open_root("Tagging");
  xml.open("TagSet");
  if (!object.tags.empty()) {
    for (const auto& [name, value] : TRY(http::parse_query(object.tags))) {
      xml.open("Tag");
      xml.element("Key", name);
      xml.element("Value", value);
      xml.close("Tag");
    }
  }
  xml.close("TagSet");
  xml.close("Tagging");
  return xml_response(std::move(xml));
}

CallResult put_object_tagging(Call& call) {
  TRY(refuse_version(call.request));
  const std::string tags = TRY(parse_tagging(call.document));
  TRY(call.store.set_tags(call.request.bucket, call.request.key, tags));
  return empty_response(200);
}

CallResult delete_object_tagging(Call& call) {
  TRY(refuse_version(call.request));
  TRY(call.store.set_tags(call.request.bucket, call.request.key, ""));
  return empty_response(204);
}

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
  if (wants("ObjectParts") && !object.part_sizes.empty()) {
    xml.open("ObjectParts");
    xml.element("PartsCount", std::uint64_t{object.part_sizes.size()});
    xml.close("ObjectParts");
  }
  if (wants("StorageClass")) xml.element("StorageClass", "STANDARD");
  if (wants("ObjectSize")) xml.element("ObjectSize", object.size);
  xml.close("GetObjectAttributesResponse");
  http::Response response = xml_response(std::move(xml));
  response.headers.add("Last-Modified", format_http_date(object.modified));
  return response;
}

}  // namespace atelier::objects::internal
