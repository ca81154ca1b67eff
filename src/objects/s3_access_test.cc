// What a key with a policy may do on the embedded S3, operation by operation.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/hash.h"
#include "objects/s3_service.h"

namespace atelier::objects {
namespace {

struct Reply {
  int status = 0;
  std::string body;
};

class S3AccessTest : public ::testing::Test {
 protected:
  S3AccessTest() {
    for (const char* target : {"/bucket", "/other"}) EXPECT_EQ(as_admin("PUT", target).status, 200);
    for (const char* target : {"/bucket/in/a", "/bucket/secret/a", "/bucket/out/old", "/other/a"}) {
      EXPECT_EQ(as_admin("PUT", target, "bytes").status, 200);
    }
  }

  Reply ask(const access::Authority& authority, const std::string& method,
            const std::string& target, const std::string& body, http::Headers headers) {
    const http::RequestHead head{.method = method,
                                 .target = target,
                                 .headers = std::move(headers),
                                 .content_length = body.size(),
                                 .peer = {}};
    http::Verified caller;
    caller.principal.arn = "arn:aws:iam::000000000000:user/ann";
    caller.principal.authority = authority;
    const std::unique_ptr<http::Exchange> exchange = service_->begin(head, caller);
    if (exchange->wants_body()) exchange->on_body(std::as_bytes(std::span{body}));
    const http::Response response = exchange->finish();
    const auto* text = std::get_if<std::string>(&response.body);
    return {response.status, text == nullptr ? "" : *text};
  }
  Reply as_admin(const std::string& method, const std::string& target, const std::string& body = {},
                 http::Headers headers = {}) {
    return ask(access::Authority::everything(), method, target, body, std::move(headers));
  }
  // As one who may read in/, list in/, and write out/.
  Reply as_ann(const std::string& method, const std::string& target, const std::string& body = {},
               http::Headers headers = {}) {
    static const access::Policy policy =
        access::Policy::parse(R"({"Version":"2012-10-17","Statement":[
          {"Effect":"Allow","Action":"s3:GetObject","Resource":"arn:aws:s3:::bucket/in/*"},
          {"Effect":"Allow","Action":["s3:PutObject","s3:AbortMultipartUpload"],
           "Resource":"arn:aws:s3:::bucket/out/*"},
          {"Effect":"Allow","Action":"s3:ListBucket","Resource":"arn:aws:s3:::bucket",
           "Condition":{"StringLike":{"s3:prefix":"in/*"}}}]})")
            .value();
    return ask(access::Authority{{{policy}}}, method, target, body, std::move(headers));
  }
  static std::string code_of(const Reply& reply) {
    const std::size_t start = reply.body.find("<Code>");
    if (start == std::string::npos) return std::to_string(reply.status);
    return reply.body.substr(start + 6, reply.body.find("</Code>") - start - 6);
  }

  TempFolder folder_ = *TempFolder::create();
  std::unique_ptr<S3Service> service_ =
      S3Service::open(folder_.path(), system_clock(), "us-west-2").value();
};

TEST_F(S3AccessTest, WhatThePolicyNamesIsServed) {
  EXPECT_EQ(as_ann("GET", "/bucket/in/a").status, 200);
  EXPECT_EQ(as_ann("HEAD", "/bucket/in/a").status, 200);
  EXPECT_EQ(as_ann("PUT", "/bucket/out/new", "x").status, 200);
  EXPECT_EQ(as_ann("GET", "/bucket?list-type=2&prefix=in/").status, 200);
  EXPECT_EQ(as_ann("GET", "/bucket?prefix=in%2F").status, 200);
  EXPECT_EQ(as_ann("PUT", "/bucket/out/copy", "", {{"x-amz-copy-source", "/bucket/in/a"}}).status,
            200);
}

