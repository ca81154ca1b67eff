#include "jobs/internal/record_text.h"

#include <fmt/format.h>

#include <cstdlib>

#include "base/json.h"

namespace atelier::jobs::internal {
namespace {

json::value or_null(const std::optional<Time>& time) {
  if (!time) return nullptr;
  return to_epoch_milliseconds(*time);
}

// The parsed text of one column: of few members, so that what it is made of fits beside it.
class Parsed {
 public:
  explicit Parsed(std::string_view text) : value_(parse_json(text, kMaxDepth, &memory_)) {}
  // Null where the text is no JSON.
  [[nodiscard]] const json::value& operator*() const { return value_ ? *value_ : null_; }

 private:
  static constexpr std::size_t kMaxDepth = 8;
  unsigned char first_[2048];
  json::monotonic_resource memory_{first_, sizeof first_};
  Result<json::value> value_;
  json::value null_;
};

std::optional<Time> time_of(const json::value& object, std::string_view name) {
  const auto milliseconds = find_int(object, name);
  if (!milliseconds) return std::nullopt;
  return from_epoch_milliseconds(*milliseconds);
}

}  // namespace

std::string to_text(const std::vector<std::string>& warnings) {
  if (warnings.empty()) return {};
  json::array array;
  for (const std::string& warning : warnings) array.emplace_back(warning);
  return json::serialize(array);
}

std::vector<std::string> warnings_from_text(std::string_view text) {
  std::vector<std::string> warnings;
  if (text.empty()) return warnings;
  const Parsed parsed{text};
  const json::value* value = &*parsed;
  if (!value->is_array()) return warnings;
  for (const json::value& item : value->get_array()) {
    if (item.is_string()) warnings.emplace_back(item.get_string());
  }
  return warnings;
}

// Values go as text: JSON has no NaN, and a metric may be one.
std::string to_text(const std::vector<FinalMetric>& metrics) {
  if (metrics.empty()) return {};
  json::array array;
  for (const FinalMetric& metric : metrics) {
    array.push_back(json::array{metric.name, fmt::format("{}", metric.value),
                                to_epoch_milliseconds(metric.time)});
  }
  return json::serialize(array);
}

std::vector<FinalMetric> metrics_from_text(std::string_view text) {
  std::vector<FinalMetric> metrics;
  if (text.empty()) return metrics;
  const Parsed parsed{text};
  const json::value* value = &*parsed;
  if (!value->is_array()) return metrics;
  for (const json::value& item : value->get_array()) {
    const json::array* line = item.if_array();
    if (line == nullptr || line->size() != 3 || !(*line)[0].is_string() ||
        !(*line)[1].is_string() || !(*line)[2].is_int64()) {
      continue;
    }
    metrics.push_back({std::string{(*line)[0].get_string()},
                       std::strtod((*line)[1].get_string().c_str(), nullptr),
                       from_epoch_milliseconds((*line)[2].get_int64())});
  }
  return metrics;
}

std::string to_text(const Terms& terms) {
  return json::serialize(json::object{{"spot", terms.spot},
                                      {"max_runtime", terms.max_runtime.count()},
                                      {"max_wait", terms.max_wait.count()},
                                      {"max_retries", terms.max_retries},
                                      {"instance_type", terms.instance_type},
                                      {"instance_count", terms.instance_count},
                                      {"price", terms.price_per_hour},
                                      {"spot_price", terms.spot_price_per_hour},
                                      {"currency", terms.currency}});
}

Terms terms_from_text(std::string_view text) {
  Terms terms;
  if (text.empty()) return terms;
  const Parsed parsed{text};
  const json::value* value = &*parsed;
  if (!value->is_object()) return terms;
  const auto seconds = [&](std::string_view name, std::chrono::seconds otherwise) {
    return std::chrono::seconds{find_int(*value, name).value_or(otherwise.count())};
  };
  terms.spot = find_bool(*value, "spot").value_or(false);
  terms.max_runtime = seconds("max_runtime", terms.max_runtime);
  terms.max_wait = seconds("max_wait", terms.max_wait);
  terms.max_retries = static_cast<int>(find_int(*value, "max_retries").value_or(0));
  terms.instance_type = find_string(*value, "instance_type").value_or("");
  terms.instance_count = static_cast<int>(find_int(*value, "instance_count").value_or(1));
  terms.price_per_hour = find_number(*value, "price").value_or(0);
  terms.spot_price_per_hour = find_number(*value, "spot_price").value_or(0);
  terms.currency = find_string(*value, "currency").value_or("");
  return terms;
}

std::string to_text(const Attempts& attempts) {
  return json::serialize(json::object{{"number", attempts.number},
                                      {"interruptions", attempts.interruptions},
                                      {"retries", attempts.retries},
                                      {"interrupt_requested", attempts.interrupt_requested},
                                      {"wait_exceeded", attempts.wait_exceeded},
                                      {"stop_call", attempts.stop_call},
                                      {"stopped_again", attempts.stopped_again},
                                      {"admitted", or_null(attempts.admitted)},
                                      {"began", or_null(attempts.began)},
                                      {"trained_ms", attempts.trained.count()}});
}

Attempts attempts_from_text(std::string_view text) {
  Attempts attempts;
  if (text.empty()) return attempts;
  const Parsed parsed{text};
  const json::value* value = &*parsed;
  if (!value->is_object()) return attempts;
  attempts.number = static_cast<int>(find_int(*value, "number").value_or(1));
  attempts.interruptions = static_cast<int>(find_int(*value, "interruptions").value_or(0));
  attempts.retries = static_cast<int>(find_int(*value, "retries").value_or(0));
  attempts.interrupt_requested = find_bool(*value, "interrupt_requested").value_or(false);
  attempts.wait_exceeded = find_bool(*value, "wait_exceeded").value_or(false);
  attempts.stop_call = find_string(*value, "stop_call").value_or("");
  attempts.stopped_again = find_bool(*value, "stopped_again").value_or(false);
  attempts.admitted = time_of(*value, "admitted");
  attempts.began = time_of(*value, "began");
  attempts.trained = std::chrono::milliseconds{find_int(*value, "trained_ms").value_or(0)};
  return attempts;
}

std::string to_text(const WarmPool& pool) {
  if (pool.status.empty()) return {};
  return json::serialize(json::object{{"name", pool.name},
                                      {"owner", pool.owner},
                                      {"keep_alive", pool.keep_alive.count()},
                                      {"available", or_null(pool.available)},
                                      {"retained_ms", pool.retained.count()},
                                      {"of", pool.of},
                                      {"reused_by", pool.reused_by}});
}

WarmPool warm_from_text(std::string_view status, std::string_view text) {
  WarmPool pool;
  if (status.empty()) return pool;
  pool.status = status;
  const Parsed parsed{text};
  const json::value* value = &*parsed;
  if (!value->is_object()) return pool;
  pool.name = find_string(*value, "name").value_or("");
  pool.owner = find_string(*value, "owner").value_or("");
  pool.keep_alive = std::chrono::seconds{find_int(*value, "keep_alive").value_or(0)};
  pool.available = time_of(*value, "available");
  pool.retained = std::chrono::milliseconds{find_int(*value, "retained_ms").value_or(0)};
  pool.of = find_string(*value, "of").value_or("");
  pool.reused_by = find_string(*value, "reused_by").value_or("");
  return pool;
}

}  // namespace atelier::jobs::internal
