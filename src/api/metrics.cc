// CloudWatch over the metrics that programs print: namespace /aws/sagemaker/TrainingJobs, dimension
// TrainingJobName, every value with the time of its line, any period from one second on.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "api/operations.h"

namespace atelier::api {
namespace {

constexpr std::string_view kNamespace = "/aws/sagemaker/TrainingJobs";
constexpr std::string_view kDimension = "TrainingJobName";
// What GetMetricData gives at most; GetMetricStatistics of AWS stops at 1,440, which is a day of
// minutes and 24 minutes of seconds.
constexpr std::size_t kMostDatapoints = 100'800;
constexpr std::size_t kMostMetricsAPage = 500;
constexpr std::string_view kStatistics[] = {"SampleCount", "Average", "Sum", "Minimum", "Maximum"};

Error wrong(std::string message) { return Error{Code::kInvalidArgument, std::move(message)}; }
Error clashes(std::string message) { return Error{Code::kOutOfRange, std::move(message)}; }

ApiError failure_of(const Error& error) {
  if (error.code == Code::kInvalidArgument) {
    return {400, "InvalidParameterValueException", error.message};
  }
  if (error.code == Code::kOutOfRange) {
    return {400, "InvalidParameterCombinationException", error.message};
  }
  return from_error(error);
}

// The values of one period.
struct Bucket {
  double sum = 0, least = 0, most = 0;
  std::size_t count = 0;
  std::vector<double> values;  // when percentiles are asked for

  void add(double value, bool keep) {
    least = count == 0 ? value : std::min(least, value);
    most = count == 0 ? value : std::max(most, value);
    sum += value;
    ++count;
    if (keep) values.push_back(value);
  }

