// The embedded S3 without a network: requests as values, as S3's documents and clients write them.
#include "objects/s3_service.h"

#include <gtest/gtest.h>

#include "base/hash.h"
#include "objects/checksum.h"
#include "objects/service_testing.h"

namespace atelier::objects {
namespace {

using testing::Reply;
using S3ServiceTest = testing::S3ServiceFixture;

TEST_F(S3ServiceTest, SaysWhatWentWrongInS3sWords) {
  EXPECT_EQ(code(ask("GET", "/bucket/none")), "404 NoSuchKey");
  EXPECT_EQ(code(ask("GET", "/none-such/key")), "404 NoSuchBucket");
  EXPECT_EQ(code(ask("PUT", "/none-such/key", "x")), "404 NoSuchBucket");
  EXPECT_EQ(code(ask("PUT", "/No_Bucket")), "400 InvalidBucketName");
  EXPECT_EQ(code(ask("PUT", "/bucket/" + std::string(1025, 'k'), "x")), "400 KeyTooLongError");
  EXPECT_EQ(code(ask("PUT", "/bucket/%FF", "x")), "400 InvalidURI");
  EXPECT_EQ(code(ask("GET", "/bucket/%4")), "400 InvalidURI");
  EXPECT_EQ(code(ask("PATCH", "/bucket/key")), "405 MethodNotAllowed");
  EXPECT_EQ(code(ask("GET", "/bucket?inventory")), "501 NotImplemented");
  EXPECT_NE(ask("PUT", "/bucket?policy", "{}").tag("Message").find("'policy'"), std::string::npos);
  EXPECT_EQ(code(ask("PUT", "/bucket/key?torrent", "x")), "501 NotImplemented")
      << "never taken for PutObject";
  EXPECT_EQ(code(ask("DELETE", "/bucket?analytics")), "501 NotImplemented")
      << "never taken for DeleteBucket";
  EXPECT_EQ(code(ask("GET", "/bucket/key?uploadId=none")), "404 NoSuchUpload");
  EXPECT_EQ(code(ask("POST", "/bucket?delete", "<Delete><Object>")), "400 MalformedXML");
  EXPECT_EQ(code(ask("GET", "/bucket?list-type=2&max-keys=-1")), "400 InvalidArgument");
  EXPECT_EQ(code(ask("GET", "/bucket?list-type=2&continuation-token=%2A")), "400 InvalidArgument");
  const Reply head = ask("HEAD", "/bucket/none");
  EXPECT_EQ(head.status, 404);
  EXPECT_FALSE(head.header("x-amz-request-id").empty());
}

TEST_F(S3ServiceTest, KeepsTheHeadersThatBelongToAnObjectAndGivesThemBack) {
  const Reply put = ask("PUT", "/bucket/key", "text",
                        {{"Content-Type", "text/plain"},
                         {"Content-Encoding", "aws-chunked,gzip"},
                         {"Cache-Control", "no-cache"},
                         {"x-amz-meta-Owner", "me"},
                         {"x-amz-server-side-encryption", "aws:kms"},
                         {"x-amz-acl", "private"}});
  EXPECT_EQ(put.status, 200);
  EXPECT_EQ(put.header("ETag"), "\"1cb251ec0d568de6a929b520c4aed8d1\"");
  EXPECT_EQ(put.header("x-amz-server-side-encryption"), "aws:kms");
  const Reply got = ask("GET", "/bucket/key");
  EXPECT_EQ(got.body, "text");
  EXPECT_EQ(got.header("Content-Type"), "text/plain");
  EXPECT_EQ(got.header("Content-Encoding"), "gzip");
  EXPECT_EQ(got.header("Cache-Control"), "no-cache");
  EXPECT_EQ(got.header("x-amz-meta-owner"), "me");
  EXPECT_EQ(got.header("Last-Modified"), "Sun, 30 Nov 2025 07:00:00 GMT");
  const Reply other =
      ask("GET", "/bucket/key?response-content-type=image/png&response-cache-control=x");
  EXPECT_EQ(other.header("Content-Type"), "image/png");
  EXPECT_EQ(other.header("Cache-Control"), "x");
  EXPECT_EQ(code(ask("GET", "/bucket/key?response-content-type=a%0d%0aSet-Cookie:b")),
            "400 InvalidArgument");
  EXPECT_EQ(code(ask("PUT", "/bucket/key", "x", {{"x-amz-acl", "public-read"}})),
            "400 AccessControlListNotSupported");
  EXPECT_EQ(code(ask("PUT", "/bucket/key", "x", {{"x-amz-meta-a", std::string(2100, 'a')}})),
            "400 MetadataTooLarge");
}

TEST_F(S3ServiceTest, AnswersConditionsInTheOrderOfRfc9110) {
  const std::string etag = ask("PUT", "/bucket/key", "text").header("ETag");
  const auto status = [&](http::Headers headers) {
    return ask("GET", "/bucket/key", "", std::move(headers)).status;
  };
  const std::string before = "Sun, 30 Nov 2025 06:59:59 GMT";
  const std::string same = "Sun, 30 Nov 2025 07:00:00 GMT";
  EXPECT_EQ(status({{"If-Match", etag}}), 200);
  EXPECT_EQ(status({{"If-Match", "\"other\", " + etag}}), 200);
  EXPECT_EQ(status({{"If-Match", "\"other\""}}), 412);
  EXPECT_EQ(status({{"If-None-Match", etag}}), 304);
  EXPECT_EQ(status({{"If-None-Match", "W/" + etag}}), 304);
  EXPECT_EQ(status({{"If-None-Match", "\"other\""}}), 200);
  EXPECT_EQ(status({{"If-Modified-Since", same}}), 304);
  EXPECT_EQ(status({{"If-Modified-Since", before}}), 200);
  EXPECT_EQ(status({{"If-Unmodified-Since", same}}), 200);
  EXPECT_EQ(status({{"If-Unmodified-Since", before}}), 412);
  EXPECT_EQ(status({{"If-Match", etag}, {"If-Unmodified-Since", before}}), 200);
  EXPECT_EQ(status({{"If-None-Match", "\"other\""}, {"If-Modified-Since", same}}), 200);
  EXPECT_EQ(status({{"If-Modified-Since", "no date"}}), 200);
  EXPECT_EQ(ask("GET", "/bucket/key", "", {{"If-None-Match", "*"}}).header("ETag"), etag);
}

TEST_F(S3ServiceTest, PutsAndDeletesUnderConditions) {
  EXPECT_EQ(code(ask("PUT", "/bucket/key", "a", {{"If-Match", "\"x\""}})), "404 NoSuchKey");
  const std::string etag = ask("PUT", "/bucket/key", "a", {{"If-None-Match", "*"}}).header("ETag");
  EXPECT_EQ(code(ask("PUT", "/bucket/key", "b", {{"If-None-Match", etag}})), "501 NotImplemented");
  EXPECT_EQ(code(ask("PUT", "/bucket/key", "b", {{"If-None-Match", "*"}})),
            "412 PreconditionFailed");
  EXPECT_EQ(code(ask("PUT", "/bucket/key", "b", {{"If-Match", "\"x\""}})),
            "412 PreconditionFailed");
  EXPECT_EQ(ask("PUT", "/bucket/key", "b", {{"If-Match", etag}}).status, 200);
  EXPECT_EQ(code(ask("DELETE", "/bucket/key", "", {{"If-Match", etag}})), "412 PreconditionFailed");
  EXPECT_EQ(ask("GET", "/bucket/key").body, "b");
  EXPECT_EQ(ask("DELETE", "/bucket/key").status, 204);
}

TEST_F(S3ServiceTest, AnswersRanges) {
  const std::string large(100'000, 'z');
  ask("PUT", "/bucket/small", "0123456789");
  ask("PUT", "/bucket/large", large);
  ask("PUT", "/bucket/empty", "");
  const auto range = [&](const std::string& key, const std::string& text) {
    const Reply reply = ask("GET", "/bucket/" + key, "", {{"Range", text}});
    return std::to_string(reply.status) + " " + reply.header("Content-Range") + " " +
           std::to_string(reply.body.size());
  };
  EXPECT_EQ(range("small", "bytes=2-4"), "206 bytes 2-4/10 3");
  EXPECT_EQ(range("small", "bytes=7-"), "206 bytes 7-9/10 3");
  EXPECT_EQ(range("small", "bytes=-3"), "206 bytes 7-9/10 3");
  EXPECT_EQ(range("small", "bytes=-30"), "206 bytes 0-9/10 10");
  EXPECT_EQ(range("large", "bytes=99990-200000"), "206 bytes 99990-99999/100000 10");
  EXPECT_EQ(range("small", "bytes=0-1,3-4"), "200  10")
      << "several ranges are not served: the whole is";
  EXPECT_EQ(range("small", "bytes=4-2"), "200  10");
  EXPECT_EQ(range("small", "lines=1-2"), "200  10");
  EXPECT_TRUE(range("small", "bytes=10-").starts_with("416 bytes */10"));
  EXPECT_TRUE(range("small", "bytes=-0").starts_with("416 bytes */10"));
  EXPECT_TRUE(range("empty", "bytes=0-0").starts_with("416 bytes */0"));
  EXPECT_TRUE(range("small", "bytes=18446744073709551615-").starts_with("416"));
  EXPECT_EQ(ask("GET", "/bucket/small?partNumber=1").status, 206);
  EXPECT_EQ(code(ask("GET", "/bucket/small?partNumber=2")), "416 InvalidPartNumber");
}

TEST_F(S3ServiceTest, ChecksEveryDigestThatComesWithABody) {
  const std::string md5 = to_base64(digest(Digest::kMd5, "body"));
  EXPECT_EQ(ask("PUT", "/bucket/key", "body", {{"Content-MD5", md5}}).status, 200);
  EXPECT_EQ(code(ask("PUT", "/bucket/wrong", "Body", {{"Content-MD5", md5}})), "400 BadDigest");
  EXPECT_EQ(code(ask("PUT", "/bucket/wrong", "Body", {{"Content-MD5", "short"}})),
            "400 InvalidDigest");
  for (const ChecksumKind kind : kChecksumKinds) {
    const std::string value = checksum_base64(kind, "body");
    const Reply put = ask("PUT", "/bucket/key", "body", {{checksum_header(kind), value}});
    EXPECT_EQ(put.header(checksum_header(kind)), value);
    EXPECT_EQ(ask("HEAD", "/bucket/key", "", {{"x-amz-checksum-mode", "ENABLED"}})
                  .header(checksum_header(kind)),
              value);
    EXPECT_EQ(ask("HEAD", "/bucket/key").header(checksum_header(kind)), "");
    EXPECT_EQ(code(ask("PUT", "/bucket/wrong", "Body", {{checksum_header(kind), value}})),
              "400 BadDigest");
    EXPECT_EQ(code(ask("PUT", "/bucket/wrong", "body", {{checksum_header(kind), "AAA="}})),
              "400 InvalidRequest");
  }
  EXPECT_EQ(ask("HEAD", "/bucket/wrong").status, 404) << "nothing of a refused body is kept";
}

TEST_F(S3ServiceTest, TakesTheChecksumThatTrailsABody) {
  const std::string crc = checksum_base64(ChecksumKind::kCrc32, "hello");
  const http::Headers headers = {{"x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER"},
                                 {"x-amz-trailer", "x-amz-checksum-crc32"},
                                 {"x-amz-decoded-content-length", "5"},
                                 {"Content-Encoding", "aws-chunked"}};
  const auto framed = [](const std::string& value) {
    return "5\r\nhello\r\n0\r\nx-amz-checksum-crc32:" + value + "\r\n\r\n";
  };
  const Reply put =
      ask("PUT", "/bucket/key", framed(crc), headers, http::Payload::kChunkedUnsignedTrailer);
  EXPECT_EQ(put.status, 200) << put.body;
  EXPECT_EQ(put.header("x-amz-checksum-crc32"), crc);
  EXPECT_EQ(ask("GET", "/bucket/key").body, "hello");
  EXPECT_EQ(ask("GET", "/bucket/key").header("Content-Encoding"), "");
  EXPECT_EQ(code(ask("PUT", "/bucket/wrong", framed("AAAAAA=="), headers,
                     http::Payload::kChunkedUnsignedTrailer)),
            "400 BadDigest");
  EXPECT_EQ(code(ask("PUT", "/bucket/wrong", "5\r\nhello\r\n0\r\n\r\n", headers,
                     http::Payload::kChunkedUnsignedTrailer)),
            "400 IncompleteBody");
  EXPECT_EQ(ask("HEAD", "/bucket/wrong").status, 404);
}

TEST_F(S3ServiceTest, JoinsPartsWithCompositeAndFullChecksums) {
  const std::string first(5 << 20, 'a');
  const std::string last = "the end";
  for (const bool full : {false, true}) {
    http::Headers create = {{"x-amz-checksum-algorithm", "CRC32C"}, {"Content-Type", "x/y"}};
    if (full) create.add("x-amz-checksum-type", "FULL_OBJECT");
    const std::string id = start_upload("/bucket/large", create);
    std::string list;
    int number = 0;
    for (const std::string& part : {first, last}) {
      const std::string crc = checksum_base64(ChecksumKind::kCrc32c, part);
      const Reply put =
          ask("PUT", "/bucket/large?partNumber=" + std::to_string(++number) + "&uploadId=" + id,
              part, {{"x-amz-checksum-crc32c", crc}});
      EXPECT_EQ(put.header("x-amz-checksum-crc32c"), crc);
      list += "<Part><PartNumber>" + std::to_string(number) + "</PartNumber><ETag>" +
              put.header("ETag") + "</ETag><ChecksumCRC32C>" + crc + "</ChecksumCRC32C></Part>";
    }
    EXPECT_EQ(code(ask("PUT", "/bucket/large?partNumber=3&uploadId=" + id, "x",
                       {{"x-amz-checksum-sha1", checksum_base64(ChecksumKind::kSha1, "x")}})),
              "400 InvalidRequest");
    const Reply parts = ask("GET", "/bucket/large?uploadId=" + id + "&max-parts=1");
    EXPECT_EQ(parts.tag("IsTruncated"), "true");
    EXPECT_EQ(parts.tag("NextPartNumberMarker"), "1");
    EXPECT_EQ(ask("GET", "/bucket?uploads").tag("UploadId"), id);
    const std::string document =
        "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">" + list +
        "</CompleteMultipartUpload>";
    const std::string whole = checksum_base64(ChecksumKind::kCrc32c, first + last);
    EXPECT_EQ(code(ask("POST", "/bucket/large?uploadId=" + id, document,
                       {{"x-amz-checksum-crc32c", "AAAAAA=="}})),
              "400 BadDigest");
    EXPECT_EQ(code(ask("POST", "/bucket/large?uploadId=" + id, document,
                       {{"x-amz-mp-object-size", "1"}})),
              "400 InvalidRequest");
    EXPECT_EQ(code(ask("POST", "/bucket/large?uploadId=" + id, document,
                       {{"x-amz-checksum-type", full ? "COMPOSITE" : "FULL_OBJECT"}})),
              "400 BadDigest");
    const Reply done = ask("POST", "/bucket/large?uploadId=" + id, document);
    EXPECT_EQ(done.status, 200) << done.body;
    EXPECT_TRUE(done.tag("ETag").ends_with("-2&quot;")) << done.tag("ETag");
    EXPECT_EQ(done.tag("ChecksumType"), full ? "FULL_OBJECT" : "COMPOSITE");
    EXPECT_EQ(done.tag("ChecksumCRC32C") == whole, full);
    EXPECT_EQ(done.tag("ChecksumCRC32C").ends_with("-2"), !full);
    EXPECT_EQ(ask("POST", "/bucket/large?uploadId=" + id, document).status, 200)
        << "a client may ask again";
    EXPECT_TRUE(ask("GET", "/bucket/large").body == first + last);
    EXPECT_EQ(ask("GET", "/bucket/large?partNumber=2").body, last);
    const Reply second =
        ask("HEAD", "/bucket/large?partNumber=2", "", {{"x-amz-checksum-mode", "ENABLED"}});
    EXPECT_EQ(second.header("x-amz-mp-parts-count"), "2");
    EXPECT_EQ(second.header("x-amz-checksum-crc32c"), checksum_base64(ChecksumKind::kCrc32c, last));
    const Reply attributes = ask(
        "GET", "/bucket/large?attributes", "",
        {{"x-amz-object-attributes", "ObjectParts,Checksum"}, {"x-amz-part-number-marker", "1"}});
    EXPECT_EQ(attributes.tag("PartsCount"), "2");
    EXPECT_EQ(attributes.tag("PartNumber"), "2");
    EXPECT_EQ(attributes.tag("Size"), std::to_string(last.size()));
    EXPECT_EQ(code(ask("DELETE", "/bucket/large?uploadId=" + id)), "404 NoSuchUpload");
  }
}

TEST_F(S3ServiceTest, CopiesWithConditionsAndDirectives) {
  const std::string etag =
      ask("PUT", "/bucket/a%20b", "text", {{"Content-Type", "t/x"}, {"x-amz-tagging", "k=v"}})
          .header("ETag");
  const http::Headers::Field source{"x-amz-copy-source", "/bucket/a%20b"};
  EXPECT_EQ(ask("PUT", "/bucket/copy", "", {source}).tag("ETag"),
            "&quot;1cb251ec0d568de6a929b520c4aed8d1&quot;");
  EXPECT_EQ(ask("GET", "/bucket/copy").header("Content-Type"), "t/x");
  EXPECT_EQ(ask("GET", "/bucket/copy?tagging").tag("Value"), "v");
  ask("PUT", "/bucket/copy", "",
      {source, {"x-amz-metadata-directive", "REPLACE"}, {"Content-Type", "n/w"}});
  EXPECT_EQ(ask("GET", "/bucket/copy").header("Content-Type"), "n/w");
  EXPECT_EQ(code(ask("PUT", "/bucket/c", "", {source, {"x-amz-copy-source-if-match", "\"x\""}})),
            "412 PreconditionFailed");
  EXPECT_EQ(code(ask("PUT", "/bucket/c", "", {source, {"x-amz-copy-source-if-none-match", etag}})),
            "412 PreconditionFailed");
  EXPECT_EQ(code(ask("PUT", "/bucket/a%20b", "", {source})), "400 InvalidRequest")
      << "onto itself, changing nothing";
  EXPECT_EQ(code(ask("PUT", "/bucket/c", "", {{"x-amz-copy-source", "/bucket/none"}})),
            "404 NoSuchKey");
  EXPECT_EQ(code(ask("PUT", "/bucket/c", "", {{"x-amz-copy-source", "/bucket/%"}})),
            "400 InvalidArgument");
  EXPECT_EQ(ask("PUT", "/bucket/c", "", {source, {"x-amz-checksum-algorithm", "SHA1"}})
                .tag("ChecksumSHA1"),
            checksum_base64(ChecksumKind::kSha1, "text"));
  const std::string id = start_upload("/bucket/joined");
  const Reply part = ask("PUT", "/bucket/joined?partNumber=1&uploadId=" + id, "",
                         {source, {"x-amz-copy-source-range", "bytes=1-2"}});
  EXPECT_EQ(part.status, 200);
  ask("POST", "/bucket/joined?uploadId=" + id,
      "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>" + part.tag("ETag") +
          "</ETag></Part></CompleteMultipartUpload>");
  EXPECT_EQ(ask("GET", "/bucket/joined").body, "ex");
}

TEST_F(S3ServiceTest, ListsInBothVersionsWithControlCharactersWrittenSafely) {
  for (const char* key : {"a%01b", "d/1", "d/2", "e%26%3C"})
    ask("PUT", std::string{"/bucket/"} + key, "x");
  const Reply plain = ask("GET", "/bucket?list-type=2");
  EXPECT_NE(plain.body.find("<Key>a&#x1;b</Key>"), std::string::npos);
  EXPECT_NE(plain.body.find("<Key>e&amp;&lt;</Key>"), std::string::npos);
  const Reply encoded =
      ask("GET", "/bucket?list-type=2&encoding-type=url&delimiter=/&fetch-owner=true");
  EXPECT_NE(encoded.body.find("<Key>a%01b</Key>"), std::string::npos);
  EXPECT_EQ(encoded.tag("KeyCount"), "3");
  EXPECT_NE(encoded.body.find("<Owner>"), std::string::npos);
  const Reply page = ask("GET", "/bucket?delimiter=/&max-keys=2");
  EXPECT_EQ(page.tag("NextMarker"), "d/");
  EXPECT_EQ(ask("GET", "/bucket?delimiter=/&marker=d/").tag("Key"), "e&amp;&lt;");
  EXPECT_EQ(ask("GET", "/bucket?marker=d/1").tag("Key"), "d/2");
  EXPECT_EQ(ask("GET", "/bucket?list-type=2&max-keys=0").tag("IsTruncated"), "false");
}

TEST_F(S3ServiceTest, ServesWhatIsAskedAboutBuckets) {
  EXPECT_EQ(ask("PUT", "/other",
                "<CreateBucketConfiguration "
                "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><LocationConstraint>eu-west-1</"
                "LocationConstraint></CreateBucketConfiguration>")
                .status,
            200);
  EXPECT_EQ(ask("HEAD", "/other").header("x-amz-bucket-region"), "eu-west-1");
  EXPECT_NE(ask("GET", "/bucket?location").body.find(">us-west-2</LocationConstraint>"),
            std::string::npos);
  EXPECT_EQ(ask("GET", "/bucket?versioning").status, 200);
  EXPECT_EQ(ask("GET", "/").tag("Name"), "bucket");
  EXPECT_EQ(ask("HEAD", "/bucket", "", {{"x-amz-expected-bucket-owner", "000000000000"}}).status,
            200);
  EXPECT_EQ(ask("HEAD", "/bucket", "", {{"x-amz-expected-bucket-owner", "111111111111"}}).status,
            403);
  ask("PUT", "/other/key", "x");
  EXPECT_EQ(code(ask("DELETE", "/other")), "409 BucketNotEmpty");
  const Reply removed =
      ask("POST", "/other?delete",
          "<Delete><Object><Key>key</Key></Object><Object><Key>none&#x2F;</Key></Object></Delete>");
  EXPECT_EQ(removed.tag("Key"), "key");
  EXPECT_EQ(ask("DELETE", "/other").status, 204);
  EXPECT_EQ(ask("HEAD", "/other").status, 404);
}

TEST_F(S3ServiceTest, KeepsTags) {
  ask("PUT", "/bucket/key", "x");
  EXPECT_EQ(
      ask("PUT", "/bucket/key?tagging",
          "<Tagging><TagSet><Tag><Key>a b</Key><Value>1&amp;2</Value></Tag></TagSet></Tagging>")
          .status,
      200);
  EXPECT_EQ(ask("GET", "/bucket/key?tagging").tag("Key"), "a b");
  EXPECT_EQ(ask("GET", "/bucket/key?tagging").tag("Value"), "1&amp;2");
  EXPECT_EQ(ask("GET", "/bucket/key").header("x-amz-tagging-count"), "1");
  EXPECT_EQ(ask("DELETE", "/bucket/key?tagging").status, 204);
  EXPECT_EQ(ask("GET", "/bucket/key?tagging").tag("Key"), "(none)");
  const Reply attributes =
      ask("GET", "/bucket/key?attributes", "", {{"x-amz-object-attributes", "ObjectSize,ETag"}});
  EXPECT_EQ(attributes.tag("ObjectSize"), "1");
}

TEST_F(S3ServiceTest, RefusesAsS3DoesWhatTheSignatureCheckRefused) {
  const http::RequestHead head{
      .method = "GET", .target = "/bucket/key", .headers = {}, .content_length = 0, .peer = {}};
  const http::Response refused = service_->refuse(
      head, Error{Code::kUnauthenticated, "SignatureDoesNotMatch: the signature is wrong"});
  EXPECT_EQ(refused.status, 403);
  EXPECT_NE(std::get<std::string>(refused.body).find("<Code>SignatureDoesNotMatch</Code>"),
            std::string::npos);
}

}  // namespace
}  // namespace atelier::objects
