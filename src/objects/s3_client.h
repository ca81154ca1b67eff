// The S3 client: our signer over libcurl (http/client.h), path-style addresses.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "base/time.h"
#include "http/sigv4.h"
#include "objects/object_store.h"

namespace atelier::objects {

struct S3Endpoint {
  std::string url{};  // "http://127.0.0.1:7480"
  std::string region = "us-west-2";
  http::Credentials credentials{};
  std::string ca_file{};
  // A file whose first line is the address now, for a server that may come back on another port
  // (DATA_DIR/endpoint); read again whenever the server does not answer. Empty: url stays.
  std::string url_file{};
};

struct S3ClientOptions {
  unsigned max_connections = 32;
  unsigned attempts = 5;  // of each request, with full jitter between them
  std::uint64_t part_bytes = std::uint64_t{16} << 20;
  // How long a try waits for a server that nobody answers for, without counting as a try. 0: not.
  std::chrono::seconds patience{0};
  // Asked before each try, between the pieces of a body that is read, in waits, and about once a
  // second meanwhile; once it is true every call ends as kCancelled. From many threads.
  std::function<bool()> cancelled{};
  // Called once for each such wait, when it begins.
  std::function<void(std::string_view words)> on_unreachable{};
  // What requests are signed by, until a server says that it is wrong.
  const Clock* clock = &system_clock();
  // How the pauses between tries pass.
  std::function<void(std::chrono::duration<double, std::milli>)> sleep = [](auto pause) {
    std::this_thread::sleep_for(pause);
  };
};

std::unique_ptr<ObjectStore> make_s3_client(const S3Endpoint& endpoint,
                                            const S3ClientOptions& options = {});

}  // namespace atelier::objects
