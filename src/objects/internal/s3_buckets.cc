#include "objects/internal/s3_call.h"

namespace atelier::objects::internal {

CallResult list_buckets(Call& call) {
  const std::vector<BucketRecord> buckets = TRY(call.store.list_buckets());
  const std::string_view prefix = call.request.parameter("prefix").value_or("");
  const std::uint64_t most = TRY(parse_number(
      "max-buckets", call.request.parameter("max-buckets").value_or("10000"), 1, 10'000));
  std::string after;  // the token names the last bucket of the page before
  if (const auto token = call.request.parameter("continuation-token")) {
    Result<std::string> name = from_base64(*token);
    if (!name) {
      return s3_error("InvalidArgument", "the continuation token is not one of this server's");
    }
    after = *std::move(name);
  }
  XmlWriter xml;
  xml.open_root("ListAllMyBucketsResult");
  write_owner(xml, call, "Owner");
  xml.open("Buckets");
  std::uint64_t written = 0;
  std::string last;
  bool truncated = false;
  for (const BucketRecord& bucket : buckets) {
    if (!bucket.name.starts_with(prefix) || bucket.name <= after) continue;
    truncated = written == most;
    if (truncated) break;
    xml.open("Bucket");
    xml.element("Name", bucket.name);
    xml.element("CreationDate", format_iso8601(bucket.created, true));
    xml.close("Bucket");
    last = bucket.name;
    ++written;
  }
  xml.close("Buckets");
  if (truncated) xml.element("ContinuationToken", to_base64(last));
  if (!prefix.empty()) xml.element("Prefix", prefix);
  xml.close("ListAllMyBucketsResult");
  return xml_response(std::move(xml));
}

CallResult create_bucket(Call& call) {
  if (call.request.header("x-amz-bucket-object-lock-enabled").value_or("false") == "true") {
    return s3_error("NotImplemented", "CreateBucket with object lock is not supported");
  }
  TRY(stored_headers(call.request));  // refuses the ACLs that are not there
  const std::string location = TRY(parse_create_bucket(call.document));
  // One's own bucket again is fine, as in us-east-1 and Ceph.
  TRY(call.store.create_bucket(call.request.bucket, location));
  http::Response response = empty_response(200);
  response.headers.add("Location", "/" + call.request.bucket);
  return response;
}

CallResult head_bucket(Call& call) {
  const BucketRecord bucket = TRY(call.store.find_bucket(call.request.bucket));
  http::Response response = empty_response(200);
  response.headers.add("x-amz-bucket-region", bucket.region.empty() ? call.region : bucket.region);
  response.head_content_length = 0;
  return response;
}

CallResult delete_bucket(Call& call) {
  TRY(call.store.delete_bucket(call.request.bucket));
  return empty_response(204);
}

CallResult get_bucket_location(Call& call) {
  const BucketRecord bucket = TRY(call.store.find_bucket(call.request.bucket));
  XmlWriter xml;
  xml.open_root("LocationConstraint");
  const std::string& region = bucket.region.empty() ? call.region : bucket.region;
  // The API's oldest region has no name here.
  std::string text;
  append_xml_escaped(text, region == "us-east-1" ? "" : region);
  xml.raw(text);
  xml.close("LocationConstraint");
  return xml_response(std::move(xml));
}

}  // namespace atelier::objects::internal
