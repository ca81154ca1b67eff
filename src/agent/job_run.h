// One job from its folder to its last event: the steps of an agent, without the process around it.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>

#include "agent/spec.h"
#include "base/result.h"
#include "base/time.h"
#include "objects/object_store.h"

namespace atelier::agent {

// The store of an endpoint, all of whose calls end as kCancelled once `cancelled` says so.
using StoreFactory = std::function<std::unique_ptr<objects::ObjectStore>(
    const objects::S3Endpoint&, std::function<bool()> cancelled)>;

// The caller holds the folder's lock. Whatever the journal says is done is not done again; a
// program never runs twice. An Error means that not even the journal could be written.
Result<void> run_job(const std::filesystem::path& job_folder, const StoreFactory& make_store,
                     const Clock& clock);

}  // namespace atelier::agent
