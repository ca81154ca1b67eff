// Every member of CreateTrainingJob's model, one at a time: none is dropped in silence. A member is
// refused by its name, or shown by DescribeTrainingJob and either acted upon (the table below says
// how that shows) or named in the first status message as without effect. The list of members is
// botocore's, so a member of tomorrow's model is met here on the day that it comes.
#include <gtest/gtest.h>

#include <set>

#include "api/internal/fake_parts.h"
#include "api/validate.h"

namespace atelier::api {
namespace {

using internal::json_of;
using internal::training_request;

// One of these is right for every text of the model.
constexpr std::string_view kSamples[] = {
    "a",
    "s3://bucket/prefix",
    "arn:aws:iam::000000000000:role/platform",
    "fs-0123456789abcdef0",
    "arn:aws:sagemaker:us-west-2:000000000000:training-plan/one",
    "arn:aws:lambda:us-west-2:000000000000:function:credentials",
    "arn:aws:sagemaker:us-west-2:000000000000:mlflow-tracking-server/one",
    "arn:aws:sagemaker:us-west-2:000000000000:model-package-group/one",
    "arn:aws:sagemaker:us-west-2:000000000000:model-package/one/1",
    "arn:aws:sagemaker:us-west-2:aws:hub-content/Hub/Model/one/1.0.0",
    "arn:aws:sagemaker:us-west-2:aws:hub-content/Hub/DataSet/one/1.0.0",
    "4K",
};

json::value sample(const Shape& shape) {
  switch (shape.kind) {
    case Kind::kStructure: {
      json::object object;
      for (const Member& member : shape.members) {
        if (member.required) object.emplace(member.name, sample(*member.shape));
      }
      return object;
    }
    case Kind::kList:
      return json::array{sample(*shape.element)};
    case Kind::kMap:
      return json::object{{sample(*shape.key).as_string(), sample(*shape.element)}};
    case Kind::kBoolean:
      return true;
    case Kind::kInteger:
    case Kind::kLong:
    case Kind::kFloat:
    case Kind::kTimestamp:
      return std::max<std::int64_t>(1, shape.min.value_or(1));
    default:
      break;
  }
  // The last value of an enum asks for something; the first is often "None" or the default.
  if (!shape.values.empty()) return json::value(shape.values.back());
  for (const std::string_view text : kSamples) {
    if (!validate(json::value(text), shape)) return json::value(text);
  }
  ADD_FAILURE() << "kSamples has nothing for " << shape.name;
  return "";
}

struct Case {
  std::string path;  // "InputDataConfig.ChannelName", without numbers
  json::object request;
};

// Puts the sample of each member that the request lacks, one in each case.
void add_cases(const Shape& shape, json::object& request, json::object& at, const std::string& path,
               std::vector<Case>& cases) {
  for (const Member& member : shape.members) {
    const std::string inside =
        path.empty() ? std::string(member.name) : path + "." + std::string(member.name);
    const bool had = at.contains(member.name);
    if (!had) at[member.name] = sample(*member.shape);
    json::value& value = at[member.name];
    const Shape& inner = member.shape->kind == Kind::kList ? *member.shape->element : *member.shape;
    const bool empty = value.is_object() && value.as_object().empty();  // asks for nothing
    if (!had && !empty) cases.push_back({inside, request});
    if (inner.kind == Kind::kStructure) {
      json::value& element = value.is_array() ? value.as_array()[0] : value;
      add_cases(inner, request, element.as_object(), inside, cases);
    }
    if (!had) at.erase(member.name);
  }
}

bool shows(const json::value& document, std::string_view path) {
  if (const json::array* list = document.if_array()) {
    return !list->empty() && shows(list->front(), path);
  }
  const std::size_t dot = path.find('.');
  const json::value* inside = find_member(document, path.substr(0, dot));
  if (inside == nullptr) return false;
  return dot == std::string_view::npos || shows(*inside, path.substr(dot + 1));
}

// Where a member is in a reply when DescribeTrainingJob does not show it.
const std::set<std::string> kShownElsewhere = {"Tags", "Tags.Key", "Tags.Value"};  // ListTags

TEST(TrainingMembers, AreRefusedOrShownAndNeverDropped) {
  const Operation& create = *find_operation(*find_service("sagemaker"), "CreateTrainingJob");
  json::object base = training_request("job");
  base.erase("Tags");
  base.erase("DebugHookConfig");
  base.erase("ProfilerConfig");
  base["Environment"] = {{"A", "b"}};
  std::vector<Case> cases;
  add_cases(*create.input, base, base, "", cases);
  ASSERT_GT(cases.size(), 80U);

  std::size_t refused = 0;
  for (const Case& each : cases) {
    internal::FakeWorld world;
    const json::value body(each.request);
    ASSERT_FALSE(validate(body, *create.input)) << each.path << ": the sample itself is invalid";
    const json::value reply = json_of(world.call("CreateTrainingJob", json::serialize(body)));
    if (const auto message = find_string(reply, "message")) {
      ++refused;
      // By its name or by that of the structure that it is in.
      const std::size_t dot = each.path.rfind('.');
      const std::string name = each.path.substr(dot + 1);
      const std::string around = dot == std::string::npos ? name : each.path.substr(0, dot);
      const std::string parent = around.substr(around.rfind('.') + 1);
      EXPECT_TRUE(message->find(name) != std::string::npos ||
                  message->find(parent) != std::string::npos)
          << each.path << ": " << *message;
      continue;
    }
    const json::value shown =
        json_of(world.call("DescribeTrainingJob", R"({"TrainingJobName":"job"})"));
    // What Describe's model has no place for is said at least in the first status message.
    const std::string notes(
        shown.at("SecondaryStatusTransitions").at(0).at("StatusMessage").as_string());
    const std::string top = each.path.substr(0, each.path.find('.'));
    EXPECT_TRUE(shows(shown, each.path) || kShownElsewhere.contains(each.path) ||
                notes.find(top + " has no effect") != std::string::npos)
        << each.path << " is taken, not shown and not noted: " << notes;
  }
  EXPECT_LT(refused, cases.size());
}

}  // namespace
}  // namespace atelier::api
