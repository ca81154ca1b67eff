// The service models as tables: which operations there are, and the shapes of what the served ones
// take and give. The tables are written at build time by tools/generate_shapes from the models that
// botocore carries; they are constants, so nothing is parsed at start.
//
//   const ServiceModel* sagemaker = find_service("sagemaker");
//   const Operation* describe = find_operation(*sagemaker, "DescribeTrainingJob");
//   describe->input->members[0].name;   // "TrainingJobName"
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace atelier::api {

enum class Kind : std::uint8_t {
  kStructure,
  kList,
  kMap,
  kString,
  kBoolean,
  kInteger,  // 32 bits
  kLong,     // 64 bits
  kFloat,
  kTimestamp,
  kBlob,
};

struct Shape;

struct Member {
  std::string_view name;
  const Shape* shape;
  bool required;
};

struct Shape {
  Kind kind;
  std::string_view name;
  std::optional<std::int64_t> min;  // of a length, a size or a value
  std::optional<std::int64_t> max;
  std::span<const Member> members;           // of a structure, in the model's order
  const Shape* element;                      // of a list; a map's value
  const Shape* key;                          // of a map
  std::span<const std::string_view> values;  // of an enum; empty: any
  int pattern;                               // index into patterns(), -1: none
};

// A text is right when all of it matches `match` and nothing matches `never`.
struct Pattern {
  std::string_view model;  // as the service model has it, for messages
  std::string_view match;  // the same for RE2
  std::string_view
      never;  // what RE2 needs a second look for ("does not end with '-'"); may be empty
};

struct Operation {
  std::string_view name;
  const Shape* input;   // null: takes nothing
  const Shape* output;  // null: gives nothing
  bool served;
};

// In which forms a service is spoken to; CloudWatch in both, and it says the Query code of an error
// in its JSON too.
struct Protocols {
  std::string_view json_version;  // "1.1"; empty: not in JSON
  bool query;
};

struct ServiceModel {
  std::string_view signing_name;  // of the credential scope: "sagemaker"
  std::string_view label;         // for people: "SageMaker"
  Protocols protocols;
  std::string_view target_prefix;         // of X-Amz-Target: "Logs_20140328"
  std::string_view xml_namespace;         // of replies in XML
  std::span<const Operation> operations;  // all of the model, by name
};

std::span<const ServiceModel> service_models();
std::span<const Pattern> patterns();

const ServiceModel* find_service(std::string_view signing_name);
const ServiceModel* find_service_by_target(std::string_view target_prefix);
const Operation* find_operation(const ServiceModel& service, std::string_view name);
const Member* member_of(const Shape& structure, std::string_view name);

}  // namespace atelier::api
