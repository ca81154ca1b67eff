// What the tests of the server share.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>

#include "http/server.h"
#include "http/testing.h"

namespace atelier::http::testing {

inline Response text(std::string body, int status = 200) {
  Response response;
  response.status = status;
  response.body = std::move(body);
  return response;
}

inline FunctionHandler echo() {
  return collecting([](const RequestHead& head, const std::string& body) {
    return text(head.method + " " + head.target + " " + body);
  });
}

inline Server started(Handler& handler, ServerOptions options = {}) {
  Result<Server> server = Server::start(options, handler);
  EXPECT_TRUE(server);
  return *std::move(server);
}

inline std::string pattern(std::size_t size) {
  std::string bytes(size, '\0');
  std::uint32_t state = 1;
  for (char& c : bytes) {
    state = state * 1664525u + 1013904223u;
    c = static_cast<char>(state >> 24);
  }
  return bytes;
}

}  // namespace atelier::http::testing
