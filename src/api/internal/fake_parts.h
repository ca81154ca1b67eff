// Stand-ins for what the front door calls, for tests, fuzz targets and benchmarks: jobs in a map,
// an S3 that says what it was asked, one key, and a clock that stands still.
#pragma once

#include <fmt/format.h>

#include <map>
#include <string>
#include <vector>

#include "api/front_door.h"
#include "base/hash.h"
#include "base/json.h"
#include "jobs/request_rules.h"

namespace atelier::api::internal {

class FakeClock : public Clock {
 public:
  [[nodiscard]] Time now() const override { return time; }
  [[nodiscard]] std::chrono::steady_clock::time_point steady() const override { return {}; }
  Time time = parse_iso8601("2026-11-30T07:05:55Z").value();
};

class FakeKeys : public http::KeyStore {
 public:
  [[nodiscard]] std::optional<Entry> find(std::string_view access_key,
                                          std::string_view /*session_token*/) const override {
    if (access_key != entry.credentials.access_key) return std::nullopt;
    return entry;
  }
  Entry entry{{"AKIDEXAMPLE", "secret", ""},
              {"AKIDEXAMPLE", "000000000000", "arn:aws:iam::000000000000:user/admin", "AIDAADMIN",
               access::Authority::everything()},
              std::nullopt};
};

class FakeJobs : public jobs::Service {
 public:
  void run() override {}

  Result<std::string> create(const jobs::NewJob& wanted) override {
    if (create_error) return *create_error;
    const json::value request = TRY(parse_json(wanted.request_json));
    TRY(jobs::check_request(request));
    jobs::TrainingJob job;
    job.name = find_string(request, "TrainingJobName").value_or("");
    job.arn = "arn:aws:sagemaker:us-west-2:000000000000:training-job/" + job.name;
    job.request_json = wanted.request_json;
    job.invocation_id = wanted.invocation_id;
    job.created_by = wanted.created_by;
    job.model_uri = fmt::format("s3://out/{}/output/model.tar.gz", job.name);
    job.transitions = {{"Starting", "Starting the training job", Time{}, std::nullopt}};
    const auto [at, is_new] = by_name.emplace(job.name, job);
    const bool retried = at->second.invocation_id == wanted.invocation_id &&
                         at->second.created_by == wanted.created_by &&
                         at->second.request_json == wanted.request_json;
    if (!is_new && !retried) return Error{Code::kAlreadyExists, job.name + " is there already"};
    return at->second.arn;
  }

  Result<jobs::TrainingJob> describe(const std::string& name) override {
    const auto found = by_name.find(name);
    if (found == by_name.end()) return Error{Code::kNotFound, "no job " + name};
    return found->second;
  }

  // Of records that tests change at will: never the same twice, unless steady_versions.
  Result<jobs::RecordVersion> version(const std::string& name) override {
    const jobs::TrainingJob job = TRY(describe(name));
    if (steady_versions) return jobs::RecordVersion{job.id, job.version};
    return jobs::RecordVersion{0, ++looks};
  }

  Result<jobs::Page<jobs::JobSummary>> list(const jobs::ListQuery& query) override {
    last_list = query;
    jobs::Page<jobs::JobSummary> page;
    for (const auto& [name, job] : by_name) page.jobs.push_back(jobs::summary_of(job));
    page.next_token = list_token;
    return page;
  }

  Result<jobs::Page<jobs::TrainingJob>> find(const jobs::ListQuery& query,
                                             const jobs::JobFilter& filter) override {
    last_list = query;
    jobs::Page<jobs::TrainingJob> page;
    for (const auto& [name, job] : by_name) {
      if (filter(job)) page.jobs.push_back(job);
    }
    page.next_token = list_token;
    return page;
  }

  Result<void> stop(const std::string& name, const std::string&) override {
    const auto found = by_name.find(name);
    if (found == by_name.end()) return Error{Code::kNotFound, "no job " + name};
    if (found->second.terminal()) {
      return Error{
          Code::kFailedPrecondition,
          "The request was rejected because the training job is in status " + found->second.status};
    }
    found->second.stop_requested = true;
    return {};
  }

