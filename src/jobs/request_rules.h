// The rules of a CreateTrainingJob request that no service model states, in one place: the API's
// refusals and the notes of DescribeTrainingJob both come from here.
//
//   TRY(check_request(request));   // "This version of Atelier can not honour: MlflowConfig: ..."
#pragma once

#include <boost/json/fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace atelier::jobs {

// `request` is valid by the model. kInvalidArgument names all that no SageMaker would take,
// kUnimplemented all that this version cannot honour.
Result<void> check_request(const boost::json::value& request);

// Tags that come with a create or later: no key twice, none of AWS's own. kInvalidArgument.
Result<void> check_tags(const boost::json::array& tags);

// A sentence for each member of the request that is kept and shown but has no effect here, for the
// job's status message.
std::vector<std::string> request_notes(const boost::json::value& request);

}  // namespace atelier::jobs
