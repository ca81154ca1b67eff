#include <fmt/format.h>

#include "objects/internal/s3_call.h"

namespace atelier::objects::internal {
namespace {

std::string upload_id(const Call& call) {
  return std::string{call.request.parameter("uploadId").value_or("")};
}

// Composite or of the full object, as asked for or as is usual for the kind.
Result<bool> is_composite(const S3Request& request, ChecksumKind kind) {
  const auto type = request.header("x-amz-checksum-type");
  if (!type) return kind != ChecksumKind::kCrc64Nvme;
  const bool full = *type == "FULL_OBJECT";
  if (!full && *type != "COMPOSITE") {
    return s3_error("InvalidRequest", fmt::format("the checksum type '{}' is not known", *type));
  }
  if ((full && !is_crc(kind)) || (!full && kind == ChecksumKind::kCrc64Nvme)) {
    return s3_error("InvalidRequest", fmt::format("the checksum type {} cannot be used with {}",
                                                  *type, checksum_name(kind)));
  }
  return !full;
}

}  // namespace

CallResult create_multipart_upload(Call& call) {
  UploadRecord upload;
  upload.bucket = call.request.bucket;
  upload.key = call.request.key;
  upload.headers = TRY(stored_headers(call.request));
  upload.tags = TRY(stored_tags(call.request));
  if (call.announced) {
    upload.checksum_kind = call.announced->kind;
    upload.composite = TRY(is_composite(call.request, call.announced->kind));
  }
  const std::string id = TRY(call.store.create_upload(upload));
  XmlWriter xml;
  xml.open_root("InitiateMultipartUploadResult");
  xml.element("Bucket", upload.bucket);
  xml.element("Key", upload.key);
  xml.element("UploadId", id);
  xml.close("InitiateMultipartUploadResult");
  http::Response response = xml_response(std::move(xml));
  if (upload.checksum_kind) {
    response.headers.add("x-amz-checksum-algorithm",
                         std::string{checksum_name(*upload.checksum_kind)});
    response.headers.add("x-amz-checksum-type", upload.composite ? "COMPOSITE" : "FULL_OBJECT");
  }
  add_encryption(response.headers, upload.headers);
  return response;
}

Result<void> prepare_part(Call& call) {
  call.part_number = static_cast<unsigned>(TRY(
      parse_number("partNumber", call.request.parameter("partNumber").value_or(""), 1, 10'000)));
  call.upload = TRY(call.store.find_upload(call.request.bucket, call.request.key, upload_id(call)));
  // A part without a checksum of its own gets the upload's.
  if (!call.announced && call.upload->checksum_kind) {
    call.announced = AnnouncedChecksum{*call.upload->checksum_kind, std::nullopt, false};
  }
  if (call.announced && call.upload->checksum_kind &&
      call.announced->kind != *call.upload->checksum_kind) {
    return s3_error("InvalidRequest",
                    fmt::format("the part comes with {}; the upload was created for {}",
                                checksum_name(call.announced->kind),
                                checksum_name(*call.upload->checksum_kind)));
  }
  if (call.request.header("x-amz-copy-source")) return {};
  const std::uint64_t length = TRY(announced_length(call.request));
  call.incoming = std::make_unique<IncomingBody>(
      TRY(call.store.start_part(*call.upload, call.part_number, length)), checksum_kind_of(call));
  return {};
}

CallResult upload_part(Call& call) {
  if (call.request.header("x-amz-copy-source")) return upload_part_copy(call);
  PartRecord part;
  part.number = call.part_number;
  part.etag = to_hex(call.md5);
  part.checksum = call.checksum;
  const PartRecord stored =
      TRY(call.store.put_part(*call.upload, part, call.incoming->take_body()));
  http::Response response = empty_response(200);
  response.headers.add("ETag", quote_etag(stored.etag));
  if (stored.checksum) {
    response.headers.add(checksum_header(stored.checksum->kind), stored.checksum->value);
  }
  add_encryption(response.headers, call.upload->headers);
  return response;
}

CallResult complete_multipart_upload(Call& call) {
  CompleteUpload request;
  request.bucket = call.request.bucket;
  request.key = call.request.key;
  request.id = upload_id(call);
  request.parts = TRY(parse_complete(call.document));
  request.conditions = write_conditions(call.request);
  if (const auto size = call.request.header("x-amz-mp-object-size")) {
    request.size = TRY(parse_number("x-amz-mp-object-size", *size, 0, std::uint64_t{1} << 50));
  }
  for (const ChecksumKind kind : kChecksumKinds) {
    if (const auto value = call.request.header(checksum_header(kind))) {
      request.checksum = Checksum{kind, false, std::string{*value}};
    }
  }
  if (const auto type = call.request.header("x-amz-checksum-type")) {
    request.composite = *type == "COMPOSITE";
  }
  const ObjectRecord object = TRY(call.store.complete_upload(request));
  XmlWriter xml;
  xml.open_root("CompleteMultipartUploadResult");
  xml.element("Location", "/" + object_path(call.request));
  xml.element("Bucket", request.bucket);
  xml.element("Key", request.key);
  xml.element("ETag", quote_etag(object.etag));
  if (object.checksum) {
    xml.element(fmt::format("Checksum{}", checksum_name(object.checksum->kind)),
                object.checksum->value);
    xml.element("ChecksumType", object.checksum->composite ? "COMPOSITE" : "FULL_OBJECT");
  }
  xml.close("CompleteMultipartUploadResult");
  http::Response response = xml_response(std::move(xml));
  add_encryption(response.headers, object.headers);
  return response;
}

CallResult abort_multipart_upload(Call& call) {
  TRY(call.store.abort_upload(call.request.bucket, call.request.key, upload_id(call)));
  return empty_response(204);
}

}  // namespace atelier::objects::internal
