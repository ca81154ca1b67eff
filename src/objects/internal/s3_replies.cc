#include "objects/internal/s3_replies.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <pugixml.hpp>

namespace atelier::objects::internal {
namespace {

constexpr std::size_t kMaxReply = std::size_t{64} << 20;

Result<pugi::xml_node> load(pugi::xml_document& document, std::string_view xml) {
  if (xml.size() > kMaxReply) {
    return Error{
        Code::kResourceExhausted,
        fmt::format("the answer has {} bytes of XML; {} is the most", xml.size(), kMaxReply)};
  }
  const pugi::xml_parse_result result = document.load_buffer(
      xml.data(), xml.size(), pugi::parse_default | pugi::parse_ws_pcdata, pugi::encoding_utf8);
  if (!result) {
    return Error{
        Code::kDataLoss,
        fmt::format("the answer is broken XML: {} at byte {}", result.description(), result.offset),
        Retry::kYes};
  }
  return document.document_element();
}

Result<pugi::xml_node> load_root(pugi::xml_document& document, std::string_view xml,
                                 std::string_view root) {
  const pugi::xml_node node = TRY(load(document, xml));
  if (node.name() == root) return node;
  if (std::string_view{node.name()} == "Error") {
    return Error{Code::kUnavailable,
                 fmt::format("{}: {}", node.child_value("Code"), node.child_value("Message")),
                 Retry::kYes};
  }
  return Error{Code::kDataLoss, fmt::format("the answer is a {}, not a {}", node.name(), root)};
}

// Keys of a listing with encoding-type=url. S3 writes a blank as '+', Ceph as "%20".
Result<std::string> decode_key(std::string_view text, bool encoded) {
  std::string key{text};
  if (!encoded) return key;
  std::replace(key.begin(), key.end(), '+', ' ');
  return http::percent_decode(key);
}

template <typename Number>
Result<Number> parse_decimal(std::string_view name, std::string_view text) {
  Number value{};
  const auto [at, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure == std::errc{} && at == text.data() + text.size() && !text.empty()) return value;
  return Error{Code::kDataLoss,
               fmt::format("the answer has {} '{}', which is no number", name, text)};
}

struct Mapping {
  std::string_view s3;
  Code code;
};
constexpr Mapping kMappings[] = {
    {"BucketNotEmpty", Code::kFailedPrecondition},
    {"BucketAlreadyExists", Code::kAlreadyExists},
    {"BadDigest", Code::kDataLoss},
    {"XAmzContentSHA256Mismatch", Code::kDataLoss},
    {"InvalidAccessKeyId", Code::kUnauthenticated},
    {"SignatureDoesNotMatch", Code::kUnauthenticated},
    {"ExpiredToken", Code::kUnauthenticated},
    {"InvalidToken", Code::kUnauthenticated},
    {"RequestTimeTooSkewed", Code::kUnauthenticated},
    {"RequestTimeout", Code::kUnavailable},
    {"IncompleteBody", Code::kUnavailable},
    {"SlowDown", Code::kUnavailable},
};

Code code_of_status(int status) {
  switch (status) {
    case 401:
      return Code::kUnauthenticated;
    case 403:
      return Code::kPermissionDenied;
    case 404:
      return Code::kNotFound;
    case 408:
    case 429:
      return Code::kUnavailable;
    case 409:
      return Code::kAborted;
    case 304:
    case 412:
      return Code::kFailedPrecondition;
    case 416:
      return Code::kOutOfRange;
    case 501:
      return Code::kUnimplemented;
    case 507:
      return Code::kResourceExhausted;
    default:
      return status >= 500 ? Code::kUnavailable : Code::kInvalidArgument;
  }
}

}  // namespace

std::string reply_code(std::string_view body) {
  pugi::xml_document document;
  const Result<pugi::xml_node> root = load(document, body);
  return root && std::string_view{root->name()} == "Error" ? root->child_value("Code") : "";
}

Error reply_error(const http::ClientResponse& reply, std::string_view what) {
  std::string s3_code;
  std::string words;
  pugi::xml_document document;
  if (const Result<pugi::xml_node> root = load(document, reply.body);
      root && std::string_view{root->name()} == "Error") {
    s3_code = root->child_value("Code");
    words = root->child_value("Message");
  }
  Code code = code_of_status(reply.status);
  for (const Mapping& mapping : kMappings) {
    if (mapping.s3 == s3_code) code = mapping.code;
  }
  const bool again = code == Code::kUnavailable || s3_code == "RequestTimeTooSkewed";
  std::string message = fmt::format("{}: HTTP {}", what, reply.status);
  if (!s3_code.empty()) message += " " + s3_code;
  if (!words.empty()) message += ": " + words;
  return Error{code, std::move(message), again ? Retry::kYes : Retry::kNo};
}

std::string unquote_etag(std::string_view etag) {
  if (etag.size() >= 2 && etag.front() == '"' && etag.back() == '"')
    etag = etag.substr(1, etag.size() - 2);
  return std::string{etag};
}

Result<ListPage> parse_list_page(std::string_view xml) {
  pugi::xml_document document;
  const pugi::xml_node root = TRY(load_root(document, xml, "ListBucketResult"));
  const bool encoded = std::string_view{root.child_value("EncodingType")} == "url";
  ListPage page;
  for (const pugi::xml_node& node : root.children()) {
    const std::string_view name = node.name();
    if (name == "Contents") {
      ObjectInfo info;
      info.key = TRY(decode_key(node.child_value("Key"), encoded));
      info.size = TRY(parse_decimal<std::uint64_t>("Size", node.child_value("Size")));
      info.etag = unquote_etag(node.child_value("ETag"));
      info.last_modified = TRY(parse_iso8601(node.child_value("LastModified")));
      page.objects.push_back(std::move(info));
    } else if (name == "CommonPrefixes") {
      page.common_prefixes.push_back(TRY(decode_key(node.child_value("Prefix"), encoded)));
    }
  }
  if (std::string_view{root.child_value("IsTruncated")} == "true") {
    page.next_token = root.child_value("NextContinuationToken");
    if (page.next_token.empty()) {
      return Error{Code::kDataLoss, "the listing is truncated, but has no token for the next page"};
    }
  }
  return page;
}

Result<std::vector<std::string>> parse_bucket_list(std::string_view xml) {
  pugi::xml_document document;
  const pugi::xml_node root = TRY(load_root(document, xml, "ListAllMyBucketsResult"));
  std::vector<std::string> names;
  for (const pugi::xml_node& bucket : root.child("Buckets").children("Bucket")) {
    names.emplace_back(bucket.child_value("Name"));
  }
  return names;
}

Result<std::string> parse_element(std::string_view xml, std::string_view root,
                                  std::string_view name) {
  pugi::xml_document document;
  const pugi::xml_node node = TRY(load_root(document, xml, root));
  return std::string{node.child_value(std::string{name}.c_str())};
}

Result<void> parse_delete_result(std::string_view xml) {
  pugi::xml_document document;
  const pugi::xml_node root = TRY(load_root(document, xml, "DeleteResult"));
  const pugi::xml_node error = root.child("Error");
  if (!error) return {};
  return Error{Code::kUnavailable,
               fmt::format("delete '{}': {}: {}", error.child_value("Key"),
                           error.child_value("Code"), error.child_value("Message"))};
}

Result<ObjectInfo> object_info(std::string_view key, const http::Headers& headers) {
  ObjectInfo info;
  info.key = key;
  if (const auto length = headers.find("content-length")) {
    info.size = TRY(parse_decimal<std::uint64_t>("Content-Length", *length));
  }
  if (const auto range = headers.find("content-range")) {
    const std::size_t slash = range->find('/');
    if (slash != std::string_view::npos) {
      info.size = TRY(parse_decimal<std::uint64_t>("Content-Range", range->substr(slash + 1)));
    }
  }
  info.etag = unquote_etag(headers.find("etag").value_or(""));
  info.content_type = headers.find("content-type").value_or("");
  if (const auto modified = headers.find("last-modified"))
    info.last_modified = TRY(parse_http_date(*modified));
  constexpr std::string_view kPrefix = "x-amz-meta-";
  for (const auto& [name, value] : headers.fields()) {
    std::string field = name;
    for (char& c : field) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (field.starts_with(kPrefix)) info.metadata[field.substr(kPrefix.size())] = value;
  }
  return info;
}

}  // namespace atelier::objects::internal
