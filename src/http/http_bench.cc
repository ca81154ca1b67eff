// What one request costs: signed GETs through the server and verify(), over connections that are
// kept, with a handler that does nothing more. CPU time is that of the server's threads alone.
//
//   http_bench [REQUESTS [CONNECTIONS]]
//
// Prints one JSON line. A plain program: the clock that counts is the server's CPU, which a
// benchmark library does not see.
#include <fmt/core.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include "http/memory_key_store.h"
#include "http/server.h"
#include "http/sigv4.h"
#include "http/testing.h"

using namespace atelier;        // NOLINT
using namespace atelier::http;  // NOLINT

namespace {

double cpu_seconds(int who) {
  rusage usage{};
  getrusage(who, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

std::string signed_request(const Credentials& credentials) {
  Headers headers{{"Host", "127.0.0.1:9000"},
                  {"User-Agent", "Boto3/1.43 md/Botocore#1.43 ua/2.1 os/linux lang/python#3.11"},
                  {"amz-sdk-invocation-id", "7e8b0c1d-6c42-4b0c-9f0a-0a1b2c3d4e5f"},
                  {"amz-sdk-request", "attempt=1"},
                  {"Accept-Encoding", "identity"}};
  const std::string target = "/bucket/train/images/00012345.jpg?x-id=GetObject";
  sign("GET", target, headers, "UNSIGNED-PAYLOAD", credentials, "us-west-2", "s3",
       system_clock().now());
  std::string text = "GET " + target + " HTTP/1.1\r\n";
  for (const auto& [name, value] : headers.fields()) text += name + ": " + value + "\r\n";
  return text + "\r\n";
}

// The peers run in a child, so that the CPU time of this process is the server's.
int drive(std::uint16_t port, const std::string& request, int requests, int connections) {
  std::vector<std::unique_ptr<testing::Peer>> peers;
  for (int i = 0; i < connections; ++i) peers.push_back(std::make_unique<testing::Peer>(port));
  for (int done = 0; done < requests; done += connections) {
    for (const auto& peer : peers) {
      if (!peer->send(request)) return 1;
    }
    for (const auto& peer : peers) {
      if (peer->read_answer().status != 200) return 1;
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const int requests = argc > 1 ? std::atoi(argv[1]) : 100'000;
  const int connections = argc > 2 ? std::atoi(argv[2]) : 16;
  const Credentials credentials{"AKIABENCH", "a secret of forty characters, more or le", ""};
  MemoryKeyStore keys;
  keys.put({credentials, {}, {}});
  testing::FunctionHandler handler{[&](const RequestHead& head) {
    Response response;
    response.status = verify(head, keys, system_clock().now()) ? 200 : 403;
    response.body = "ok";
    return answer(std::move(response));
  }};
  ServerOptions options;
  options.worker_threads = 1;
  Result<Server> server = Server::start(options, handler);
  if (!server) return 2;
  const std::string request = signed_request(credentials);
  const double before = cpu_seconds(RUSAGE_SELF);
  const auto begun = std::chrono::steady_clock::now();
  int outcome = 1;
  if (const pid_t child = fork(); child == 0) {
    _exit(drive(server->port(), request, requests, connections));
  } else {
    waitpid(child, &outcome, 0);
  }
  const double wall =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  const double cpu = cpu_seconds(RUSAGE_SELF) - before;
  fmt::print(
      "{{\"what\": \"signed GETs through server and verify\", \"requests\": {}, "
      "\"connections\": {}, \"wall_requests_per_s\": {:.0f}, \"server_cpu_us_per_request\": "
      "{:.2f}, "
      "\"requests_per_s_of_one_core\": {:.0f}}}\n",
      requests, connections, requests / wall, cpu / requests * 1e6, requests / cpu);
  return outcome == 0 ? 0 : 1;
}
