// AddTags, ListTags and DeleteTags. Tags are part of a job's request as it stands now, those of its
// create among them.
#include <fmt/format.h>

#include <algorithm>

#include "api/operations.h"
#include "api/training.h"
#include "jobs/request_rules.h"

namespace atelier::api {
namespace {

constexpr std::size_t kMostTags = 50;  // of one resource, as everywhere in AWS

// The name in a training job's ARN; empty when it is another one.
std::string job_of(std::string_view arn) {
  constexpr std::string_view kKind = ":training-job/";
  const std::size_t at = arn.find(kKind);
  return at == std::string_view::npos ? "" : std::string(arn.substr(at + kKind.size()));
}

ApiError no_such_resource(std::string_view arn) {
  return validation_error(fmt::format("Requested resource not found. Could not find '{}'.", arn));
}

// What follows from a failed call about `arn`.
ApiError failure_of(const Error& error, std::string_view arn) {
  return error.code == Code::kNotFound ? no_such_resource(arn) : from_error(error);
}

json::array tags_of(const json::value& request) {
  const json::array* tags = find_array(request, "Tags");
  return tags != nullptr ? *tags : json::array{};
}

std::string key_of(const json::value& tag) { return find_string(tag, "Key").value_or(""); }

// Runs `change` over the tags of the job of `arn`; what they are then.
Result<json::array> change_tags(const Call& call, const std::string& arn,
                                const std::function<Result<void>(json::array&)>& change) {
  json::array tags;
  TRY(call.parts.jobs.change_request(
      job_of(arn), [&](const jobs::TrainingJob& job, std::string& text) -> Result<bool> {
        if (job.arn != arn) return Error{Code::kNotFound, arn};
        json::value request = TRY(parse_json(text));
        tags = tags_of(request);
        TRY(change(tags));
        request.get_object()["Tags"] = tags;
        text = json::serialize(request);
        return false;  // a tag is about a job, not of it: LastModifiedTime stays
      }));
  return tags;
}

}  // namespace

Outcome add_tags(const Call& call) {
  const std::string arn = find_string(call.input, "ResourceArn").value_or("");
  const json::array added = tags_of(call.input);
  const Result<void> fine = jobs::check_tags(added);
  if (!fine) return from_error(fine.error());
  const Result<json::array> tags = change_tags(call, arn, [&](json::array& all) -> Result<void> {
    for (const json::value& tag : added) {
      const auto same = std::ranges::find(all, key_of(tag), key_of);
      if (same != all.end()) {
        *same = tag;
      } else {
        all.push_back(tag);
      }
    }
    if (all.size() <= kMostTags) return {};
    return Error{Code::kInvalidArgument,
                 fmt::format("'{}' would have {} tags; a resource has at most {}", arn, all.size(),
                             kMostTags)};
  });
  if (!tags) return failure_of(tags.error(), arn);
  return json::object{{"Tags", *tags}};
}

Outcome delete_tags(const Call& call) {
  const std::string arn = find_string(call.input, "ResourceArn").value_or("");
  const json::array* keys = find_array(call.input, "TagKeys");
  const Result<json::array> tags = change_tags(call, arn, [&](json::array& all) -> Result<void> {
    // A key that is not there is no error, as with AWS: the tag is gone either way.
    json::array kept;
    for (const json::value& tag : all) {
      const bool named = std::ranges::any_of(
          *keys, [&](const json::value& key) { return key == json::value(key_of(tag)); });
      if (!named) kept.push_back(tag);
    }
    all = std::move(kept);
    return {};
  });
  if (!tags) return failure_of(tags.error(), arn);
  return json::object{};
}

Outcome list_tags(const Call& call) {
  const std::string arn = find_string(call.input, "ResourceArn").value_or("");
  const Result<jobs::TrainingJob> job = call.parts.jobs.describe(job_of(arn));
  if (!job) return failure_of(job.error(), arn);
  if (job->arn != arn) return no_such_resource(arn);
  const Result<json::value> request = parse_json(job->request_json);
  if (!request) return from_error(request.error().within("the stored request of " + job->name));
  // All in one page: the SDK's paging of tags never asks for a second.
  return json::object{{"Tags", tags_of(*request)}};
}

}  // namespace atelier::api
