// What a job needs in /opt/ml before its program starts: the data of its channels and the source
// code of its script. Each call may be repeated on a fresh tree.
#pragma once

#include <filesystem>
#include <functional>

#include "agent/job_log.h"
#include "agent/ml_tree.h"
#include "agent/script_mode.h"
#include "agent/spec.h"
#include "agent/supervisor.h"
#include "base/result.h"
#include "objects/object_store.h"

namespace atelier::agent {

// The SDK v3 ships a job's code and its own drivers as channels: the command makes them executable,
// and pip builds in them. Their files are the program's, so never links into the shared cache.
bool belongs_to_program(const AgentSpec& spec, const ChannelSpec& channel);

// All of it outlives the inputs. Not safe from threads.
struct JobInputs {
  const AgentSpec& spec;
  const std::filesystem::path& folder;  // of the job
  MlTree& tree;
  JobLog& log;
  const StopRequest& stop;
  std::function<objects::ObjectStore&()> store;  // made when it is first needed

  // Copies the channel to /opt/ml/input/data/NAME; true when the cache got something new.
  // kCancelled once a stop is asked for; any other message is the job's FailureReason.
  Result<bool> fill(const ChannelSpec& channel) const;
  // After the channels are filled: makes what the cache got survive a power cut. Takes as long as
  // the disk does; from a thread of its own.
  Result<void> sync_cache() const;
  // Unpacks the source of a script to /opt/ml/code. Messages without a prefix.
  Result<void> fetch_source(const ScriptSource& source) const;
};

}  // namespace atelier::agent