TEST_F(S3AccessTest, WhatMayBeReadIsToldKeyByKeyWhetherItIsThereOrNot) {
  const auto ask = [&](auto as) {
    const Reply reply = as("/bucket?atelier-readable",
                           "<Delete><Object><Key>in/a</Key></Object><Object><Key>secret/a</Key>"
                           "</Object><Object><Key>in/none</Key></Object></Delete>");
    return reply.body.substr(std::min(reply.body.find("<Readable>"), reply.body.size()));
  };
  EXPECT_EQ(ask([&](auto target, auto body) { return as_ann("POST", target, body); }),
            "<Readable>101</Readable></ReadableResult>");
  EXPECT_EQ(ask([&](auto target, auto body) { return as_admin("POST", target, body); }),
            "<Readable>111</Readable></ReadableResult>");
}

TEST_F(S3AccessTest, EverythingElseIsRefusedByEveryOperation) {
  struct Try {
    const char* method;
    const char* target;
    std::string body{};
    http::Headers headers{};
  };
  const std::string parts =
      "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>x</ETag></Part>"
      "</CompleteMultipartUpload>";
  for (const Try& one : std::vector<Try>{
           {"GET", "/"},
           {"GET", "/bucket/secret/a"},
           {"HEAD", "/bucket/secret/a"},
           {"GET", "/bucket//in/a"},
           {"GET", "/bucket/in"},
           {"GET", "/bucket/IN/a"},
           {"GET", "/other/a"},
           {"GET", "/bucket/out/old"},
           {"GET", "/bucket/in/a?tagging"},
           {"GET", "/bucket/secret/a?attributes", "", {{"x-amz-object-attributes", "ETag"}}},
           {"GET", "/bucket"},
           {"GET", "/bucket?list-type=2"},
           {"GET", "/bucket?list-type=2&prefix="},
           {"GET", "/bucket?list-type=2&prefix=&prefix=in/"},
           {"GET", "/bucket?list-type=2&prefix=secret/"},
           {"GET", "/bucket?list-type=2&prefix=in"},
           {"GET", "/other?list-type=2&prefix=in/"},
           {"GET", "/bucket?uploads&prefix=in/"},
           {"GET", "/bucket?location"},
           {"GET", "/bucket?versioning"},
           {"HEAD", "/bucket"},
           {"PUT", "/mine"},
           {"DELETE", "/bucket"},
           {"PUT", "/bucket/in/a", "x"},
           {"PUT", "/bucket/out/t", "x", {{"x-amz-tagging", "a=b"}}},
           {"PUT", "/bucket/out/c", "", {{"x-amz-copy-source", "/bucket/secret/a"}}},
           {"PUT", "/bucket/out/c", "", {{"x-amz-copy-source", "bucket%2Fsecret%2Fa"}}},
           {"PUT", "/bucket/out/c", "", {{"x-amz-copy-source", "/other/a"}}},
           {"DELETE", "/bucket/out/old"},
           {"DELETE", "/bucket/in/a"},
           {"PUT", "/bucket/out/old?tagging",
            "<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>"},
           {"DELETE", "/bucket/out/old?tagging"},
           {"POST", "/bucket/in/a?uploads"},
           {"PUT", "/bucket/in/a?partNumber=1&uploadId=x", "x"},
           {"PUT",
            "/bucket/out/a?partNumber=1&uploadId=x",
            "",
            {{"x-amz-copy-source", "/bucket/secret/a"}}},
           {"GET", "/bucket/in/a?uploadId=x"},
           {"POST", "/bucket/in/a?uploadId=x", parts},
           {"DELETE", "/bucket/in/a?uploadId=x"}}) {
    const Reply reply = as_ann(one.method, one.target, one.body, one.headers);
    EXPECT_EQ(reply.status, 403) << one.method << ' ' << one.target << ' ' << reply.body;
    if (std::string_view{one.method} != "HEAD") {
      EXPECT_EQ(code_of(reply), "AccessDenied");
    }
  }
  EXPECT_EQ(as_admin("GET", "/bucket/in/a").body, "bytes");
  EXPECT_EQ(as_admin("GET", "/bucket/out/old").status, 200);
}

