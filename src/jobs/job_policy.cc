#include "jobs/job_policy.h"

#include <fmt/format.h>

#include <optional>
#include <set>

#include "access/resources.h"
#include "base/json.h"
#include "objects/object_store.h"

namespace atelier::jobs {
namespace {

// Parts of an upload that was begun belong to the writing of an object.
const json::array kWrite = {"s3:PutObject", "s3:AbortMultipartUpload",
                            "s3:ListMultipartUploadParts"};

class Builder {
 public:
  explicit Builder(const json::value& request)
      : request_(request), name_(find_string(request, "TrainingJobName").value_or("")) {}

  json::object build() {
    add_channels();
    add_source();
    add_outputs();
    add_checkpoints();
    json::array buckets;
    for (const std::string& bucket : buckets_) buckets.emplace_back(bucket);
    // Clients ask for it before they read or write.
    if (!buckets.empty()) allow({"s3:GetBucketLocation"}, std::move(buckets));
    // A policy has a statement at least; this one says nothing.
    if (statements_.empty()) {
      statements_.emplace_back(
          json::object{{"Effect", "Deny"}, {"Action", "s3:CreateBucket"}, {"Resource", "*"}});
    }
    return {{"Version", "2012-10-17"}, {"Statement", std::move(statements_)}};
  }

 private:
  using Place = objects::Location;

  static const json::value& member(const json::value& value, std::string_view name) {
    static const json::value kAbsent;
    const json::value* found = find_member(value, name);
    return found == nullptr ? kAbsent : *found;
  }

  // The place that a member of a value names, if it is one of S3.
  static std::optional<Place> place(const json::value& value, std::string_view name) {
    const auto uri = find_string(value, name);
    if (!uri) return std::nullopt;
    const Result<Place> parsed = objects::parse_s3_uri(*uri);
    if (!parsed || parsed->bucket.empty()) return std::nullopt;
    return *parsed;
  }

  void allow(json::array actions, json::array resources, json::object condition = {}) {
    json::object statement = {
        {"Effect", "Allow"}, {"Action", std::move(actions)}, {"Resource", std::move(resources)}};
    if (!condition.empty()) statement["Condition"] = std::move(condition);
    statements_.emplace_back(std::move(statement));
  }
  void allow_objects(const json::array& actions, const Place& at, std::string_view rest) {
    buckets_.insert(access::escape_pattern(access::s3_bucket_arn(at.bucket)));
    allow(actions,
          {access::escape_pattern(access::s3_object_arn(at.bucket, at.key)) + std::string{rest}});
  }
  void allow_listing(const Place& at, std::string_view rest) {
    allow({"s3:ListBucket"}, {access::escape_pattern(access::s3_bucket_arn(at.bucket))},
          {{"StringLike", {{"s3:prefix", access::escape_pattern(at.key) + std::string{rest}}}}});
  }

  void add_channels() {
    const json::array* channels = find_array(request_, "InputDataConfig");
    if (channels == nullptr) return;
    for (const json::value& channel : *channels) {
      const json::value& source = member(member(channel, "DataSource"), "S3DataSource");
      const std::optional<Place> at = place(source, "S3Uri");
      if (!at) continue;
      const std::string type = find_string(source, "S3DataType").value_or("S3Prefix");
      if (type == "ManifestFile" || type == "AugmentedManifestFile") {
        // Which objects it names is known once it is read; those of its bucket may be.
        allow_objects({"s3:GetObject"}, *at, "");
        allow_objects({"s3:GetObject"}, {at->bucket, ""}, "*");
        // Sizes and ETags come from listings.
        allow_listing({at->bucket, ""}, "*");
      } else {
        // As SageMaker means it: every key that begins so.
        allow_objects({"s3:GetObject"}, *at, "*");
        allow_listing(*at, "*");
      }
    }
  }

  // sagemaker_submit_directory of script mode; the SDK writes hyperparameters as JSON.
  void add_source() {
    const json::value& parameters = member(request_, "HyperParameters");
    const auto text = find_string(parameters, "sagemaker_submit_directory");
    if (!text) return;
    const Result<json::value> decoded = parse_json(*text);
    const json::object named = {
        {"uri", decoded && decoded->is_string() ? decoded->get_string() : json::string{*text}}};
    if (const auto at = place(named, "uri"); at && !at->key.empty()) {
      allow_objects({"s3:GetObject"}, *at, "");
    }
  }

  // Below the job's name in the place that a member names.
  void add_output(const json::value& value) {
    std::optional<Place> at = place(value, "S3OutputPath");
    if (!at) return;
    while (at->key.ends_with('/')) at->key.pop_back();
    if (!at->key.empty()) at->key += '/';
    at->key += name_;
    allow_objects(kWrite, *at, "/*");
  }

  void add_outputs() {
    add_output(member(request_, "OutputDataConfig"));
    add_output(member(request_, "DebugHookConfig"));
    add_output(member(request_, "ProfilerConfig"));
    add_output(member(request_, "TensorBoardOutputConfig"));
    for (const char* rules : {"DebugRuleConfigurations", "ProfilerRuleConfigurations"}) {
      const json::array* list = find_array(request_, rules);
      if (list == nullptr) continue;
      for (const json::value& rule : *list) add_output(rule);
    }
  }

  void add_checkpoints() {
    std::optional<Place> at = place(member(request_, "CheckpointConfig"), "S3Uri");
    if (!at) return;
    while (at->key.ends_with('/')) at->key.pop_back();
    json::array actions = kWrite;
    actions.emplace_back("s3:GetObject");
    actions.emplace_back("s3:DeleteObject");
    const std::string_view rest = at->key.empty() ? "*" : "/*";
    allow_objects(actions, *at, rest);
    allow_listing(*at, rest);
  }

  const json::value& request_;
  const std::string name_;
  json::array statements_;
  std::set<std::string> buckets_;
};

}  // namespace

Result<access::Policy> job_policy(std::string_view request_json) {
  const json::value request = TRY(parse_json(request_json));
  return access::Policy::parse(json::serialize(Builder{request}.build()));
}

}  // namespace atelier::jobs
