// `agent_under_test agent --job-folder FOLDER`: run_agent() as a process, for the tests that kill
// it.
#include <cstdio>

#include "agent/spec.h"

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const atelier::Result<void> outcome = atelier::agent::run_agent(argv[3]);
  if (!outcome) std::fprintf(stderr, "%s\n", outcome.error().message.c_str());
  return outcome ? 0 : 1;
}
