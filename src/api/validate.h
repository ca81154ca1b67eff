// Checks a request by the service model, and cuts values to what the model knows.
//
//   if (std::optional<ApiError> error = validate(body, *operation->input)) return *error;
//   const json::value input = project(body, *operation->input);
//
// A wrong type is a SerializationException; limits, enums, patterns and missing members are one
// ValidationException that counts them all and spells out the first ten, worded as AWS words them.
// Members that the model does not know are ignored, and null is the same as absent.
#pragma once

#include <optional>

#include "api/reply.h"
#include "api/shapes.h"
#include "base/json.h"

namespace atelier::api {

std::optional<ApiError> validate(const json::value& input, const Shape& shape);

// The part of `value` that `shape` has, without nulls, integers as integers. A value whose type is
// not the shape's is left out, so what comes back always fits the shape (but for its limits).
json::value project(const json::value& value, const Shape& shape,
                    const json::storage_ptr& storage = {});

}  // namespace atelier::api