TEST_F(S3AccessTest, DotsInAKeyLeadNowhere) {
  // Keys of their own, below the prefixes that the policy names.
  EXPECT_EQ(as_ann("GET", "/bucket/in/../secret/a").status, 404);
  EXPECT_EQ(as_ann("GET", "/bucket/in%2F..%2Fsecret%2Fa").status, 404);
  EXPECT_EQ(as_ann("PUT", "/bucket/out/../in/a", "x").status, 200);
  EXPECT_EQ(as_admin("GET", "/bucket/in/a").body, "bytes") << "it stays as it was";
  EXPECT_EQ(code_of(as_ann("GET", "/bucket/x/../in/a")), "AccessDenied");
}

TEST_F(S3AccessTest, ARefusalNamesPrincipalActionAndResource) {
  EXPECT_NE(as_ann("GET", "/bucket/secret/a")
                .body.find("User: arn:aws:iam::000000000000:user/ann is not authorized to perform: "
                           "s3:GetObject on resource: arn:aws:s3:::bucket/secret/a because"),
            std::string::npos);
}

TEST_F(S3AccessTest, OfManyDeletesEachKeyIsAskedAlone) {
  const access::Policy policy =
      access::Policy::parse(R"({"Statement":{"Effect":"Allow","Action":"s3:DeleteObject",
        "Resource":"arn:aws:s3:::bucket/out/*"}})")
          .value();
  const Reply reply = ask(access::Authority{{{policy}}}, "POST", "/bucket?delete",
                          "<Delete><Object><Key>out/old</Key></Object>"
                          "<Object><Key>in/a</Key></Object></Delete>",
                          {});
  EXPECT_EQ(reply.status, 200);
  EXPECT_NE(reply.body.find("<Deleted><Key>out/old</Key></Deleted>"), std::string::npos);
  EXPECT_NE(reply.body.find("<Error><Key>in/a</Key><Code>AccessDenied</Code>"), std::string::npos)
      << reply.body;
  EXPECT_EQ(as_admin("GET", "/bucket/out/old").status, 404);
  EXPECT_EQ(as_admin("GET", "/bucket/in/a").status, 200);
}

