#include "api/validate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/internal/fake_parts.h"
#include "api/operations.h"
#include "api/pattern.h"

namespace atelier::api {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

const Shape& input_of(std::string_view operation) {
  return *find_operation(*find_service("sagemaker"), operation)->input;
}

// The error of a CreateTrainingJob request, "" when it is valid.
std::string error_of(const json::value& request) {
  const std::optional<ApiError> error = validate(request, input_of("CreateTrainingJob"));
  return error ? error->code + ": " + error->message : "";
}

json::value with(std::string_view member, const json::value& value) {
  json::object request = internal::training_request();
  request[member] = value;
  return request;
}

TEST(Validate, TakesWhatTheSdkSends) { EXPECT_EQ(error_of(internal::training_request()), ""); }

TEST(Validate, SaysWhatIsMissingInTheWordsOfTheService) {
  json::object request = internal::training_request();
  request.erase("RoleArn");
  EXPECT_EQ(error_of(request),
            "ValidationException: 1 validation error detected: Value 'null' at 'roleArn' failed to "
            "satisfy constraint: Member must not be null");
}

TEST(Validate, NullIsTheSameAsAbsent) {
  EXPECT_THAT(error_of(with("RoleArn", nullptr)), HasSubstr("Member must not be null"));
  EXPECT_EQ(error_of(with("VpcConfig", nullptr)), "");
}

TEST(Validate, CountsAllErrorsAndSpellsOutEach) {
  json::object request = internal::training_request("-bad");
  request["StoppingCondition"] = {{"MaxRuntimeInSeconds", 0}};
  EXPECT_EQ(error_of(request),
            "ValidationException: 2 validation errors detected: Value '-bad' at 'trainingJobName' "
            "failed to satisfy constraint: Member must satisfy regular expression pattern: "
            "[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}; Value '0' at "
            "'stoppingCondition.maxRuntimeInSeconds' failed to satisfy constraint: Member must "
            "have value greater than or equal to 1");
}

TEST(Validate, SpellsOutTenErrorsAtMost) {
  json::object environment;
  for (int i = 0; i < 15; ++i) environment[fmt::format("{}", i)] = "x";
  const std::string error = error_of(with("Environment", environment));
  EXPECT_THAT(error, StartsWith("ValidationException: 15 validation errors detected"));
  EXPECT_THAT(error, HasSubstr("; and 5 more"));
}

TEST(Validate, NamesTheElementOfAListAndTheKeyOfAMap) {
  json::object request = internal::training_request();
  request["InputDataConfig"].as_array()[0].as_object()["ChannelName"] = "a b";
  EXPECT_THAT(error_of(request),
              HasSubstr("Value 'a b' at 'inputDataConfig.1.member.channelName'"));
  EXPECT_THAT(error_of(with("HyperParameters", {{"lr", std::string(2501, 'x')}})),
              HasSubstr("at 'hyperParameters.lr.member' failed to satisfy constraint: Member must "
                        "have length less than or equal to 2500"));
  EXPECT_THAT(error_of(with("Environment", {{"1x", "y"}})),
              HasSubstr("Map keys must satisfy constraint: [Member must satisfy regular "
                        "expression pattern: [a-zA-Z_][a-zA-Z0-9_]*]"));
}

TEST(Validate, BoundsAreInclusive) {
  EXPECT_EQ(error_of(with("HyperParameters", {{"lr", std::string(2500, 'x')}})), "");
  EXPECT_EQ(error_of(internal::training_request(std::string(63, 'x'))), "");
  EXPECT_THAT(error_of(internal::training_request(std::string(64, 'x'))),
              HasSubstr("Member must have length less than or equal to 63"));
}

TEST(Validate, LengthsAreInCharacters) {
  std::string umlauts;
  for (int i = 0; i < 2500; ++i) umlauts += "\xC3\xBC";
  EXPECT_EQ(error_of(with("HyperParameters", {{"lr", umlauts}})), "");
}

TEST(Validate, NamesTheValuesOfAnEnum) {
  json::object request = internal::training_request();
  request["AlgorithmSpecification"].as_object()["TrainingInputMode"] = "file";
  EXPECT_THAT(error_of(request),
              HasSubstr("Value 'file' at 'algorithmSpecification.trainingInputMode' failed to "
                        "satisfy constraint: Member must satisfy enum value set: [Pipe, File, "
                        "FastFile]"));
}

TEST(Validate, InstanceTypesAreOpenBecauseOurTableDecides) {
  json::object request = internal::training_request();
  request["ResourceConfig"].as_object()["InstanceType"] = "ml.cpu.4x";
  EXPECT_EQ(error_of(request), "");
}

TEST(Validate, AWrongTypeIsASerializationException) {
  EXPECT_EQ(error_of(with("RoleArn", 7)),
            "SerializationException: 'roleArn': NUMBER_VALUE '7' can not be converted to a String");
  EXPECT_THAT(error_of(with("InputDataConfig", "x")), HasSubstr("can not be converted to a list"));
  EXPECT_THAT(error_of(with("EnableNetworkIsolation", "true")), HasSubstr("to a Boolean"));
  EXPECT_THAT(error_of(json::array{}), HasSubstr("'request': a list '[]' can not be converted"));
  EXPECT_THAT(error_of(with("StoppingCondition", {{"MaxRuntimeInSeconds", 3000000000}})),
              HasSubstr("to a Integer"));
  EXPECT_THAT(error_of(with("StoppingCondition", {{"MaxRuntimeInSeconds", 1.5}})),
              HasSubstr("to a Integer"));
}

TEST(Validate, AHostilePatternTextCostsLinearTime) {
  // Backtracking takes 2^n steps for such names.
  EXPECT_THAT(error_of(internal::training_request(std::string(500000, '-'))),
              HasSubstr("regular expression pattern"));
  EXPECT_THAT(error_of(internal::training_request("a" + std::string(500000, '-') + "!")),
              HasSubstr("..."));
}

TEST(Validate, ProjectKeepsWhatTheModelKnows) {
  json::object request = internal::training_request();
  request["Unknown"] = 1;
  request["VpcConfig"] = nullptr;
  request["StoppingCondition"] = {{"MaxRuntimeInSeconds", 60.0}, {"Else", true}};
  const json::value known = project(request, input_of("CreateTrainingJob"));
  EXPECT_FALSE(known.as_object().contains("Unknown"));
  EXPECT_FALSE(known.as_object().contains("VpcConfig"));
  EXPECT_EQ(json::serialize(known.as_object().at("StoppingCondition")),
            R"({"MaxRuntimeInSeconds":60})");
  EXPECT_EQ(error_of(known), "");
}

TEST(Patterns, AreAllInAFormThatRe2Takes) {
  for (std::size_t i = 0; i < patterns().size(); ++i) {
    EXPECT_TRUE(pattern_is_valid(static_cast<int>(i))) << patterns()[i].match;
  }
}

TEST(Patterns, ALookBehindAtTheEndIsASecondMatch) {
  json::object request = internal::training_request();
  request["AlgorithmSpecification"] = {{"TrainingInputMode", "File"}, {"AlgorithmName", "own-"}};
  EXPECT_THAT(error_of(request), HasSubstr("(?<!-)"));
  request["AlgorithmSpecification"].as_object()["AlgorithmName"] = "own";
  EXPECT_EQ(error_of(request), "");
}

TEST(Operations, EveryServedOneHasAHandlerAndNoOtherHas) {
  for (const ServiceModel& service : service_models()) {
    for (const Operation& operation : service.operations) {
      EXPECT_EQ(find_handler(service.signing_name, operation.name) != nullptr, operation.served)
          << operation.name;
    }
  }
}

}  // namespace
}  // namespace atelier::api
