#include "api/operations.h"

namespace atelier::api {
namespace {

struct Entry {
  std::string_view signing_name, operation;
  Handler handler;
};

constexpr Entry kHandlers[] = {
    {"sagemaker", "CreateTrainingJob", create_training_job},
    {"sagemaker", "DescribeTrainingJob", describe_training_job},
    {"sagemaker", "ListTrainingJobs", list_training_jobs},
    {"sagemaker", "StopTrainingJob", stop_training_job},
    {"sagemaker", "UpdateTrainingJob", update_training_job},
    {"sagemaker", "DeleteTrainingJob", delete_training_job},
    {"sagemaker", "Search", search},
    {"sagemaker", "GetSearchSuggestions", get_search_suggestions},
    {"sagemaker", "AddTags", add_tags},
    {"sagemaker", "ListTags", list_tags},
    {"sagemaker", "DeleteTags", delete_tags},
    {"logs", "DescribeLogGroups", describe_log_groups},
    {"logs", "DescribeLogStreams", describe_log_streams},
    {"logs", "FilterLogEvents", filter_log_events},
    {"logs", "GetLogEvents", get_log_events},
    {"atelier", "InterruptTrainingJob", interrupt_training_job},
    {"atelier", "DescribeTrainingJobCost", describe_training_job_cost},
    {"atelier", "ListTrainingJobCosts", list_training_job_costs},
    {"sts", "GetCallerIdentity", get_caller_identity},
    {"iam", "GetRole", get_role},
    {"iam", "ListRoles", list_roles},
    {"iam", "SimulatePrincipalPolicy", simulate_principal_policy},
    {"monitoring", "GetMetricStatistics", get_metric_statistics},
    {"monitoring", "GetMetricData", get_metric_data},
    {"monitoring", "ListMetrics", list_metrics},
};

}  // namespace

Handler find_handler(std::string_view signing_name, std::string_view operation) {
  for (const Entry& entry : kHandlers) {
    if (entry.signing_name == signing_name && entry.operation == operation) return entry.handler;
  }
  return nullptr;
}

}  // namespace atelier::api