// Its body is kept in memory: only for who can delete anything at all.
TEST_F(S3AccessTest, ManyDeletesAreReadOnlyFromWhoMayDeleteSomething) {
  const auto wants_body = [&](const std::string& statements) {
    http::Verified caller;
    caller.principal.authority =
        access::Authority{{{access::Policy::parse(R"({"Statement":)" + statements + "}").value()}}};
    const http::RequestHead head{.method = "POST",
                                 .target = "/bucket?delete",
                                 .headers = {},
                                 .content_length = 10,
                                 .peer = {}};
    return service_->begin(head, caller)->wants_body();
  };
  EXPECT_TRUE(wants_body(R"({"Effect":"Allow","Action":"s3:*","Resource":"arn:aws:s3:::x/*"})"));
  EXPECT_FALSE(wants_body(R"({"Effect":"Allow","Action":"s3:Get*","Resource":"*"})"));
}

TEST_F(S3AccessTest, ADocumentOfCountlessElementsIsRefusedBeforeItIsTakenApart) {
  std::string many = "<Delete>";
  for (int i = 0; i < 100'000; ++i) many += "<a/>";
  EXPECT_NE(as_admin("POST", "/bucket?delete", many + "</Delete>").body.find("tags"),
            std::string::npos);
  many = "<Delete ";
  for (int i = 0; i < 100'000; ++i) many += "a=''";
  EXPECT_NE(as_admin("POST", "/bucket?delete", many + "/>").body.find("attributes"),
            std::string::npos);
  many = "<Delete>";
  for (int i = 0; i < 1000; ++i) many += fmt::format("<Object><Key>a={}</Key></Object>", i);
  EXPECT_EQ(as_admin("POST", "/bucket?delete", many + "</Delete>").status, 200);
  many += "<Object><Key>one more</Key></Object>";
  EXPECT_NE(as_admin("POST", "/bucket?delete", many + "</Delete>").body.find("1000 objects"),
            std::string::npos);
}

TEST_F(S3AccessTest, AttributesNeedTheirOwnRightBesidesReading) {
  const auto status = [&](const std::string& actions) {
    const access::Policy policy =
        access::Policy::parse(R"({"Statement":{"Effect":"Allow","Action":)" + actions +
                              R"(,"Resource":"arn:aws:s3:::bucket/in/*"}})")
            .value();
    return ask(access::Authority{{{policy}}}, "GET", "/bucket/in/a?attributes", "",
               {{"x-amz-object-attributes", "ETag"}})
        .status;
  };
  EXPECT_EQ(status(R"("s3:GetObject")"), 403);
  EXPECT_EQ(status(R"("s3:GetObjectAttributes")"), 403);
  EXPECT_EQ(status(R"(["s3:GetObject","s3:GetObjectAttributes"])"), 200);
}

TEST_F(S3AccessTest, ACopyTakesTagsAlongOnlyWithTheRightsToThem) {
  EXPECT_EQ(as_admin("PUT", "/bucket/in/tagged", "x", {{"x-amz-tagging", "a=b"}}).status, 200);
  const http::Headers copy{{"x-amz-copy-source", "/bucket/in/tagged"}};
  http::Headers without = copy;
  without.add("x-amz-tagging-directive", "REPLACE");
  EXPECT_EQ(as_ann("PUT", "/bucket/out/c", "", copy).status, 403);
  EXPECT_EQ(as_ann("PUT", "/bucket/out/c", "", without).status, 200);
  EXPECT_EQ(as_admin("PUT", "/bucket/out/c", "", copy).status, 200);
  const access::Policy policy = access::Policy::parse(R"({"Statement":[
        {"Effect":"Allow","Action":["s3:GetObject","s3:GetObjectTagging"],"Resource":"arn:aws:s3:::bucket/in/*"},
        {"Effect":"Allow","Action":["s3:PutObject","s3:PutObjectTagging"],"Resource":"arn:aws:s3:::bucket/out/*"}]})")
                                    .value();
  EXPECT_EQ(ask(access::Authority{{{policy}}}, "PUT", "/bucket/out/d", "", copy).status, 200);
}

TEST_F(S3AccessTest, SettingsOfABucketGoByTheActionsOfAmazon) {
  const access::Policy policy = access::Policy::parse(R"({"Statement":{"Effect":"Allow",
        "Action":["s3:PutLifecycleConfiguration","s3:GetBucketCORS","s3:GetBucketPublicAccessBlock"],
        "Resource":"arn:aws:s3:::bucket"}})")
                                    .value();
  const auto status = [&](const std::string& method, const std::string& target) {
    return ask(access::Authority{{{policy}}}, method, target, {}, {}).status;
  };
  EXPECT_EQ(status("DELETE", "/bucket?lifecycle"), 204);
  EXPECT_EQ(status("GET", "/bucket?lifecycle"), 403);
  EXPECT_EQ(status("GET", "/bucket?cors"), 404);
  EXPECT_EQ(status("DELETE", "/bucket?cors"), 403);
  EXPECT_EQ(status("GET", "/bucket?publicAccessBlock"), 200);
  EXPECT_EQ(status("GET", "/bucket?acl"), 403);
  EXPECT_EQ(status("GET", "/bucket?versions"), 403);
  EXPECT_EQ(status("GET", "/other?cors"), 403);
}

TEST_F(S3AccessTest, AKeyWithoutAuthorityMayDoNothing) {
  EXPECT_EQ(code_of(ask({}, "GET", "/bucket/in/a", "", {})), "AccessDenied");
  EXPECT_EQ(code_of(ask({}, "GET", "/", "", {})), "AccessDenied");
}

}  // namespace
}  // namespace atelier::objects
