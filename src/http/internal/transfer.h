// One request on its way, as libcurl's callbacks see it.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "http/client.h"
#include "http/internal/curl_library.h"

namespace atelier::http::internal {

using Done = std::function<void(Result<ClientResponse>)>;

struct FreeList {
  void operator()(curl_slist* list) const { curl().slist_free_all(list); }
};
struct FreeEasy {
  void operator()(CURL* easy) const { curl().easy_cleanup(easy); }
};
using Easy = std::unique_ptr<CURL, FreeEasy>;

// What a request is called in a message: never its query, which may hold a signature.
std::string name_of(const ClientRequest& request);

struct Transfer {
  ClientRequest request;
  Done done;
  ClientResponse response;
  Easy easy;
  std::unique_ptr<curl_slist, FreeList> headers;
  std::uint64_t sent = 0;
  int times_sent = 0;
  bool head_ended = false;
  std::chrono::steady_clock::time_point asked{};  // whether it goes on
  std::optional<Error> failure;                   // of a callback, more telling than curl's own
  std::array<char, CURL_ERROR_SIZE> curl_message{};

  [[nodiscard]] std::uint64_t body_size() const {
    return request.body_file ? request.body_file->length : request.body.size();
  }
  Result<void> prepare();
  Result<void> prepare_headers();
  bool called(const std::function<Result<void>()>& callback);
  std::size_t read(char* to, std::size_t room);
  std::size_t write(const char* from, std::size_t size);
  std::size_t header(std::string_view line);
  bool goes_on();
  Result<ClientResponse> outcome(CURLcode code);
};

}  // namespace atelier::http::internal
