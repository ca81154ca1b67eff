#include <fmt/format.h>

#include "objects/internal/s3_call.h"

namespace atelier::objects::internal {
namespace {

// How a listing writes keys: as they are, or percent-encoded when the client asked for it.
class KeyText {
 public:
  static Result<KeyText> of(const S3Request& request) {
    const auto encoding = request.parameter("encoding-type");
    if (encoding && *encoding != "url") {
      return s3_error("InvalidArgument",
                      fmt::format("encoding-type is '{}'; 'url' is the only one", *encoding));
    }
    return KeyText{encoding.has_value()};
  }
  [[nodiscard]] bool encodes() const { return url_; }
  [[nodiscard]] std::string operator()(std::string_view key) const {
    return url_ ? http::percent_encode(key, true) : std::string{key};
  }

 private:
  explicit KeyText(bool url) : url_(url) {}
  bool url_;
};

Result<std::size_t> parse_limit(const S3Request& request, std::string_view name) {
  const auto text = request.parameter(name);
  if (!text || text->empty()) return std::size_t{1000};
  const std::uint64_t asked = TRY(parse_number(name, *text, 0, 2147483647));
  return static_cast<std::size_t>(std::min<std::uint64_t>(asked, 1000));
}

std::string parameter_or_empty(const S3Request& request, std::string_view name) {
  return std::string{request.parameter(name).value_or("")};
}

// What an object's element has in every listing.
void write_entry(XmlWriter& xml, const ObjectRecord& object, const KeyText& text) {
  xml.element("Key", text(object.key));
  xml.element("LastModified", format_iso8601(object.modified, true));
  xml.element("ETag", quote_etag(object.etag));
  if (object.checksum) {
    xml.element("ChecksumAlgorithm", checksum_name(object.checksum->kind));
    xml.element("ChecksumType", object.checksum->composite ? "COMPOSITE" : "FULL_OBJECT");
  }
  xml.element("Size", object.size);
  xml.element("StorageClass", "STANDARD");
}

void write_prefixes(XmlWriter& xml, const std::vector<std::string>& prefixes, const KeyText& text) {
  for (const std::string& prefix : prefixes) {
    xml.open("CommonPrefixes");
    xml.element("Prefix", text(prefix));
    xml.close("CommonPrefixes");
  }
}

enum class Owners { kNo, kYes };

void write_objects(XmlWriter& xml, const Call& call, const ListResult& page, const KeyText& text,
                   Owners owners) {
  for (const ObjectRecord& object : page.objects) {
    xml.open("Contents");
    write_entry(xml, object, text);
    if (owners == Owners::kYes) write_owner(xml, call, "Owner");
    xml.close("Contents");
  }
  write_prefixes(xml, page.common_prefixes, text);
}

// The fields that both versions have in front.
void write_query(XmlWriter& xml, const ListQuery& query, const KeyText& text) {
  xml.element("Name", query.bucket);
  xml.element("Prefix", text(query.prefix));
  xml.element("MaxKeys", std::uint64_t{query.limit});
  if (!query.delimiter.empty()) xml.element("Delimiter", text(query.delimiter));
  if (text.encodes()) xml.element("EncodingType", "url");
}

Result<ListQuery> parse_query_of(const S3Request& request) {
  ListQuery query;
  query.bucket = request.bucket;
  query.prefix = parameter_or_empty(request, "prefix");
  query.delimiter = parameter_or_empty(request, "delimiter");
  query.limit = TRY(parse_limit(request, "max-keys"));
  return query;
}

}  // namespace

namespace {

// Where a page starts behind a marker.
void start_behind(ListQuery& query, const std::string& marker) {
  if (marker.empty()) return;
  query.from = after_key(marker);
  // The marker after a page that ended in a common prefix: all under it has been listed.
  if (!query.delimiter.empty() && marker.ends_with(query.delimiter)) {
    query.from = after_prefix(marker).value_or(query.from);
  }
}

}  // namespace

CallResult list_objects_v1(Call& call) {
  const KeyText text = TRY(KeyText::of(call.request));
  ListQuery query = TRY(parse_query_of(call.request));
  const std::string marker = parameter_or_empty(call.request, "marker");
  start_behind(query, marker);
  const ListResult page = TRY(call.store.list(query));
  XmlWriter xml;
  xml.open_root("ListBucketResult");
  write_query(xml, query, text);
  xml.element("Marker", text(marker));
  xml.element("IsTruncated", page.truncated);
  if (page.truncated && !query.delimiter.empty()) xml.element("NextMarker", text(page.last));
  write_objects(xml, call, page, text, Owners::kYes);
  xml.close("ListBucketResult");
  return xml_response(std::move(xml));
}

// Every object is its own only version, "null".
CallResult list_object_versions(Call& call) {
  const KeyText text = TRY(KeyText::of(call.request));
  ListQuery query = TRY(parse_query_of(call.request));
  const std::string marker = parameter_or_empty(call.request, "key-marker");
  start_behind(query, marker);
  const ListResult page = TRY(call.store.list(query));
  XmlWriter xml;
  xml.open_root("ListVersionsResult");
  write_query(xml, query, text);
  xml.element("KeyMarker", text(marker));
  xml.element("VersionIdMarker", parameter_or_empty(call.request, "version-id-marker"));
  xml.element("IsTruncated", page.truncated);
  if (page.truncated) {
    xml.element("NextKeyMarker", text(page.last));
    xml.element("NextVersionIdMarker", "null");
  }
  for (const ObjectRecord& object : page.objects) {
    xml.open("Version");
    write_entry(xml, object, text);
    xml.element("VersionId", "null");
    xml.element("IsLatest", true);
    write_owner(xml, call, "Owner");
    xml.close("Version");
  }
  write_prefixes(xml, page.common_prefixes, text);
  xml.close("ListVersionsResult");
  return xml_response(std::move(xml));
}

CallResult list_objects_v2(Call& call) {
  if (call.request.parameter("list-type") != "2") {
    return s3_error("InvalidArgument", "list-type must be 2");
  }
  const KeyText text = TRY(KeyText::of(call.request));
  ListQuery query = TRY(parse_query_of(call.request));
  const std::string start_after = parameter_or_empty(call.request, "start-after");
  const auto token = call.request.parameter("continuation-token");
  if (token) {
    const Result<std::string> from = from_base64(*token);
    if (!from || from->empty()) {
      return s3_error("InvalidArgument", "the continuation token is not one of this server's");
    }
    query.from = *from;
  } else if (!start_after.empty()) {
    query.from = after_key(start_after);
  }
  const ListResult page = TRY(call.store.list(query));
  XmlWriter xml;
  xml.open_root("ListBucketResult");
  write_query(xml, query, text);
  if (!start_after.empty()) xml.element("StartAfter", text(start_after));
  xml.element("KeyCount", std::uint64_t{page.objects.size() + page.common_prefixes.size()});
  xml.element("IsTruncated", page.truncated);
  if (token) xml.element("ContinuationToken", *token);
  if (page.truncated) xml.element("NextContinuationToken", to_base64(page.next_from));
  const bool owners = call.request.parameter("fetch-owner") == "true";
  write_objects(xml, call, page, text, owners ? Owners::kYes : Owners::kNo);
  xml.close("ListBucketResult");
  return xml_response(std::move(xml));
}

CallResult list_multipart_uploads(Call& call) {
  const KeyText text = TRY(KeyText::of(call.request));
  UploadQuery query;
  query.bucket = call.request.bucket;
  query.prefix = parameter_or_empty(call.request, "prefix");
  query.delimiter = parameter_or_empty(call.request, "delimiter");
  query.after_key = parameter_or_empty(call.request, "key-marker");
  query.after_id = parameter_or_empty(call.request, "upload-id-marker");
  query.limit = TRY(parse_limit(call.request, "max-uploads"));
  const UploadPage page = TRY(call.store.list_uploads(query));
  XmlWriter xml;
  xml.open_root("ListMultipartUploadsResult");
  xml.element("Bucket", query.bucket);
  xml.element("KeyMarker", text(query.after_key));
  xml.element("UploadIdMarker", query.after_id);
  xml.element("Prefix", text(query.prefix));
  xml.element("MaxUploads", std::uint64_t{query.limit});
  if (!query.delimiter.empty()) xml.element("Delimiter", text(query.delimiter));
  xml.element("IsTruncated", page.truncated);
  if (text.encodes()) xml.element("EncodingType", "url");
  if (page.truncated) {
    xml.element("NextKeyMarker", text(page.last_key));
    xml.element("NextUploadIdMarker", page.last_id);
  }
  for (const UploadRecord& upload : page.uploads) {
    xml.open("Upload");
    xml.element("Key", text(upload.key));
    xml.element("UploadId", upload.id);
    write_owner(xml, call, "Initiator");
    write_owner(xml, call, "Owner");
    xml.element("StorageClass", "STANDARD");
    xml.element("Initiated", format_iso8601(upload.created, true));
    if (upload.checksum_kind) {
      xml.element("ChecksumAlgorithm", checksum_name(*upload.checksum_kind));
      xml.element("ChecksumType", upload.composite ? "COMPOSITE" : "FULL_OBJECT");
    }
    xml.close("Upload");
  }
  write_prefixes(xml, page.common_prefixes, text);
  xml.close("ListMultipartUploadsResult");
  return xml_response(std::move(xml));
}

CallResult list_parts(Call& call) {
  const KeyText text = TRY(KeyText::of(call.request));
  const std::string id = parameter_or_empty(call.request, "uploadId");
  const UploadRecord upload =
      TRY(call.store.find_upload(call.request.bucket, call.request.key, id));
  const std::size_t limit = TRY(parse_limit(call.request, "max-parts"));
  const std::string marker_text = parameter_or_empty(call.request, "part-number-marker");
  const std::uint64_t marker =
      marker_text.empty() ? 0 : TRY(parse_number("part-number-marker", marker_text, 0, 10'000));
  // One more than the page tells whether there is another.
  std::vector<PartRecord> parts =
      TRY(call.store.list_parts(id, static_cast<unsigned>(marker), limit + 1));
  const bool truncated = parts.size() > limit;
  if (truncated) parts.resize(limit);
  XmlWriter xml;
  xml.open_root("ListPartsResult");
  xml.element("Bucket", upload.bucket);
  xml.element("Key", text(upload.key));
  xml.element("UploadId", id);
  write_owner(xml, call, "Initiator");
  write_owner(xml, call, "Owner");
  xml.element("StorageClass", "STANDARD");
  xml.element("PartNumberMarker", marker);
  if (!parts.empty()) xml.element("NextPartNumberMarker", std::uint64_t{parts.back().number});
  xml.element("MaxParts", std::uint64_t{limit});
  xml.element("IsTruncated", truncated);
  if (upload.checksum_kind) {
    xml.element("ChecksumAlgorithm", checksum_name(*upload.checksum_kind));
    xml.element("ChecksumType", upload.composite ? "COMPOSITE" : "FULL_OBJECT");
  }
  for (const PartRecord& part : parts) {
    xml.open("Part");
    xml.element("PartNumber", std::uint64_t{part.number});
    xml.element("LastModified", format_iso8601(part.modified, true));
    xml.element("ETag", quote_etag(part.etag));
    xml.element("Size", part.size);
    if (part.checksum) {
      xml.element(fmt::format("Checksum{}", checksum_name(part.checksum->kind)),
                  part.checksum->value);
    }
    xml.close("Part");
  }
  xml.close("ListPartsResult");
  return xml_response(std::move(xml));
}

}  // namespace atelier::objects::internal