  // Between the two nearest ranks, as CloudWatch interpolates.
  [[nodiscard]] double percentile(double percent) {
    std::ranges::sort(values);
    const double rank = percent / 100 * static_cast<double>(values.size() - 1);
    const auto below = static_cast<std::size_t>(rank);
    const std::size_t above = std::min(below + 1, values.size() - 1);
    return std::lerp(values[below], values[above], rank - static_cast<double>(below));
  }
};

// "Average" or "p99.5"; nothing when it is neither.
std::optional<double> percent_of(std::string_view statistic) {
  if (!statistic.starts_with('p') || statistic.size() > 8) return std::nullopt;
  const std::string digits(statistic.substr(1));
  char* end = nullptr;
  const double percent = std::strtod(digits.c_str(), &end);
  if (digits.empty() || *end != '\0' || !(percent >= 0 && percent <= 100)) return std::nullopt;
  return percent;
}

double statistic_of(Bucket& bucket, std::string_view statistic) {
  if (statistic == "SampleCount") return static_cast<double>(bucket.count);
  if (statistic == "Sum") return bucket.sum;
  if (statistic == "Minimum") return bucket.least;
  if (statistic == "Maximum") return bucket.most;
  if (const auto percent = percent_of(statistic)) return bucket.percentile(*percent);
  return bucket.sum / static_cast<double>(bucket.count);
}

Result<void> check_statistic(std::string_view statistic) {
  if (std::ranges::find(kStatistics, statistic) != std::end(kStatistics) || percent_of(statistic)) {
    return {};
  }
  return wrong(
      fmt::format("The statistic '{}' is not served: known are SampleCount, Average, Sum, "
                  "Minimum, Maximum and percentiles such as p90",
                  statistic));
}

struct Series {
  std::string job;  // empty: a metric that nothing here has
  std::string metric;
  Time start{}, end{};
  std::int64_t period = 60;
  bool percentiles = false;
};

using Buckets = std::map<std::int64_t, Bucket>;  // by their start, in seconds since 1970

Result<Buckets> read_series(const Call& call, const Series& series) {
  Buckets buckets;
  if (series.job.empty()) return buckets;
  const auto start_of = [&](Time time) {
    const std::int64_t seconds = to_epoch_milliseconds(time) / 1000;
    return seconds - seconds % series.period;
  };
  // A period that the start falls into counts whole.
  const Time from = from_epoch_milliseconds(start_of(series.start) * 1000);
  bool too_many = false;
  const Result<void> read = call.parts.jobs.read_metric(
      series.job, series.metric, from, series.end, [&](const jobs::MetricSample& sample) {
        if (std::isfinite(sample.value)) {
          buckets[start_of(sample.time)].add(sample.value, series.percentiles);
        }
        too_many = buckets.size() > kMostDatapoints;
        return !too_many;
      });
  if (!read && read.error().code != Code::kNotFound) return read.error();
  if (too_many) {
    return clashes(
        fmt::format("The period of {} s gives more than {} data points of '{}': ask for a "
                    "longer Period or less time",
                    series.period, kMostDatapoints, series.metric));
  }
  return buckets;
}

// The job that a metric of these dimensions belongs to; "" when there is no such metric here.
std::string job_of(const json::value& metric) {
  const json::array* dimensions = find_array(metric, "Dimensions");
  if (find_string(metric, "Namespace") != kNamespace || dimensions == nullptr ||
      dimensions->size() != 1 || find_string(dimensions->front(), "Name") != kDimension) {
    return {};
  }
  return find_string(dimensions->front(), "Value").value_or("");
}

std::vector<std::string> texts(const json::value& input, std::string_view name) {
  std::vector<std::string> found;
  if (const json::array* list = find_array(input, name)) {
    for (const json::value& item : *list) found.emplace_back(item.get_string());
  }
  return found;
}

Result<Series> series_of(const json::value& metric, const json::value& times, std::int64_t period) {
  Series series;
  series.job = job_of(metric);
  series.metric = find_string(metric, "MetricName").value_or("");
  series.start = from_epoch_seconds(find_number(times, "StartTime").value_or(0));
  series.end = from_epoch_seconds(find_number(times, "EndTime").value_or(0));
  series.period = period;
  if (series.start >= series.end) {
    return wrong("The parameter StartTime must be less than the parameter EndTime.");
  }
  return series;
}

json::object datapoint(std::int64_t start, Bucket& bucket, const std::vector<std::string>& plain,
                       const std::vector<std::string>& extended) {
  json::object point{{"Timestamp", start}, {"Unit", "None"}};
  for (const std::string& statistic : plain) {
    point.emplace(statistic, statistic_of(bucket, statistic));
  }
  if (!extended.empty()) {
    json::object values;
    for (const std::string& statistic : extended) {
      values.emplace(statistic, statistic_of(bucket, statistic));
    }
    point.emplace("ExtendedStatistics", std::move(values));
  }
  return point;
}

Result<json::object> metric_statistics(const Call& call) {
  const std::vector<std::string> plain = texts(call.input, "Statistics");
  const std::vector<std::string> extended = texts(call.input, "ExtendedStatistics");
  if (plain.empty() && extended.empty()) {
    return clashes("At least one of Statistics and ExtendedStatistics must be specified.");
  }
  for (const std::string& statistic : extended) TRY(check_statistic(statistic));
  Series series =
      TRY(series_of(call.input, call.input, find_int(call.input, "Period").value_or(60)));
  series.percentiles = !extended.empty();
  Buckets buckets = TRY(read_series(call, series));
  json::array points;
  points.reserve(buckets.size());
  for (auto& [start, bucket] : buckets) {
    points.push_back(datapoint(start, bucket, plain, extended));
  }
  return json::object{{"Label", series.metric}, {"Datapoints", std::move(points)}};
}

// One query of GetMetricData; `left` is how many data points the reply may still have.
Result<json::object> metric_data(const Call& call, const json::value& query, std::size_t& left) {
  const std::string id = find_string(query, "Id").value_or("");
  const json::value* wanted = find_member(query, "MetricStat");
  if (wanted == nullptr) {
    return wrong(
        fmt::format("MetricDataQueries '{}': expressions are not served; give a MetricStat", id));
  }
  const std::string statistic = find_string(*wanted, "Stat").value_or("");
  TRY(check_statistic(statistic));
  const json::value* metric = find_member(*wanted, "Metric");
  Series series = TRY(series_of(*metric, call.input, find_int(*wanted, "Period").value_or(60)));
  series.percentiles = percent_of(statistic).has_value();
  Buckets buckets = TRY(read_series(call, series));
  if (buckets.size() > left) {
    return clashes(
        fmt::format("The queries give more than {} data points: ask for longer periods "
                    "or less time",
                    kMostDatapoints));
  }
  left -= buckets.size();
  json::array times, values;
  for (auto& [start, bucket] : buckets) {
    times.push_back(start);
    values.push_back(statistic_of(bucket, statistic));
  }
  if (find_string(call.input, "ScanBy") != "TimestampAscending") {
    std::ranges::reverse(times);
    std::ranges::reverse(values);
  }
  return json::object{{"Id", id},
                      {"Label", find_string(query, "Label").value_or(series.metric)},
                      {"Timestamps", std::move(times)},
                      {"Values", std::move(values)},
                      {"StatusCode", "Complete"}};
}

// What ListMetrics asks for.
struct MetricFilter {
  std::optional<std::string> metric, job;
  std::optional<Time> active_since;
  bool none = false;  // of another namespace or dimension: nothing here
};

MetricFilter filter_of(const Call& call) {
  MetricFilter filter;
  filter.none =
      find_string(call.input, "Namespace").value_or(std::string(kNamespace)) != kNamespace;
  filter.metric = find_string(call.input, "MetricName");
  if (const json::array* dimensions = find_array(call.input, "Dimensions")) {
    for (const json::value& dimension : *dimensions) {
      filter.none = filter.none || find_string(dimension, "Name") != kDimension;
      if (auto value = find_string(dimension, "Value")) filter.job = *std::move(value);
    }
  }
  if (find_string(call.input, "RecentlyActive")) {
    filter.active_since = call.parts.clock.now() - std::chrono::hours{3};  // PT3H, its one value
  }
  return filter;
}

Result<void> add_metrics(const Call& call, const MetricFilter& filter, const jobs::TrainingJob& job,
                         json::array& metrics) {
  if (filter.active_since && job.terminal() && job.modified < *filter.active_since) return {};
  for (const jobs::FinalMetric& metric : TRY(call.parts.jobs.metrics(job))) {
    if (filter.metric && metric.name != *filter.metric) continue;
    metrics.push_back(
        json::object{{"Namespace", kNamespace},
                     {"MetricName", metric.name},
                     {"Dimensions", json::array{{{"Name", kDimension}, {"Value", job.name}}}}});
  }
  return {};
}

Result<json::object> metric_list(const Call& call) {
  const MetricFilter filter = filter_of(call);
  json::array metrics;
  json::object out;
  if (filter.job && !filter.none) {
    const Result<jobs::TrainingJob> job = call.parts.jobs.describe(*filter.job);
    if (!job && job.error().code != Code::kNotFound) return job.error();
    if (job) TRY(add_metrics(call, filter, *job, metrics));
  } else if (!filter.none) {
    jobs::ListQuery query;
    query.next_token = find_string(call.input, "NextToken").value_or("");
    query.max_results = 10;  // jobs a look: a page passes 500 by what they have
    do {
      const auto page = TRY(call.parts.jobs.find(query, jobs::every_job));
      for (const jobs::TrainingJob& job : page.jobs) TRY(add_metrics(call, filter, job, metrics));
      query.next_token = page.next_token;
    } while (!query.next_token.empty() && metrics.size() < kMostMetricsAPage);
    if (!query.next_token.empty()) out.emplace("NextToken", query.next_token);
  }
  out.emplace("Metrics", std::move(metrics));
  return out;
}

Outcome outcome_of(Result<json::object> reply) {
  if (!reply) return failure_of(reply.error());
  return *std::move(reply);
}

}  // namespace

Outcome get_metric_statistics(const Call& call) { return outcome_of(metric_statistics(call)); }

Outcome get_metric_data(const Call& call) {
  json::array results;
  std::size_t left = kMostDatapoints;
  for (const json::value& query : *find_array(call.input, "MetricDataQueries")) {
    if (!find_bool(query, "ReturnData").value_or(true)) continue;
    Result<json::object> result = metric_data(call, query, left);
    if (!result) return failure_of(result.error());
    results.push_back(*std::move(result));
  }
  return json::object{{"MetricDataResults", std::move(results)}, {"Messages", json::array{}}};
}

Outcome list_metrics(const Call& call) { return outcome_of(metric_list(call)); }

}  // namespace atelier::api
