// What the real botocore signs, we accept; what is changed after it signed, we refuse.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <map>

#include "base/hash.h"
#include "base/json.h"
#include "http/memory_key_store.h"
#include "http/sigv4.h"

namespace atelier::http {
namespace {

struct Case {
  std::string name;
  RequestHead head;
  std::string body;
};

const std::map<std::string, Credentials> kKeys = {
    {"AKIDPLAIN", {"AKIDPLAIN", "secret/plain+key", ""}},
    {"ASIASESSION", {"ASIASESSION", "secret", "FwoGZXIvYXdzEA//token+with/odd=="}}};

std::string run_script() {
  const std::string command =
      std::string{"python3 "} + ATELIER_HTTP_SOURCE "/sign_with_botocore.py";
  FILE* pipe = popen(command.c_str(), "r");
  std::string text;
  char bytes[65536];
  std::size_t got;
  while ((got = fread(bytes, 1, sizeof bytes, pipe)) > 0) text.append(bytes, got);
  EXPECT_EQ(pclose(pipe), 0);
  return text;
}

Case read_case(std::string_view line) {
  const json::value value = *parse_json(line);
  Case made;
  made.name = *find_string(value, "name");
  made.head.method = *find_string(value, "method");
  made.head.target = *find_string(value, "target");
  for (const json::value& field : *find_array(value, "headers")) {
    made.head.headers.add(field.at(0).as_string().c_str(), field.at(1).as_string().c_str());
  }
  made.body = *from_base64(*find_string(value, "body"));
  made.head.content_length = made.body.size();
  return made;
}

struct SigV4Botocore : testing::Test {
  static std::vector<Case> cases;
  MemoryKeyStore keys;
  Time now = system_clock().now();

  static void SetUpTestSuite() {
    const std::string text = run_script();
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = text.find('\n', at);
      cases.push_back(read_case(std::string_view{text}.substr(at, end - at)));
      at = end + 1;
    }
  }
  SigV4Botocore() {
    for (const auto& [name, credentials] : kKeys) keys.put({credentials, {}, {}});
  }

  Result<Verified> check(const RequestHead& head, const std::string& body) const {
    return verify(head, keys, now, sha256_hex(body));
  }
  Result<void> read_body(const Case& one) const {
    const Verified verified = TRY(check(one.head, one.body));
    PayloadReader reader{verified, decoded_length(one.head)};
    TRY(reader.feed(std::as_bytes(std::span{one.body}), [](auto) -> Result<void> { return {}; }));
    return reader.finish();
  }
};
std::vector<Case> SigV4Botocore::cases;

TEST_F(SigV4Botocore, EveryRequestThatItSignsIsAcceptedWithItsBody) {
  ASSERT_GT(cases.size(), 400u);
  std::map<Payload, int> payloads;
  for (const Case& one : cases) {
    const Result<Verified> verified = check(one.head, one.body);
    ASSERT_TRUE(verified) << one.name << "\n" << verified.error().message;
    ++payloads[verified->payload];
    if (one.body.empty() && verified->payload == Payload::kUnsigned) continue;
    const Result<void> read = read_body(one);
    ASSERT_TRUE(read) << one.name << "\n" << read.error().message;
  }
  EXPECT_GT(payloads[Payload::kUnsigned], 0);
  EXPECT_GT(payloads[Payload::kSha256], 0);
  EXPECT_GT(payloads[Payload::kChunkedUnsignedTrailer], 0);
}

TEST_F(SigV4Botocore, ARequestChangedAfterItSignedIsRefused) {
  for (const Case& one : cases) {
    RequestHead other = one.head;
    other.method = other.method == "GET" ? "PUT" : "GET";
    EXPECT_FALSE(check(other, one.body)) << one.name;
    other = one.head;
    other.target.insert(1, "x");
    EXPECT_FALSE(check(other, one.body)) << one.name;
    other = one.head;
    other.target += other.target.find('?') == std::string::npos ? "?acl" : "&acl=";
    if (one.head.target.find("acl") == std::string::npos) {
      EXPECT_FALSE(check(other, one.body)) << one.name;
    }
    other = one.head;
    other.headers.add("x-amz-meta-added", "1");
    EXPECT_FALSE(check(other, one.body)) << one.name;
  }
}

TEST_F(SigV4Botocore, OurSignatureOfTheSameRequestIsTheSame) {
  int compared = 0;
  for (const Case& one : cases) {
    const auto theirs = one.head.headers.find("authorization");
    const auto date = one.head.headers.find("x-amz-date");
    if (!theirs || !date) continue;
    const Verified verified = *check(one.head, one.body);
    const std::string_view credential = theirs->substr(theirs->find("Credential=") + 11);
    const Credentials& credentials =
        kKeys.at(std::string{credential.substr(0, credential.find('/'))});
    // Those that it signed: others were added after it.
    const std::string_view names = theirs->substr(theirs->find("SignedHeaders=") + 14);
    const std::string signed_names = ";" + std::string{names.substr(0, names.find(','))} + ";";
    Headers headers;
    for (const auto& [name, value] : one.head.headers.fields()) {
      std::string lower = ";" + name + ";";
      for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      if (signed_names.find(lower) != std::string::npos) headers.add(name, value);
    }
    const std::string hash{
        headers.find("x-amz-content-sha256").value_or(std::string_view{sha256_hex(one.body)})};
    sign(one.head.method, one.head.target, headers, hash, credentials, verified.region,
         verified.service, *parse_iso8601(*date));
    EXPECT_EQ(*headers.find("authorization"), *theirs) << one.name;
    ++compared;
  }
  EXPECT_GT(compared, 200);
}

}  // namespace
}  // namespace atelier::http
