// Brings a job's results to S3: /opt/ml/model and /opt/ml/output/data. A second stop ends it as
// kCancelled (in the store that it is given: job_run.cc), and packing that takes too long as
// kDeadlineExceeded. An upload has no such limit: it may have to wait for a server that is away.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "agent/archive.h"
#include "agent/ml_tree.h"
#include "agent/spec.h"
#include "agent/supervisor.h"
#include "base/result.h"
#include "objects/object_store.h"

namespace atelier::agent {

class Delivery {
 public:
  // `trees` are those of all instances, the first one's first; `scratch` holds the archive on its
  // way, and each may be packed for `packing_time`.
  Delivery(objects::ObjectStore& store, const AgentSpec& spec, std::vector<const MlTree*> trees,
           std::filesystem::path scratch, const StopRequest& stop,
           std::chrono::seconds packing_time)
      : store_(store),
        spec_(spec),
        trees_(std::move(trees)),
        scratch_(std::move(scratch)),
        stop_(stop),
        packing_time_(packing_time) {}

  // {S3OutputPath}/{job}/output/model.tar.gz, or its files under output/model/. An empty model is
  // delivered too.
  Result<void> model();
  // .../output.tar.gz, or its files under output/data/; nothing when there are none.
  Result<void> output();
  // Files of an instance that have the name of another one's, which is delivered instead.
  [[nodiscard]] const std::vector<std::string>& left_out() const { return left_out_; }

 private:
  [[nodiscard]] Result<MergedTrees> list(const std::string& folder) const;
  Result<void> archive(const std::string& folder, const std::string& name);
  Result<void> files(const std::string& folder, const std::string& name);
  [[nodiscard]] Result<objects::Location> place(const std::string& name) const;

  objects::ObjectStore& store_;
  const AgentSpec& spec_;
  std::vector<const MlTree*> trees_;
  std::filesystem::path scratch_;
  const StopRequest& stop_;
  std::chrono::seconds packing_time_;
  std::vector<std::string> left_out_;
};

struct DeliveryOutcome {
  Result<void> model, output;
  std::vector<std::string> left_out;
};
// Those of all instances of the job, whose first one has `tree`; without a model when the job
// failed.
DeliveryOutcome deliver_results(objects::ObjectStore& store, const AgentSpec& spec,
                                const std::filesystem::path& job_folder, const MlTree& tree,
                                const StopRequest& stop, std::chrono::seconds packing_time,
                                bool with_model);

}  // namespace atelier::agent