  Result<void> interrupt(const std::string& name, const std::string& why) override {
    const auto found = by_name.find(name);
    if (found == by_name.end()) return Error{Code::kNotFound, "no job " + name};
    if (!found->second.terms.spot) return Error{Code::kFailedPrecondition, name + " is not spot"};
    found->second.attempts.interrupt_requested = true;
    last_interruption = why;
    return {};
  }

  Result<void> change_request(const std::string& name, const jobs::RequestChange& change) override {
    const auto found = by_name.find(name);
    if (found == by_name.end()) return Error{Code::kNotFound, "no job " + name};
    std::string request = found->second.request_json;
    if (TRY(change(found->second, request))) found->second.modified += std::chrono::seconds{1};
    found->second.request_json = request;
    return {};
  }

  Result<void> remove(const std::string& name) override {
    const auto found = by_name.find(name);
    if (found == by_name.end()) return Error{Code::kNotFound, "no job " + name};
    if (remove_error) return *remove_error;
    by_name.erase(found);
    return {};
  }

  Result<jobs::LogStreamPage> log_streams(const jobs::LogStreamQuery& query) override {
    std::vector<std::pair<jobs::LogStreamPlace, jobs::LogStream>> found;
    for (const jobs::LogStream& stream : streams) {
      jobs::LogStreamPlace place{query.by_time ? stream.last_event.value_or(Time{}) : Time{},
                                 stream.name};
      const bool passed =
          query.after && (query.descending ? place >= *query.after : place <= *query.after);
      if (stream.name.starts_with(query.prefix) && !passed) found.emplace_back(place, stream);
    }
    std::ranges::sort(found, [&](const auto& a, const auto& b) {
      return query.descending ? b.first < a.first : a.first < b.first;
    });
    jobs::LogStreamPage page;
    for (std::size_t i = 0; i < std::min(query.limit, found.size()); ++i) {
      page.streams.push_back(found[i].second);
    }
    if (found.size() > query.limit) page.next = found[query.limit - 1].first;
    return page;
  }

  Result<jobs::LogQueryPage> log_events(const jobs::LogQuery& query) override {
    last_logs = query;
    if (logs_error) return *logs_error;
    return log_page;
  }

  Result<std::vector<jobs::FinalMetric>> metrics(const jobs::TrainingJob& job) override {
    return job.final_metrics;
  }

  Result<void> read_metric(const std::string& job, const std::string& name, Time from, Time to,
                           const std::function<bool(const jobs::MetricSample&)>& take) override {
    if (!by_name.contains(job)) return Error{Code::kNotFound, "no job " + job};
    for (const jobs::MetricSample& sample : samples[name]) {
      if (sample.time >= from && sample.time < to && !take(sample)) break;
    }
    return {};
  }

  [[nodiscard]] const std::vector<compute::PriceList>& price_lists() const override {
    return lists;
  }

  std::uint64_t wait_for_change(std::uint64_t seen, std::chrono::milliseconds /*most*/) override {
    return seen;
  }

  std::map<std::string, jobs::TrainingJob> by_name;
  std::optional<Error> create_error, logs_error, remove_error;
  bool steady_versions = false;
  std::uint64_t looks = 0;
  jobs::ListQuery last_list;
  std::string list_token;
  std::string last_interruption;
  std::vector<compute::PriceList> lists = {{"cloud", "USD", "2026-11-30", {{"ml.m5.xlarge", 36}}}};
  std::vector<jobs::LogStream> streams;
  jobs::LogQuery last_logs;
  jobs::LogQueryPage log_page;
  std::map<std::string, std::vector<jobs::MetricSample>> samples;  // by metric
};

class FakeS3 : public objects::S3Service {
 public:
  std::unique_ptr<http::Exchange> begin(const http::RequestHead& head,
                                        const http::Verified& caller) override {
    return http::answer({200, {}, head.method + " by " + caller.principal.access_key, {}});
  }
  http::Response preflight(const http::RequestHead& /*head*/) override { return {403, {}, "", {}}; }
  [[nodiscard]] Named name(const http::RequestHead& head) const override {
    return {"s3:" + head.method, std::string(head.path())};
  }
  [[nodiscard]] http::Response refuse(const http::RequestHead& /*head*/,
                                      const Error& error) const override {
    return {403, {}, error.message, {}};
  }
};

// Everything that a front door needs, and a client that signs.
struct FakeWorld {
  FakeClock clock;
  FakeKeys keys;
  FakeJobs jobs;
  FakeS3 s3;
  std::unique_ptr<http::Handler> door = make_front_door({keys, s3, jobs, clock});

