// The two files of a job's folder that are parsed: spec.json and journal.jsonl, as any bytes.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "agent/journal.h"
#include "agent/spec.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace atelier;
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  const agent::ParsedJournal journal = agent::parse_journal(text);
  if (journal.bytes > size) std::abort();
  const Result<agent::AgentSpec> spec = agent::parse_agent_spec(text);
  // What was understood is written and understood the same again.
  if (spec) {
    const std::string again = agent::to_json(*spec);
    if (agent::to_json(agent::parse_agent_spec(again).value()) != again) std::abort();
  }
  return 0;
}
