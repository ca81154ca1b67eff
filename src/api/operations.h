// The operations that are served, one handler each. A handler gets an input that the service model
// found valid, cut to what the model knows, and gives the output in the model's shape.
#pragma once

#include <string_view>

#include "api/descriptions.h"
#include "api/front_door.h"
#include "api/reply.h"
#include "api/shapes.h"
#include "base/json.h"
#include "http/sigv4.h"

namespace atelier::api {

struct Call {
  const Parts& parts;
  Descriptions& described;
  const http::Principal& caller;
  const Operation& operation;
  const json::value& input;        // an object
  json::storage_ptr storage;       // of the request: lives until the reply is sent
  std::string_view invocation_id;  // amz-sdk-invocation-id: the same for a client's retries
  bool secure = false;             // it came over TLS
};

using Handler = Outcome (*)(const Call& call);

// Null when the operation has no handler here.
Handler find_handler(std::string_view signing_name, std::string_view operation);

// training_change.cc, training_describe.cc, training_list.cc, training_update.cc
Outcome create_training_job(const Call& call);
Outcome describe_training_job(const Call& call);
Outcome list_training_jobs(const Call& call);
Outcome stop_training_job(const Call& call);
Outcome update_training_job(const Call& call);
Outcome delete_training_job(const Call& call);
// tags.cc
Outcome add_tags(const Call& call);
Outcome list_tags(const Call& call);
Outcome delete_tags(const Call& call);
// search.cc
Outcome search(const Call& call);
Outcome get_search_suggestions(const Call& call);
// logs.cc, logs_filter.cc
Outcome describe_log_groups(const Call& call);
Outcome describe_log_streams(const Call& call);
Outcome get_log_events(const Call& call);
Outcome filter_log_events(const Call& call);
// metrics.cc
Outcome get_metric_statistics(const Call& call);
Outcome get_metric_data(const Call& call);
Outcome list_metrics(const Call& call);
// costs.cc
Outcome interrupt_training_job(const Call& call);
Outcome describe_training_job_cost(const Call& call);
Outcome list_training_job_costs(const Call& call);
// identity.cc
Outcome get_caller_identity(const Call& call);
Outcome get_role(const Call& call);
Outcome list_roles(const Call& call);
Outcome simulate_principal_policy(const Call& call);

}  // namespace atelier::api
