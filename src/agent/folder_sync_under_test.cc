// Copies a folder to S3 until it is killed: `folder_sync_under_test URL FOLDER RECORDS S3URI`.
#include <unistd.h>

#include "agent/folder_sync.h"
#include "objects/testing.h"

int main(int, char** argv) {
  using namespace atelier;
  objects::S3Endpoint endpoint;
  endpoint.url = argv[1];
  endpoint.credentials = objects::testing::test_credentials();
  const auto store = objects::make_s3_client(endpoint);
  agent::MlTree tree = agent::MlTree::open(argv[2], {geteuid(), getegid()}).value();
  agent::FolderSyncOptions options;
  options.title = "checkpoints";
  options.records = argv[3];
  options.target = objects::parse_s3_uri(argv[4]).value();
  options.interval = std::chrono::milliseconds{3};
  const auto sync =
      agent::FolderSync::open(*store, tree, "checkpoints", options, [](std::string_view) {
      }).value();
  sync->begin().value();
  while (true) pause();
}
