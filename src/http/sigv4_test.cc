#include "http/sigv4.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "base/hash.h"
#include "http/memory_key_store.h"

namespace atelier::http {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

// The key of every example in the S3 API Reference.
const Credentials kExample{"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", ""};
constexpr std::string_view kEmpty =
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

Time at(std::string_view text) { return *parse_iso8601(text); }

struct SigV4 : testing::Test {
  MemoryKeyStore keys;
  Time now = at("20130524T000000Z");

  SigV4() { keys.put({kExample, {kExample.access_key, "123456789012", "arn:x", "u"}, {}}); }

  static RequestHead head(std::string method, std::string target, Headers headers) {
    RequestHead made;
    made.method = std::move(method);
    made.target = std::move(target);
    made.headers = std::move(headers);
    made.content_length = 0;
    return made;
  }
  RequestHead signed_head(std::string method, std::string target, Headers headers,
                          std::string_view hash = kEmpty, std::string_view service = "s3") const {
    sign(method, target, headers, hash, kExample, "us-east-1", service, now);
    return head(std::move(method), std::move(target), std::move(headers));
  }
  std::string refused(const RequestHead& request) const {
    Result<Verified> verified = verify(request, keys, now);
    if (verified) return "accepted";
    EXPECT_EQ(verified.error().code, Code::kUnauthenticated);
    return verified.error().message;
  }
};

std::string signature(const Headers& headers) {
  const std::string_view text = *headers.find("authorization");
  return std::string{text.substr(text.find("Signature=") + 10)};
}

std::span<const std::byte> bytes(std::string_view text) { return std::as_bytes(std::span{text}); }

// The examples of "Signature Calculations for the Authorization Header: Transferring Payload in a
// Single Chunk" of the S3 API Reference, with the signatures printed there.
TEST_F(SigV4, SignsThePublishedS3Examples) {
  const std::string host = "examplebucket.s3.amazonaws.com";
  Headers get{{"Host", host}, {"Range", "bytes=0-9"}};
  sign("GET", "/test.txt", get, kEmpty, kExample, "us-east-1", "s3", now);
  EXPECT_EQ(signature(get), "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");

  Headers put{{"Host", host},
              {"Date", "Fri, 24 May 2013 00:00:00 GMT"},
              {"x-amz-storage-class", "REDUCED_REDUNDANCY"}};
  sign("PUT", "/test%24file.text", put, sha256_hex("Welcome to Amazon S3."), kExample, "us-east-1",
       "s3", now);
  EXPECT_EQ(signature(put), "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");

  Headers lifecycle{{"Host", host}};
  sign("GET", "/?lifecycle", lifecycle, kEmpty, kExample, "us-east-1", "s3", now);
  EXPECT_EQ(signature(lifecycle),
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");

  Headers list{{"Host", host}};
  sign("GET", "/?max-keys=2&prefix=J", list, kEmpty, kExample, "us-east-1", "s3", now);
  EXPECT_EQ(signature(list), "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");

  EXPECT_TRUE(verify(head("GET", "/test.txt", get), keys, now));
  EXPECT_TRUE(verify(head("PUT", "/test%24file.text", put), keys, now));
  EXPECT_TRUE(verify(head("GET", "/?lifecycle", lifecycle), keys, now));
  EXPECT_TRUE(verify(head("GET", "/?prefix=J&max-keys=2", list), keys, now));
}

// "Authenticating Requests: Using Query Parameters" of the S3 API Reference.
TEST_F(SigV4, PresignsThePublishedExample) {
  const std::string url = presign("GET", "/test.txt", "examplebucket.s3.amazonaws.com", kExample,
                                  "us-east-1", "s3", now, seconds{86400});
  EXPECT_TRUE(url.ends_with(
      "X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"))
      << url;
  const RequestHead request = head("GET", url, {{"Host", "examplebucket.s3.amazonaws.com"}});
  const Result<Verified> verified = verify(request, keys, now);
  ASSERT_TRUE(verified);
  EXPECT_TRUE(verified->presigned);
  EXPECT_EQ(verified->payload, Payload::kUnsigned);
  EXPECT_EQ(verified->principal.account, "123456789012");
  EXPECT_TRUE(verify(request, keys, now + seconds{86400}));
  EXPECT_NE(verify(request, keys, now + seconds{86401}).error().message.find("expired"),
            std::string::npos);
  EXPECT_FALSE(verify(request, keys, now - minutes{16}));
}

// The signing examples of the AWS General Reference, for services that encode the path twice.
TEST_F(SigV4, SignsThePublishedExamplesOfOtherServices) {
  const Credentials credentials{"AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", ""};
  now = at("20150830T123600Z");
  Headers vanilla{{"Host", "example.amazonaws.com"}};
  sign("GET", "/", vanilla, kEmpty, credentials, "us-east-1", "service", now);
  EXPECT_EQ(signature(vanilla), "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31");
  Headers iam{{"Content-Type", "application/x-www-form-urlencoded; charset=utf-8"},
              {"Host", "iam.amazonaws.com"}};
  sign("GET", "/?Action=ListUsers&Version=2010-05-08", iam, kEmpty, credentials, "us-east-1", "iam",
       now);
  EXPECT_EQ(signature(iam), "5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7");
}

RequestHead chunked_example(bool trailer) {
  Headers headers{{"Host", "s3.amazonaws.com"},
                  {"x-amz-date", "20130524T000000Z"},
                  {"x-amz-storage-class", "REDUCED_REDUNDANCY"},
                  {"Content-Encoding", "aws-chunked"},
                  {"x-amz-decoded-content-length", "66560"}};
  std::string names = "content-encoding;";
  if (trailer) {
    headers.add("x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER");
    headers.add("x-amz-trailer", "x-amz-checksum-crc32c");
  } else {
    headers.add("x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD");
    headers.add("Content-Length", "66824");
    names += "content-length;";
  }
  names += "host;x-amz-content-sha256;x-amz-date;x-amz-decoded-content-length;x-amz-storage-class";
  if (trailer) names += ";x-amz-trailer";
  headers.add("Authorization",
              "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"
              "SignedHeaders=" +
                  names + ",Signature=" +
                  (trailer ? "106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e"
                           : "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9"));
  RequestHead head;
  head.method = "PUT";
  head.target = "/examplebucket/chunkObject.txt";
  head.headers = std::move(headers);
  return head;
}

std::string chunk(std::size_t size, std::string_view signature) {
  char line[128];
  std::snprintf(line, sizeof line, "%zx;chunk-signature=%s\r\n", size,
                std::string{signature}.c_str());
  return line + std::string(size, 'a') + (size > 0 ? "\r\n" : "");
}

// "Transferring Payload in Multiple Chunks" of the S3 API Reference.
std::string published_chunks() {
  return chunk(65536, "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648") +
         chunk(1024, "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497") +
         chunk(0, "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9") + "\r\n";
}

// "... Including Trailing Headers": the same upload with a signed checksum after it.
std::string published_trailer(std::string_view checksum = "sOO8/Q==") {
  return chunk(65536, "b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2") +
         chunk(1024, "1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7") +
         chunk(0, "2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992") +
         "x-amz-checksum-crc32c:" + std::string{checksum} +
         "\r\nx-amz-trailer-signature:"
         "d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435\r\n\r\n";
}

// Reads `wire` in pieces of `piece` bytes; the content, or the error.
Result<std::string> read(PayloadReader& reader, std::string_view wire, std::size_t piece) {
  std::string content;
  const PayloadReader::Sink sink = [&](std::span<const std::byte> part) -> Result<void> {
    content.append(reinterpret_cast<const char*>(part.data()), part.size());
    return {};
  };
  while (!wire.empty()) {
    TRY(reader.feed(bytes(wire.substr(0, piece)), sink));
    wire.remove_prefix(std::min(piece, wire.size()));
  }
  TRY(reader.finish());
  return content;
}

TEST_F(SigV4, ReadsThePublishedChunkedUploadHoweverItIsCut) {
  const RequestHead request = chunked_example(false);
  const Result<Verified> verified = verify(request, keys, now);
  ASSERT_TRUE(verified);
  EXPECT_EQ(verified->payload, Payload::kChunkedSigned);
  EXPECT_EQ(decoded_length(request), 66560u);
  for (const std::size_t piece : {1, 7, 4096, 1 << 20}) {
    PayloadReader reader{*verified, 66560};
    EXPECT_EQ(*read(reader, published_chunks(), piece), std::string(66560, 'a'));
  }
}

TEST_F(SigV4, ReadsThePublishedChunkedUploadWithASignedTrailer) {
  const Result<Verified> verified = verify(chunked_example(true), keys, now);
  ASSERT_TRUE(verified);
  for (const std::size_t piece : {1, 100'000}) {
    PayloadReader reader{*verified, 66560};
    EXPECT_EQ(*read(reader, published_trailer(), piece), std::string(66560, 'a'));
    EXPECT_EQ(reader.trailers().find("x-amz-checksum-crc32c"), "sOO8/Q==");
  }
  PayloadReader reader{*verified, 66560};
  const Result<std::string> changed = read(reader, published_trailer("sOO8/Q=!"), 4096);
  EXPECT_EQ(changed.error().code, Code::kUnauthenticated);
}

TEST_F(SigV4, AChangedCutOrReorderedChunkedBodyIsRefused) {
  const Verified verified = *verify(chunked_example(false), keys, now);
  const std::string whole = published_chunks();
  std::string changed = whole;
  changed[1000] = 'b';
  PayloadReader first{verified, 66560};
  EXPECT_EQ(read(first, changed, 4096).error().code, Code::kUnauthenticated);
  PayloadReader second{verified, 66560};
  EXPECT_EQ(read(second, std::string_view{whole}.substr(0, 60'000), 4096).error().code,
            Code::kDataLoss);
  PayloadReader third{verified, 66560};
  EXPECT_FALSE(read(third, whole + "more", 4096));
  PayloadReader fourth{verified, 66559};
  EXPECT_EQ(read(fourth, whole, 4096).error().code, Code::kInvalidArgument);
  PayloadReader fifth{verified, std::nullopt};
  EXPECT_EQ(read(fifth, whole, 4096).error().code, Code::kInvalidArgument);
}

Verified unsigned_trailer() {
  Verified verified;
  verified.payload = Payload::kChunkedUnsignedTrailer;
  return verified;
}

TEST(PayloadReader, ReadsUnsignedChunksWithATrailerAsBoto3SendsThem) {
  PayloadReader reader{unsigned_trailer(), 11};
  EXPECT_EQ(
      *read(reader, "5\r\nhello\r\n6\r\n world\r\n0\r\nx-amz-checksum-crc32:DUoRhQ==\r\n\r\n", 3),
      "hello world");
  EXPECT_EQ(reader.trailers().find("x-amz-checksum-crc32"), "DUoRhQ==");
}

TEST(PayloadReader, FramingIsBoundedAndStrict) {
  std::string many = "0\r\n";
  for (int i = 0; i < 17; ++i) many += "a:b\r\n";
  for (const std::string& wire :
       {std::string{"5\r\nhello\r\n0\r\n"}, std::string{"g\r\n"}, std::string{"\r\n"},
        std::string{"-1\r\n"}, std::string{"10000000000000000\r\n"}, std::string{"6\r\nhello\r\n"},
        std::string{"5\r\nhelloX\r\n0\r\n\r\n"}, std::string(300, '0'),
        "0\r\n" + std::string(5000, 'a'), many, std::string{"0\r\n:b\r\n\r\n"}}) {
    PayloadReader reader{unsigned_trailer(), 5};
    EXPECT_FALSE(read(reader, wire, 64)) << wire.substr(0, 40);
  }
}

TEST(PayloadReader, TheSinksErrorIsHandedOn) {
  PayloadReader reader{unsigned_trailer(), 5};
  const Result<void> fed = reader.feed(bytes("5\r\nhello\r\n"), [](auto) -> Result<void> {
    return Error{Code::kResourceExhausted, "disk full"};
  });
  EXPECT_EQ(fed.error().message, "disk full");
}

TEST_F(SigV4, APlainBodyIsCheckedAgainstTheSignedDigest) {
  const RequestHead request =
      signed_head("PUT", "/b/k", {{"Host", "h"}}, sha256_hex("hello"), "s3");
  const Verified verified = *verify(request, keys, now);
  EXPECT_EQ(verified.payload, Payload::kSha256);
  PayloadReader right{verified, 5};
  EXPECT_EQ(*read(right, "hello", 2), "hello");
  PayloadReader wrong{verified, 5};
  EXPECT_EQ(read(wrong, "hellO", 2).error().code, Code::kDataLoss);
  PayloadReader cut{verified, 5};
  EXPECT_EQ(read(cut, "hell", 2).error().code, Code::kDataLoss);
  PayloadReader longer{verified, 4};
  EXPECT_FALSE(read(longer, "hello", 2));
}

TEST_F(SigV4, EveryPartOfTheRequestIsProtected) {
  const RequestHead request =
      signed_head("GET", "/b/k?a=1", {{"Host", "h"}, {"x-amz-meta-a", "1"}, {"Range", "bytes=0-"}});
  ASSERT_EQ(refused(request), "accepted");
  RequestHead other = request;
  other.method = "DELETE";
  EXPECT_TRUE(refused(other).starts_with("SignatureDoesNotMatch"));
  other = request;
  other.target = "/b/k2?a=1";
  EXPECT_TRUE(refused(other).starts_with("SignatureDoesNotMatch"));
  other = request;
  other.target = "/b/k?a=2";
  EXPECT_TRUE(refused(other).starts_with("SignatureDoesNotMatch"));
  for (const char* name : {"Host", "x-amz-meta-a", "Range", "x-amz-content-sha256", "x-amz-date"}) {
    other = request;
    std::string value{*other.headers.find(name)};
    value.back() = value.back() == '1' ? '2' : '1';
    other.headers.set(name, value);
    EXPECT_NE(refused(other), "accepted") << name;
  }
  other = request;
  other.headers.add("x-amz-meta-a", "2");
  EXPECT_TRUE(refused(other).starts_with("SignatureDoesNotMatch"));
}

TEST_F(SigV4, AnUnsignedAmzHeaderOrHostIsRefused) {
  RequestHead request = signed_head("PUT", "/b/k", {{"Host", "h"}});
  request.headers.add("X-Amz-Acl", "public-read");
  EXPECT_NE(refused(request).find("not signed: 'X-Amz-Acl'"), std::string::npos);

  RequestHead hostless = signed_head("GET", "/b/k", {});
  EXPECT_NE(refused(hostless).find("Host"), std::string::npos);

  RequestHead presigned =
      head("GET", presign("GET", "/b/k", "h", kExample, "us-east-1", "s3", now, seconds{60}), {});
  presigned.headers.add("Host", "h");
  presigned.headers.add("x-amz-content-sha256", "UNSIGNED-PAYLOAD");
  EXPECT_EQ(refused(presigned), "accepted");
  presigned.headers.add("x-amz-copy-source", "/b/secret");
  EXPECT_TRUE(refused(presigned).starts_with("AccessDenied"));
}

TEST_F(SigV4, TheClocksMayDifferByFifteenMinutes) {
  const RequestHead request = signed_head("GET", "/b", {{"Host", "h"}});
  EXPECT_TRUE(verify(request, keys, now + minutes{15}));
  EXPECT_TRUE(verify(request, keys, now - minutes{15}));
  for (const auto shift : {seconds{901}, seconds{-901}}) {
    EXPECT_TRUE(
        verify(request, keys, now + shift).error().message.starts_with("RequestTimeTooSkewed"));
  }
}

TEST_F(SigV4, SessionTokensAndExpiryBelongToTheKey) {
  Credentials credentials = kExample;
  credentials.access_key = "ASIA";
  credentials.session_token = "token/+=";
  keys.put({credentials, {}, now + minutes{1}});
  Headers headers{{"Host", "h"}};
  sign("GET", "/b", headers, kEmpty, credentials, "us-east-1", "s3", now);
  const RequestHead request = head("GET", "/b", headers);
  EXPECT_EQ(refused(request), "accepted");
  EXPECT_TRUE(verify(request, keys, now + minutes{1}).error().message.starts_with("ExpiredToken"));
  const std::string url =
      presign("GET", "/b?x=1", "h", credentials, "us-east-1", "s3", now, seconds{60});
  EXPECT_EQ(refused(head("GET", url, {{"Host", "h"}})), "accepted");

  credentials.session_token = "another";
  sign("GET", "/b", headers, kEmpty, credentials, "us-east-1", "s3", now);
  EXPECT_TRUE(refused(head("GET", "/b", headers)).starts_with("InvalidToken"));
  credentials.session_token = "";
  sign("GET", "/b", headers, kEmpty, credentials, "us-east-1", "s3", now);
  EXPECT_TRUE(refused(head("GET", "/b", headers)).starts_with("InvalidToken"));
}

TEST_F(SigV4, BrokenAuthorizationIsNamed) {
  const auto with = [&](std::string text) {
    return refused(head(
        "GET", "/",
        {{"Host", "h"}, {"x-amz-date", "20130524T000000Z"}, {"Authorization", std::move(text)}}));
  };
  EXPECT_TRUE(with("AWS AKID:sig").starts_with("InvalidRequest"));
  EXPECT_TRUE(with("Bearer x").starts_with("InvalidRequest"));
  EXPECT_TRUE(with("AWS4-HMAC-SHA256").starts_with("AuthorizationHeaderMalformed"));
  EXPECT_TRUE(with("AWS4-HMAC-SHA256 Credential=a/20130524/r/s3/aws4_request, SignedHeaders=host")
                  .starts_with("AuthorizationHeaderMalformed"));
  EXPECT_TRUE(with("AWS4-HMAC-SHA256 Credential=a/b, SignedHeaders=host, Signature=1")
                  .starts_with("AuthorizationHeaderMalformed"));
  EXPECT_TRUE(with("AWS4-HMAC-SHA256 Credential=a/20130525/r/s3/aws4_request, "
                   "SignedHeaders=host;x-amz-date, Signature=1")
                  .starts_with("AuthorizationHeaderMalformed"));
  EXPECT_TRUE(with("AWS4-HMAC-SHA256 Credential=a/20130524/r/s3/aws4_request, "
                   "SignedHeaders=host;x-amz-date, Signature=1")
                  .starts_with("InvalidAccessKeyId"));
  EXPECT_TRUE(refused(head("GET", "/", {{"Host", "h"}})).starts_with("AccessDenied"));
}

TEST_F(SigV4, BrokenPresignedQueriesAreNamed) {
  const std::string url = presign("GET", "/k", "h", kExample, "us-east-1", "s3", now, seconds{60});
  const auto with = [&](std::string_view from, std::string_view to) {
    std::string changed = url;
    changed.replace(changed.find(from), from.size(), to);
    return refused(head("GET", changed, {{"Host", "h"}}));
  };
  for (const std::string_view expires : {"Expires=0", "Expires=604801", "Expires=-1", "Expires=",
                                         "Expires=1x", "Expires=99999999999999999999"}) {
    EXPECT_NE(with("Expires=60", expires).find("X-Amz-Expires"), std::string::npos) << expires;
  }
  EXPECT_TRUE(with("Expires=60", "Expires=61").starts_with("SignatureDoesNotMatch"));
  EXPECT_TRUE(with("&X-Amz-Date=", "&X-Amz-Dat=").find("'X-Amz-Date' is missing") !=
              std::string::npos);
  EXPECT_TRUE(with("&X-Amz-Expires=60", "&X-Amz-Expires=60&X-Amz-Expires=60").find("twice") !=
              std::string::npos);
  EXPECT_TRUE(with("SHA256", "SHA1").starts_with("AuthorizationQueryParametersError"));
  RequestHead both = head("GET", url, {{"Host", "h"}, {"Authorization", "AWS4-HMAC-SHA256 x"}});
  EXPECT_TRUE(refused(both).starts_with("InvalidRequest"));
}

TEST_F(SigV4, ADigestOfTheBodyStandsInForTheHeaderThatOtherServicesLackAndIsProtected) {
  const std::string digest = sha256_hex(R"({"TrainingJobName":"a"})");
  const RequestHead request = signed_head("POST", "/", {{"Host", "h"}}, digest, "sagemaker");
  EXPECT_FALSE(request.headers.find("x-amz-content-sha256"));
  EXPECT_EQ(verify(request, keys, now, digest)->service, "sagemaker");
  EXPECT_FALSE(verify(request, keys, now, sha256_hex("other")));
  EXPECT_FALSE(verify(request, keys, now));
}

// "expires" and what else stands in the string that Signature Version 2 signs.
std::string v2_query(std::string_view text, std::string_view query) {
  unsigned char raw[EVP_MAX_MD_SIZE];
  unsigned int length = 0;
  HMAC(EVP_sha1(), kExample.secret_key.data(), static_cast<int>(kExample.secret_key.size()),
       reinterpret_cast<const unsigned char*>(text.data()), text.size(), raw, &length);
  return fmt::format("AWSAccessKeyId={}&Signature={}&{}", kExample.access_key,
                     percent_encode(to_base64({reinterpret_cast<const char*>(raw), length})),
                     query);
}

// One signature is good for one request: parts that run into each other are refused.
TEST_F(SigV4, APresignedUrlOfVersion2CannotBeReadInTwoWays) {
  const std::int64_t expires = now.time_since_epoch() / seconds{1} + 600;
  const auto ask = [&](const std::string& text, const std::string& query,
                       Headers headers = {{"Host", "h"}}) {
    return refused(head("GET", "/b/k?" + v2_query(text, query), std::move(headers)));
  };
  const std::string e = "Expires=" + std::to_string(expires);
  const std::string two = fmt::format("GET\n\n\n{}\nx-amz-a:1\nx-amz-b:2\n/b/k", expires);
  EXPECT_EQ(ask(two, e + "&x-amz-a=1&x-amz-b=2"), "accepted");
  EXPECT_NE(ask(two, e + "&x-amz-a=1%0Ax-amz-b:2"), "accepted");
  EXPECT_NE(ask(two, e, {{"Host", "h"}, {"x-amz-a", "1\nx-amz-b:2"}}), "accepted");
  const std::string type = fmt::format("GET\n\ntext/plain\n{}\n/b/k", expires);
  EXPECT_EQ(ask(type, e + "&content-type=text/plain"), "accepted");
  EXPECT_NE(ask(fmt::format("GET\n\n\n{}\nx-amz-a:b:c\n/b/k", expires), e + "&x-amz-a%3Ab=c"),
            "accepted");
  const std::string parts =
      fmt::format("GET\n\n\n{}\n/b/k?response-content-type=a&response-expires=0", expires);
  EXPECT_EQ(ask(parts, e + "&response-content-type=a&response-expires=0"), "accepted");
  EXPECT_NE(ask(parts, e + "&response-content-type=a%26response-expires%3D0"), "accepted");
  // Longer than one of version 4 may be.
  const std::int64_t late = now.time_since_epoch() / seconds{1} + 7 * 24 * 3600 + 1;
  EXPECT_NE(
      ask(fmt::format("GET\n\n\n{}\n/b/k", late), fmt::format("Expires={}", late)).find("a week"),
      std::string::npos);
}

TEST_F(SigV4, WhatCanBeToldBeforeTheBodyIsTold) {
  const RequestHead good = signed_head("POST", "/", {{"Host", "h"}}, sha256_hex("a body"), "logs");
  EXPECT_TRUE(check_before_body(good, keys, now));
  EXPECT_FALSE(check_before_body(head("POST", "/", {{"Host", "h"}}), keys, now));
  EXPECT_FALSE(check_before_body(good, MemoryKeyStore{}, now));
  EXPECT_FALSE(check_before_body(good, keys, now + minutes{16}));
}

TEST_F(SigV4, IsSignedSeesEveryForm) {
  EXPECT_FALSE(is_signed(head("GET", "/?a=Signature", {{"Host", "h"}})));
  EXPECT_TRUE(is_signed(head("GET", "/", {{"authorization", ""}})));
  EXPECT_TRUE(is_signed(head("GET", "/?X-Amz-Signature=1", {})));
  EXPECT_TRUE(is_signed(head("GET", "/?AWSAccessKeyId=a&Signature=b&Expires=1", {})));
}

}  // namespace
}  // namespace atelier::http
