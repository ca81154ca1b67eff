// The embedded S3 without a network, for tests: requests as values.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "base/file.h"
#include "base/time.h"
#include "objects/s3_service.h"

namespace atelier::objects::testing {

class OwnClock final : public Clock {
 public:
  [[nodiscard]] Time now() const override { return now_; }
  [[nodiscard]] std::chrono::steady_clock::time_point steady() const override { return {}; }
  Time now_ = from_epoch_milliseconds(1'764'486'000'500);  // 2025-11-30T07:00:00.5Z
};

struct Reply {
  int status = 0;
  http::Headers headers;
  std::string body;
  [[nodiscard]] std::string header(std::string_view name) const {
    return std::string{headers.find(name).value_or("")};
  }
  // What is between <tag> and </tag>, the first time.
  [[nodiscard]] std::string tag(const std::string& name) const {
    const std::size_t start = body.find("<" + name + ">");
    const std::size_t end = body.find("</" + name + ">");
    if (start == std::string::npos || end == std::string::npos) return "(none)";
    return body.substr(start + name.size() + 2, end - start - name.size() - 2);
  }
};

class S3ServiceFixture : public ::testing::Test {
 protected:
  using Reply = testing::Reply;
  S3ServiceFixture() { EXPECT_EQ(ask("PUT", "/bucket").status, 200); }

  Reply ask(const std::string& method, const std::string& target, const std::string& body = {},
            http::Headers headers = {}, http::Payload payload = http::Payload::kUnsigned) {
    http::RequestHead head{.method = method,
                           .target = target,
                           .headers = std::move(headers),
                           .content_length = body.size(),
                           .peer = {}};
    http::Verified caller;
    caller.principal.authority = access::Authority::everything();
    caller.payload = payload;
    const std::unique_ptr<http::Exchange> exchange = service_->begin(head, caller);
    // In two pieces, as a network may bring them.
    const std::size_t half = body.size() / 2;
    const auto feed = [&](std::string_view piece) {
      return piece.empty() ||
             exchange->on_body(std::as_bytes(std::span{piece.data(), piece.size()}));
    };
    if (exchange->wants_body() && feed(std::string_view{body}.substr(0, half)))
      feed(std::string_view{body}.substr(half));
    http::Response response = exchange->finish();
    Reply reply{response.status, response.headers, {}};
    if (const auto* text = std::get_if<std::string>(&response.body)) {
      reply.body = *text;
    } else {
      const auto& slice = std::get<http::FileSlice>(response.body);
      reply.body.resize(slice.length);
      EXPECT_EQ(
          pread(slice.fd.get(), reply.body.data(), slice.length, static_cast<off_t>(slice.offset)),
          static_cast<ssize_t>(slice.length));
    }
    EXPECT_TRUE(method != "HEAD" || reply.body.empty());
    return reply;
  }
  std::string code(const Reply& reply) {
    return std::to_string(reply.status) + " " + reply.tag("Code");
  }
  std::string start_upload(const std::string& target, http::Headers headers = {}) {
    return ask("POST", target + "?uploads", "", std::move(headers)).tag("UploadId");
  }

  OwnClock clock_;
  TempFolder folder_ = *TempFolder::create();
  std::unique_ptr<S3Service> service_ =
      S3Service::open(folder_.path(), clock_, "us-west-2").value();
};

}  // namespace atelier::objects::testing
