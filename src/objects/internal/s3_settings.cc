// Sub-resources of buckets and objects that clients ask for before and around their transfers: what
// can be set here is kept, and what cannot is answered as S3 answers when nothing was set.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "objects/internal/bucket_rules.h"
#include "objects/internal/s3_call.h"
#include "objects/internal/xml_reader.h"

namespace atelier::objects::internal {
namespace {

// Takes a document in: what is kept of it, as GET gives it back.
using Accept = Result<std::string> (*)(const std::string& document);

struct Setting {
  std::string_view parameter;
  std::string_view absent_code;   // the error of GET when nothing was set; "": there is a default
  std::string_view absent;        // what to say then, or the default document
  Accept accept = nullptr;        // null: cannot be set
  std::string_view refusal = "";  // why not
  bool removable = false;         // DELETE takes it away (or finds it gone)
};

constexpr std::string_view kNamespace = "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"";

Result<std::string> accept_cors(const std::string& document) {
  TRY(parse_cors(document));
  return document;
}

Result<std::string> accept_lifecycle(const std::string& document) {
  TRY(parse_lifecycle(document));
  return document;
}

Result<std::string> accept_tagging(const std::string& document) {
  const std::string tags = TRY(parse_tagging(document, kMaxBucketTags));
  const http::Response response = TRY(tagging_response(tags));
  return std::get<std::string>(response.body);
}

Result<std::string> accept_versioning(const std::string& document) {
  pugi::xml_document parsed;
  const pugi::xml_node root = TRY(load_document(parsed, document, "VersioningConfiguration"));
  const std::string status = text_of(find_child(root, "Status"));
  if (status == "Enabled" || text_of(find_child(root, "MfaDelete")) == "Enabled") {
    return s3_error("NotImplemented",
                    "versions are not kept by this server: Status can be Suspended alone");
  }
  if (status == "Suspended") return document;
  return malformed(fmt::format("Status is '{}'; it must be Enabled or Suspended", status));
}

// The one way in which it works, so that saying it again is fine.
Result<std::string> accept_ownership(const std::string& document) {
  pugi::xml_document parsed;
  const pugi::xml_node root = TRY(load_document(parsed, document, "OwnershipControls"));
  const std::string ownership = text_of(find_child(find_child(root, "Rule"), "ObjectOwnership"));
  if (ownership == "BucketOwnerEnforced") return std::string{};
  return s3_error(
      "NotImplemented",
      fmt::format("ObjectOwnership '{}' is not supported; BucketOwnerEnforced is", ownership));
}

Result<std::string> accept_public_access_block(const std::string& document) {
  pugi::xml_document parsed;
  const pugi::xml_node root =
      TRY(load_document(parsed, document, "PublicAccessBlockConfiguration"));
  for (const pugi::xml_node& field : root.children()) {
    if (field.type() != pugi::node_element || text_of(field) == "true") continue;
    return s3_error(
        "NotImplemented",
        fmt::format("{} can only be true: nothing is public on this server", field.name()));
  }
  return std::string{};
}

constexpr std::array kSettings = {
    Setting{"accelerate", "", "AccelerateConfiguration"},
    Setting{"cors", "NoSuchCORSConfiguration", "the CORS configuration does not exist", accept_cors,
            "", true},
    Setting{"encryption", "ServerSideEncryptionConfigurationNotFoundError",
            "the server side encryption configuration was not found", nullptr,
            "this server does not encrypt", true},
    Setting{"lifecycle", "NoSuchLifecycleConfiguration",
            "the lifecycle configuration does not exist", accept_lifecycle, "", true},
    Setting{"logging", "", "BucketLoggingStatus"},
    Setting{"notification", "", "NotificationConfiguration"},
    Setting{"object-lock", "ObjectLockConfigurationNotFoundError",
            "object lock configuration does not exist for this bucket"},
    Setting{"ownershipControls", "",
            "OwnershipControls|<Rule><ObjectOwnership>BucketOwnerEnforced</ObjectOwnership></Rule>",
            accept_ownership},
    Setting{"policy", "NoSuchBucketPolicy", "the bucket policy does not exist", nullptr,
            "who may do what is said with the keys of this server (atelier keys)", true},
    Setting{"policyStatus", "NoSuchBucketPolicy", "the bucket policy does not exist"},
    Setting{"publicAccessBlock", "",
            "PublicAccessBlockConfiguration|<BlockPublicAcls>true</BlockPublicAcls>"
            "<IgnorePublicAcls>true</IgnorePublicAcls><BlockPublicPolicy>true</BlockPublicPolicy>"
            "<RestrictPublicBuckets>true</RestrictPublicBuckets>",
            accept_public_access_block},
    Setting{"replication", "ReplicationConfigurationNotFoundError",
            "the replication configuration was not found", nullptr, "", true},
    Setting{"requestPayment", "", "RequestPaymentConfiguration|<Payer>BucketOwner</Payer>"},
    Setting{"tagging", "NoSuchTagSet", "the TagSet does not exist", accept_tagging, "", true},
    Setting{"versioning", "", "VersioningConfiguration", accept_versioning},
    Setting{"website", "NoSuchWebsiteConfiguration",
            "the bucket does not have a website configuration", nullptr, "", true},
};

const Setting& setting_of(const Call& call) {
  const auto at = std::find_if(kSettings.begin(), kSettings.end(), [&](const Setting& setting) {
    return call.request.parameter(setting.parameter).has_value();
  });
  ATELIER_CHECK(at != kSettings.end(), "an operation on a setting that is not in the table");
  return *at;
}

http::Response document_response(std::string document) {
  http::Response response;
  response.headers.add("Content-Type", "application/xml");
  response.body = std::move(document);
  return response;
}

// "Root|<Inner/>"
http::Response default_response(std::string_view words) {
  const std::size_t bar = std::min(words.find('|'), words.size());
  const std::string_view root = words.substr(0, bar);
  return document_response(fmt::format("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<{} {}>{}</{}>",
                                       root, kNamespace,
                                       words.substr(std::min(bar + 1, words.size())), root));
}

}  // namespace

CallResult get_bucket_setting(Call& call) {
  const Setting& setting = setting_of(call);
  std::string document =
      TRY(call.store.bucket_document(call.request.bucket, std::string{setting.parameter}));
  if (!document.empty()) return document_response(std::move(document));
  if (!setting.absent_code.empty()) return s3_error(setting.absent_code, setting.absent);
  return default_response(setting.absent);
}

CallResult put_bucket_setting(Call& call) {
  const Setting& setting = setting_of(call);
  TRY(call.store.find_bucket(call.request.bucket));
  if (setting.accept == nullptr) {
    return s3_error("NotImplemented",
                    fmt::format("setting '{}' of a bucket is not supported{}{}", setting.parameter,
                                setting.refusal.empty() ? "" : ": ", setting.refusal));
  }
  const std::string kept = TRY(setting.accept(call.document));
  TRY(call.store.set_bucket_document(call.request.bucket, std::string{setting.parameter}, kept));
  return empty_response(setting.parameter == "tagging" ? 204 : 200);
}

CallResult delete_bucket_setting(Call& call) {
  const Setting& setting = setting_of(call);
  TRY(call.store.find_bucket(call.request.bucket));
  if (!setting.removable) {
    return s3_error("NotImplemented",
                    fmt::format("'{}' of a bucket cannot be removed", setting.parameter));
  }
  TRY(call.store.set_bucket_document(call.request.bucket, std::string{setting.parameter}, ""));
  return empty_response(204);
}

CallResult tagging_response(const std::string& tags) {
  XmlWriter xml;
  xml.open_root("Tagging");
  xml.open("TagSet");
  if (!tags.empty()) {
    for (const auto& [name, value] : TRY(http::parse_query(tags))) {
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

namespace {

Result<void> require_target(Call& call) {
  if (call.request.key.empty()) {
    TRY(call.store.find_bucket(call.request.bucket));
  } else {
    TRY(refuse_version(call.request));
    TRY(call.store.head(call.request.bucket, call.request.key));
  }
  return {};
}

}  // namespace

// Everything belongs to the owner of the bucket, who has full control; there is no other grant.
CallResult get_acl(Call& call) {
  TRY(require_target(call));
  const std::string& account = call.caller.principal.account;
  XmlWriter xml;
  xml.open_root("AccessControlPolicy");
  write_owner(xml, call, "Owner");
  xml.open("AccessControlList");
  xml.open("Grant");
  xml.raw(
      "<Grantee xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\" "
      "xsi:type=\"CanonicalUser\">");
  xml.element("ID", account);
  xml.element("DisplayName", account);
  xml.close("Grantee");
  xml.element("Permission", "FULL_CONTROL");
  xml.close("Grant");
  xml.close("AccessControlList");
  xml.close("AccessControlPolicy");
  return xml_response(std::move(xml));
}

CallResult put_acl(Call& call) {
  TRY(require_target(call));
  TRY(stored_headers(call.request));  // refuses the ACLs that are not there
  if (!call.document.empty() || !call.request.header("x-amz-acl")) {
    return s3_error("AccessControlListNotSupported",
                    "access control lists are not supported; the ACL 'private' is");
  }
  return empty_response(200);
}

CallResult get_object_lock(Call& call) {
  TRY(require_target(call));
  return s3_error("InvalidRequest", "the bucket is missing an object lock configuration");
}

}  // namespace atelier::objects::internal
