// What a job's own keys may do: exactly what its request names, as a policy. A pure function of the
// body of CreateTrainingJob.
//
// Read: the prefix of each S3 channel (for a manifest: itself, and the objects and listings of its
// bucket), and the archive of a script's source. Write: below TrainingJobName in the paths of
// output, debugger and TensorBoard. Both, and remove: the checkpoints. Nothing else.
#pragma once

#include <string>
#include <string_view>

#include "access/policy.h"
#include "base/result.h"

namespace atelier::jobs {

// kInvalidArgument when the body is not one, or names more than a policy holds.
Result<access::Policy> job_policy(std::string_view request_json);

}  // namespace atelier::jobs
