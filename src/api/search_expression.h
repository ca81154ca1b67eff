// The expressions of SageMaker's Search: what they ask of a resource, as a pure function of its
// document (the JSON that Search shows of it).
//
//   const SearchExpression expression = TRY(SearchExpression::read(input, *shape));
//   expression.matches(document);   // {"TrainingJobStatus": "Completed", ...}
//
// A property is a path of members ("InputDataConfig.ChannelName"; of a list any element counts), or
// Metrics.NAME, HyperParameters.NAME, Environment.NAME, Tags.KEY. Numbers compare as numbers, times
// as times ("2026-11-30T07:00:00Z" or seconds since 1970), texts as texts, with case.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "api/shapes.h"
#include "base/json.h"
#include "base/result.h"

namespace atelier::api {

// The values that a document has of a property; empty when it has none.
std::vector<json::value> property_values(const json::value& document, std::string_view property);

// Whether `shape` (of the resource) can have such a property.
bool has_property(const Shape& shape, std::string_view property);

// All properties of the shape that have one scalar value, as paths without numbers.
std::vector<std::string> property_names(const Shape& shape);

class SearchExpression {
 public:
  // Of a Search request that is valid by its model. kInvalidArgument says what is wrong: a property
  // that `resource` cannot have, an operator that needs a value, more than kMostConditions.
  static Result<SearchExpression> read(const json::value& request, const Shape& resource);

  [[nodiscard]] bool matches(const json::value& document) const;

  static constexpr std::size_t kMostConditions = 100;

 private:
  using Condition = std::function<bool(const json::value& document)>;
  friend class ExpressionReader;
  std::vector<Condition> all_;
};

}  // namespace atelier::api
