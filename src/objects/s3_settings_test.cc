// Settings of buckets, and what watches over them: CORS, lifecycle, tags.
#include <gtest/gtest.h>

#include "base/hash.h"
#include "objects/internal/bucket_rules.h"
#include "objects/internal/upload_sweeper.h"
#include "objects/service_testing.h"

namespace atelier::objects {
namespace {

using S3SettingsTest = testing::S3ServiceFixture;

TEST_F(S3SettingsTest, AreKeptGivenBackAndTakenAway) {
  const std::pair<std::string, std::string> documents[] = {
      {"cors",
       "<CORSConfiguration><CORSRule><AllowedOrigin>*</AllowedOrigin><AllowedMethod>GET"
       "</AllowedMethod></CORSRule></CORSConfiguration>"},
      {"lifecycle",
       "<LifecycleConfiguration><Rule><ID>a</ID><Status>Enabled</Status><Filter/>"
       "<AbortIncompleteMultipartUpload><DaysAfterInitiation>3</DaysAfterInitiation>"
       "</AbortIncompleteMultipartUpload></Rule></LifecycleConfiguration>"},
      {"tagging",
       "<Tagging><TagSet><Tag><Key>team</Key><Value>vision</Value></Tag></TagSet></Tagging>"}};
  for (const auto& [name, document] : documents) {
    const std::string target = "/bucket?" + name;
    EXPECT_EQ(ask("GET", target).status, 404) << name;
    EXPECT_EQ(ask("PUT", target, document).status / 100, 2) << name;
    const Reply got = ask("GET", target);
    EXPECT_EQ(got.status, 200) << name;
    EXPECT_NE(got.body.find(name == "tagging" ? "<Value>vision</Value>" : document),
              std::string::npos)
        << got.body;
    EXPECT_EQ(ask("GET", "/none?" + name).status, 404);
    EXPECT_EQ(code(ask("PUT", "/none?" + name, document)), "404 NoSuchBucket");
    EXPECT_EQ(code(ask("PUT", target, "<Other/>")), "400 MalformedXML");
    EXPECT_EQ(ask("DELETE", target).status, 204);
    EXPECT_EQ(ask("GET", target).status, 404) << name;
  }
  EXPECT_EQ(ask("HEAD", "/bucket").status, 200) << "the bucket itself is never touched";
}

TEST_F(S3SettingsTest, ThatCannotBeHadAreRefusedByNameAndAnsweredAsUnset) {
  EXPECT_EQ(code(ask("GET", "/bucket?policy")), "404 NoSuchBucketPolicy");
  EXPECT_EQ(code(ask("GET", "/bucket?encryption")),
            "404 ServerSideEncryptionConfigurationNotFoundError");
  EXPECT_EQ(code(ask("GET", "/bucket?object-lock")), "404 ObjectLockConfigurationNotFoundError");
  EXPECT_EQ(code(ask("GET", "/bucket?website")), "404 NoSuchWebsiteConfiguration");
  EXPECT_EQ(code(ask("GET", "/bucket?replication")), "404 ReplicationConfigurationNotFoundError");
  EXPECT_EQ(code(ask("PUT", "/bucket?encryption", "<x/>")), "501 NotImplemented");
  EXPECT_EQ(ask("GET", "/bucket?requestPayment").tag("Payer"), "BucketOwner");
  EXPECT_EQ(ask("GET", "/bucket?ownershipControls").tag("ObjectOwnership"), "BucketOwnerEnforced");
  EXPECT_EQ(ask("GET", "/bucket?publicAccessBlock").tag("BlockPublicAcls"), "true");
  EXPECT_EQ(code(ask("PUT", "/bucket?publicAccessBlock",
                     "<PublicAccessBlockConfiguration><BlockPublicAcls>false</BlockPublicAcls>"
                     "</PublicAccessBlockConfiguration>")),
            "501 NotImplemented");
  EXPECT_EQ(ask("GET", "/bucket?logging").status, 200);
  EXPECT_EQ(ask("GET", "/bucket?acl").tag("Permission"), "FULL_CONTROL");
  EXPECT_EQ(code(ask("GET", "/bucket/none?acl")), "404 NoSuchKey");
  EXPECT_EQ(ask("PUT", "/bucket?acl", "", {{"x-amz-acl", "private"}}).status, 200);
  EXPECT_EQ(code(ask("PUT", "/bucket?acl", "", {{"x-amz-acl", "public-read"}})),
            "400 AccessControlListNotSupported");
  EXPECT_EQ(code(ask("PUT", "/bucket?acl", "<AccessControlPolicy/>")),
            "400 AccessControlListNotSupported");
}

TEST_F(S3SettingsTest, VersioningCanBeSuspendedButNotEnabled) {
  const auto document = [](const std::string& status) {
    return "<VersioningConfiguration><Status>" + status + "</Status></VersioningConfiguration>";
  };
  EXPECT_EQ(ask("GET", "/bucket?versioning").tag("Status"), "(none)");
  const Reply refused = ask("PUT", "/bucket?versioning", document("Enabled"));
  EXPECT_EQ(code(refused), "501 NotImplemented");
  EXPECT_NE(refused.tag("Message").find("versions are not kept"), std::string::npos);
  EXPECT_EQ(ask("GET", "/bucket?versioning").tag("Status"), "(none)");
  EXPECT_EQ(ask("PUT", "/bucket?versioning", document("Suspended")).status, 200);
  EXPECT_EQ(ask("GET", "/bucket?versioning").tag("Status"), "Suspended");
  ask("PUT", "/bucket/a", "1");
  ask("PUT", "/bucket/b/c", "2");
  const Reply versions = ask("GET", "/bucket?versions&delimiter=/&max-keys=1");
  EXPECT_EQ(versions.tag("Key"), "a");
  EXPECT_EQ(versions.tag("VersionId"), "null");
  EXPECT_EQ(versions.tag("IsLatest"), "true");
  EXPECT_EQ(versions.tag("NextKeyMarker"), "a");
  EXPECT_NE(
      ask("GET", "/bucket?versions&delimiter=/&key-marker=a").body.find("<Prefix>b/</Prefix>"),
      std::string::npos);
  EXPECT_EQ(ask("DELETE", "/bucket/a?versionId=null").status, 204);
}

TEST_F(S3SettingsTest, DeletesManyUnderConditionsOneByOne) {
  const std::string etag = ask("PUT", "/bucket/a", "1").header("ETag");
  ask("PUT", "/bucket/b", "2");
  const auto object = [&](const char* key) {
    return std::string{"<Object><Key>"} + key + "</Key><ETag>" + etag + "</ETag></Object>";
  };
  const Reply reply =
      ask("POST", "/bucket?delete", "<Delete>" + object("a") + object("b") + "</Delete>");
  EXPECT_EQ(reply.status, 200);
  EXPECT_NE(reply.body.find("<Deleted><Key>a</Key></Deleted>"), std::string::npos) << reply.body;
  EXPECT_NE(reply.body.find("<Error><Key>b</Key><Code>PreconditionFailed</Code>"),
            std::string::npos)
      << reply.body;
  EXPECT_EQ(ask("HEAD", "/bucket/a").status, 404);
  EXPECT_EQ(ask("HEAD", "/bucket/b").status, 200);
}

TEST_F(S3SettingsTest, CorsRulesDecideWhatABrowserMaySee) {
  const std::string rules =
      "<CORSConfiguration><CORSRule><AllowedOrigin>https://*.example.org</AllowedOrigin>"
      "<AllowedMethod>GET</AllowedMethod><AllowedMethod>PUT</AllowedMethod>"
      "<AllowedHeader>x-amz-*</AllowedHeader><ExposeHeader>ETag</ExposeHeader>"
      "<MaxAgeSeconds>60</MaxAgeSeconds></CORSRule></CORSConfiguration>";
  const auto preflight = [&](const std::string& origin, const std::string& method,
                             const std::string& headers) {
    const http::RequestHead head{.method = "OPTIONS",
                                 .target = "/bucket/key",
                                 .headers = {{"Origin", origin},
                                             {"Access-Control-Request-Method", method},
                                             {"Access-Control-Request-Headers", headers}},
                                 .content_length = 0,
                                 .peer = {}};
    return service_->preflight(head);
  };
  EXPECT_EQ(preflight("https://a.example.org", "PUT", "").status, 403) << "no rules yet";
  EXPECT_EQ(ask("PUT", "/bucket?cors", rules).status, 200);
  const http::Response allowed =
      preflight("https://a.example.org", "PUT", "x-amz-date, X-Amz-Meta-A");
  EXPECT_EQ(allowed.status, 200);
  EXPECT_EQ(allowed.headers.find("access-control-allow-origin"), "https://a.example.org");
  EXPECT_EQ(allowed.headers.find("access-control-max-age"), "60");
  EXPECT_EQ(preflight("https://example.com", "PUT", "").status, 403);
  EXPECT_EQ(preflight("https://a.example.org", "DELETE", "").status, 403);
  EXPECT_EQ(preflight("https://a.example.org", "PUT", "authorization").status, 403);
  ask("PUT", "/bucket/key", "x");
  EXPECT_EQ(ask("GET", "/bucket/key", "", {{"Origin", "https://b.example.org"}})
                .header("Access-Control-Expose-Headers"),
            "ETag");
  EXPECT_EQ(ask("GET", "/bucket/key", "", {{"Origin", "https://example.com"}})
                .header("Access-Control-Allow-Origin"),
            "");
  EXPECT_EQ(code(ask("PUT", "/bucket?cors",
                     "<CORSConfiguration><CORSRule><AllowedOrigin>*a*</AllowedOrigin>"
                     "<AllowedMethod>GET</AllowedMethod></CORSRule></CORSConfiguration>")),
            "400 InvalidRequest");
}

// A preflight comes without a signature: what it costs is bounded by what may be stored.
TEST_F(S3SettingsTest, CorsRulesAreBounded) {
  const auto put = [&](const std::string& more) {
    return code(ask("PUT", "/bucket?cors",
                    "<CORSConfiguration><CORSRule><AllowedOrigin>*</AllowedOrigin>"
                    "<AllowedMethod>GET</AllowedMethod>" +
                        more + "</CORSRule></CORSConfiguration>"));
  };
  std::string headers;
  for (int i = 0; i < 98; ++i) headers += "<AllowedHeader>x-a</AllowedHeader>";
  EXPECT_EQ(put(headers), "200 (none)");
  EXPECT_EQ(put(headers + "<AllowedHeader>x</AllowedHeader>"), "400 MalformedXML");
  EXPECT_EQ(put("<ExposeHeader>" + std::string(65'000, 'x') + "</ExposeHeader>"), "200 (none)");
  EXPECT_EQ(put("<ExposeHeader>" + std::string(66'000, 'x') + "</ExposeHeader>"),
            "400 MaxMessageLengthExceeded");
  const auto preflight = [&](int count) {
    std::string wanted = "x-a";
    for (int i = 1; i < count; ++i) wanted += ",x-a";
    const http::RequestHead head{.method = "OPTIONS",
                                 .target = "/bucket/key",
                                 .headers = {{"Origin", "https://a"},
                                             {"Access-Control-Request-Method", "GET"},
                                             {"Access-Control-Request-Headers", wanted}},
                                 .content_length = 0,
                                 .peer = {}};
    return service_->preflight(head).status;
  };
  EXPECT_EQ(put(headers), "200 (none)");
  EXPECT_EQ(preflight(100), 200);
  EXPECT_EQ(preflight(101), 400);
  EXPECT_EQ(put("<AllowedHeader>y</AllowedHeader>"), "200 (none)");
  EXPECT_EQ(preflight(1), 403) << "a new document counts at once";
}

TEST_F(S3SettingsTest, ALifecycleThatWouldExpireObjectsIsRefusedByName) {
  const auto put = [&](const std::string& rule) {
    return ask("PUT", "/bucket?lifecycle",
               "<LifecycleConfiguration><Rule><Status>Enabled</Status>" + rule +
                   "</Rule></LifecycleConfiguration>");
  };
  const Reply expiration = put("<Expiration><Days>1</Days></Expiration>");
  EXPECT_EQ(code(expiration), "501 NotImplemented");
  EXPECT_NE(expiration.tag("Message").find("Expiration"), std::string::npos);
  const std::string abort =
      "<AbortIncompleteMultipartUpload><DaysAfterInitiation>0</DaysAfterInitiation>"
      "</AbortIncompleteMultipartUpload>";
  EXPECT_EQ(code(put(abort)), "400 InvalidArgument");
}

class SweepTest : public ::testing::Test {
 protected:
  SweepTest() {
    for (const char* bucket : {"usual", "ruled"}) EXPECT_TRUE(store_->create_bucket(bucket, ""));
  }
  std::string start(const std::string& bucket, const std::string& key) {
    return *store_->create_upload({.bucket = bucket, .key = key});
  }
  bool is_there(const std::string& bucket, const std::string& key, const std::string& id) {
    return store_->find_upload(bucket, key, id).has_value();
  }
  std::size_t sweep() {
    return *internal::sweep_uploads(*store_, clock_.now(), std::chrono::days{7}, {});
  }
  testing::OwnClock clock_;
  TempFolder folder_ = *TempFolder::create();
  std::unique_ptr<LocalStore> store_ = *LocalStore::open(folder_.path(), clock_);
};

TEST_F(SweepTest, GivesUpUploadsByAgeAndByTheBucketsRules) {
  ASSERT_TRUE(store_->set_bucket_document(
      "ruled", "lifecycle",
      "<LifecycleConfiguration><Rule><Status>Enabled</Status><Filter><Prefix>tmp/</Prefix></Filter>"
      "<AbortIncompleteMultipartUpload><DaysAfterInitiation>1</DaysAfterInitiation>"
      "</AbortIncompleteMultipartUpload></Rule></LifecycleConfiguration>"));
  const std::string old_one = start("usual", "a");
  const std::string in_rule = start("ruled", "tmp/a");
  const std::string beside_rule = start("ruled", "a");
  clock_.now_ += std::chrono::days{2};
  EXPECT_EQ(sweep(), 1U);
  EXPECT_FALSE(is_there("ruled", "tmp/a", in_rule));
  EXPECT_TRUE(is_there("usual", "a", old_one));
  clock_.now_ += std::chrono::days{6};
  const std::string young = start("usual", "b");
  EXPECT_EQ(sweep(), 1U);
  EXPECT_FALSE(is_there("usual", "a", old_one));
  EXPECT_TRUE(is_there("usual", "b", young));
  EXPECT_TRUE(is_there("ruled", "a", beside_rule)) << "a lifecycle document speaks for its bucket";
  EXPECT_EQ(sweep(), 0U) << "it may be repeated";
}

TEST_F(SweepTest, GivesUpMoreThanAPage) {
  for (int i = 0; i < 1005; ++i) start("usual", "k" + std::to_string(i % 3));
  clock_.now_ += std::chrono::days{8};
  EXPECT_EQ(sweep(), 1005U);
  EXPECT_TRUE(store_->list_uploads({.bucket = "usual"})->uploads.empty());
}

}  // namespace
}  // namespace atelier::objects
