// What an operation answers with, before a protocol gives it a form: the output as the model has
// it, or an error that clients know by its code.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <variant>

#include "base/error.h"
#include "base/json.h"

namespace atelier::api {

struct ApiError {
  int status = 400;
  std::string code;  // "ValidationException"
  std::string message;
};

// An output as JSON already: valid UTF-8, shared with whoever keeps it. Of services that are spoken
// to in JSON alone.
struct RenderedJson {
  std::shared_ptr<const std::string> text;
};

// An object of the operation's output shape. Timestamps are seconds since 1970 as numbers.
using Outcome = std::variant<json::object, ApiError, RenderedJson>;

ApiError validation_error(std::string message);
ApiError not_served(std::string_view service_label, std::string_view operation);
// A failed call of a part below, in SageMaker's terms: kInvalidArgument is a ValidationException,
// kResourceExhausted ResourceLimitExceeded, and so on. What only SageMaker says (ResourceInUse, a
// job that is not there) is for the handler to say.
ApiError from_error(const Error& error);

}  // namespace atelier::api
