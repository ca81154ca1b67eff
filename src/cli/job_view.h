// How the command line shows a training job (an answer of DescribeTrainingJob).
#pragma once

#include <boost/json/fwd.hpp>
#include <string>

namespace atelier::cli {

// States with their durations, final metrics, what it took, where the model is.
void print_job_summary(const boost::json::value& job);
// An answer of DescribeTrainingJobCost, below it.
void print_job_cost(const boost::json::value& cost);

// kOk, kFailed or kStopped.
int exit_code_for_job(const boost::json::value& job);

}  // namespace atelier::cli