  // A signed request of a JSON service, ready for send().
  [[nodiscard]] http::RequestHead json_head(std::string_view service, std::string_view target,
                                            std::string_view body) const {
    http::RequestHead head;
    head.method = "POST";
    head.target = "/";
    head.headers = {{"Host", "127.0.0.1:8080"},
                    {"Content-Type", "application/x-amz-json-1.1"},
                    {"X-Amz-Target", std::string(target)},
                    {"amz-sdk-invocation-id", "0f2b"}};
    sign(head, service, body);
    return head;
  }

  void sign(http::RequestHead& head, std::string_view service, std::string_view body) const {
    head.content_length = body.size();
    http::sign(head.method, head.target, head.headers, sha256_hex(body), keys.entry.credentials,
               "us-west-2", service, clock.now());
  }

  http::Response send(const http::RequestHead& head, std::string_view body) const {
    const std::unique_ptr<http::Exchange> exchange = door->begin(head);
    if (exchange->wants_body()) exchange->on_body(std::as_bytes(std::span(body)));
    return exchange->finish();
  }

  // A call of SageMaker or, with the other arguments, of another JSON service.
  http::Response call(std::string_view operation, std::string_view body,
                      std::string_view prefix = "SageMaker",
                      std::string_view service = "sagemaker") const {
    return send(json_head(service, fmt::format("{}.{}", prefix, operation), body), body);
  }
};

inline std::string body_of(const http::Response& response) {
  return std::get<std::string>(response.body);
}

inline json::value json_of(const http::Response& response) {
  return parse_json(body_of(response)).value();
}

// What the SDK sends for PyTorch(...).fit(), with an S3 channel.
inline json::object training_request(std::string_view name = "job-1") {
  return {{"TrainingJobName", name},
          {"AlgorithmSpecification",
           {{"TrainingInputMode", "File"},
            {"EnableSageMakerMetricsTimeSeries", true},
            {"TrainingImage",
             "763104351884.dkr.ecr.us-west-2.amazonaws.com/pytorch-training:1.6.0-gpu-py3"}}},
          {"RoleArn", "arn:aws:iam::000000000000:role/platform"},
          {"OutputDataConfig", {{"S3OutputPath", "s3://out/prefix"}}},
          {"StoppingCondition", {{"MaxRuntimeInSeconds", 86400}}},
          {"ResourceConfig",
           {{"VolumeSizeInGB", 30}, {"InstanceCount", 1}, {"InstanceType", "ml.p4d.24xlarge"}}},
          {"InputDataConfig", json::array{{{"ChannelName", "training"},
                                           {"DataSource",
                                            {{"S3DataSource",
                                              {{"S3DataType", "S3Prefix"},
                                               {"S3Uri", "s3://data/train"},
                                               {"S3DataDistributionType", "FullyReplicated"}}}}}}}},
          {"HyperParameters", {{"lr", "0.1"}, {"sagemaker_program", "\"train.py\""}}},
          {"Tags", json::array{{{"Key", "team"}, {"Value", "search"}}}},
          {"DebugHookConfig",
           {{"S3OutputPath", "s3://out/prefix"}, {"CollectionConfigurations", json::array{}}}},
          {"ProfilerConfig", {{"S3OutputPath", "s3://out/prefix"}, {"DisableProfiler", false}}}};
}

}  // namespace atelier::api::internal
