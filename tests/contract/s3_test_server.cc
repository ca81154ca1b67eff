// The embedded S3 alone on a port: `s3_test_server FOLDER [LISTEN]` prints its address and serves
// until its input ends. Keys: testkey / testsecret.
#include <cstdio>
#include <iostream>
#include <string>

#include "objects/testing.h"

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s FOLDER [ADDRESS:PORT]\n", argv[0]);
    return 2;
  }
  atelier::http::ServerOptions options;
  options.worker_threads = 32;
  if (argc > 2) options.listen = argv[2];
  const atelier::objects::testing::EmbeddedS3 server{argv[1], options};
  std::cout << "ready " << server.endpoint().url << std::endl;
  for (std::string line; std::getline(std::cin, line);) continue;
  return 0;
}
