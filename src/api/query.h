// AWS's Query protocol, which STS and IAM speak: a form goes in, XML comes out.
#pragma once

#include <string>
#include <string_view>

#include "api/reply.h"
#include "api/shapes.h"

namespace atelier::api {

struct QueryCall {
  std::string action;
  json::value input;  // an object of the fields as strings; validate() has not seen it yet
};

// Reads "Action=GetRole&Version=2010-05-08&RoleName=x". kInvalidArgument when a field is broken,
// Action is missing, or there are more than 1,000 fields.
Result<QueryCall> parse_query_call(std::string_view form);

// The fields of a form as the input that `shape` describes: "Dimensions.member.2.Name=x" becomes
// the Name of the second element of Dimensions; numbers, booleans and times (ISO 8601) become such,
// and a text that is none stays a text, for validate() to refuse. Fields that the shape lacks are
// left out.
json::value shape_query_input(const json::value& fields, const Shape& shape);

// The reply's document: <GetRoleResponse><GetRoleResult>...</GetRoleResult>...
std::string query_reply(const ServiceModel& service, const Operation& operation,
                        const json::object& output, std::string_view request_id);
// <ErrorResponse>; an error with a status below 500 is the sender's.
std::string query_error(std::string_view xml_namespace, const ApiError& error,
                        std::string_view request_id);

}  // namespace atelier::api
