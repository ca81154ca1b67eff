// Search and GetSearchSuggestions over training jobs. Of the other kinds that Search knows there
// are none here, so nothing of them is found.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "api/operations.h"
#include "api/search_expression.h"
#include "api/training.h"
#include "api/validate.h"
#include "base/hash.h"

namespace atelier::api {
namespace {

using jobs::ListQuery;

constexpr std::size_t kMostSuggestions = 100;
constexpr std::size_t kJobsForSuggestions = 100;  // whose names of metrics, tags and such are known

// A training job in Search's reply. The model has left WarmPoolStatus out of it; who keeps warm
// pools looks for them by it, and clients pass over members that they do not know.
const Shape& resource_shape() {
  static const std::vector<Member> members = [] {
    const ServiceModel& sagemaker = *find_service("sagemaker");
    const Shape& results = *find_operation(sagemaker, "Search")->output;
    const Shape& job =
        *member_of(*member_of(results, "Results")->shape->element, "TrainingJob")->shape;
    std::vector<Member> all(job.members.begin(), job.members.end());
    const Shape& described = *find_operation(sagemaker, "DescribeTrainingJob")->output;
    if (member_of(job, "WarmPoolStatus") == nullptr) {
      all.push_back(*member_of(described, "WarmPoolStatus"));
    }
    return all;
  }();
  static const Shape shape{.kind = Kind::kStructure,
                           .name = "TrainingJob",
                           .min = {},
                           .max = {},
                           .members = members,
                           .element = nullptr,
                           .key = nullptr,
                           .values = {},
                           .pattern = -1};
  return shape;
}

// What is searched and given of a job; nothing when its stored request cannot be read.
std::optional<json::value> document_of(const jobs::TrainingJob& job, const Call& call) {
  Result<json::object> document =
      training_job_document(job, resource_shape(), call.parts.clock.now(), {});
  if (!document) return std::nullopt;
  return json::value(*std::move(document));
}

// Sorted by what the store has an index of: read page by page, as far as it takes.
std::optional<ListQuery::SortBy> indexed(std::string_view property) {
  if (property == "LastModifiedTime") return ListQuery::SortBy::kModifiedTime;
  if (property == "CreationTime") return ListQuery::SortBy::kCreationTime;
  if (property == "TrainingJobName") return ListQuery::SortBy::kName;
  if (property == "TrainingJobStatus") return ListQuery::SortBy::kStatus;
  return std::nullopt;
}

// What has to hold of every job that is found, where the store itself can tell: it saves reading
// the jobs of which it does not.
void narrow(const json::value& request, ListQuery& query) {
  const json::value* expression = find_member(request, "SearchExpression");
  if (expression == nullptr || find_string(*expression, "Operator") == "Or") return;
  const json::array* filters = find_array(*expression, "Filters");
  if (filters == nullptr) return;
  for (const json::value& filter : *filters) {
    const auto name = find_string(filter, "Name");
    const std::string operation = find_string(filter, "Operator").value_or("Equals");
    const std::string value = find_string(filter, "Value").value_or("");
    if (name == "TrainingJobStatus" && operation == "Equals") query.status_equals = value;
    if (name == "WarmPoolStatus.Status" && operation == "Equals") query.warm_status_equals = value;
    if (name == "TrainingJobName" && (operation == "Equals" || operation == "Contains")) {
      query.name_contains = value;
    }
  }
}

// Tells searches apart in their tokens.
std::string id_of(const json::value& request) {
  json::value same = request;
  same.get_object().erase("NextToken");
  same.get_object().erase("MaxResults");
  return sha256_hex(json::serialize(same));
}

// A place in an order that only the documents have: the value sorted by, and the job's name. Jobs
// without the value come last.
struct Place {
  bool absent = true;
  double number = 0;
  std::string text, name;
  auto operator<=>(const Place&) const = default;
};

Place place_of(const json::value& document, const std::string& property, const std::string& name) {
  Place place;
  place.name = name;
  const std::vector<json::value> values = property_values(document, property);
  if (values.empty()) return place;
  place.absent = false;
  if (values.front().is_number()) {
    place.number = values.front().to_number<double>();
  } else if (values.front().is_string()) {
    place.text = values.front().get_string();
    place.number = std::strtod(place.text.c_str(), nullptr);  // hyperparameters are texts
  } else {
    place.text = json::serialize(values.front());
  }
  return place;
}

struct Found {
  std::vector<json::value> documents;
  std::string next_token;
};

Result<Found> search_by_index(const Call& call, const SearchExpression& expression,
                              const ListQuery& query) {
  Found found;
  const auto page = TRY(call.parts.jobs.find(query, [&](const jobs::TrainingJob& job) {
    std::optional<json::value> document = document_of(job, call);
    if (!document || !expression.matches(*document)) return false;
    found.documents.push_back(*std::move(document));
    return true;
  }));
  found.documents.resize(page.jobs.size());  // without that of the next page's first
  found.next_token = page.next_token;
  return found;
}

// Reads all jobs and sorts their places; the token is how many were given before.
Result<Found> search_by_value(const Call& call, const SearchExpression& expression,
                              const std::string& property, ListQuery query) {
  std::size_t from = 0;
  const std::string id = query.filter_id.substr(0, 16);
  if (!query.next_token.empty()) {
    const Result<std::string> token = from_base64(query.next_token);
    if (!token || !token->starts_with(id + "/")) {
      return Error{Code::kInvalidArgument, "NextToken is not one that this search gave"};
    }
    from = std::strtoull(token->c_str() + id.size() + 1, nullptr, 10);
  }
  std::vector<Place> places;
  const std::size_t limit = query.max_results;
  const bool ascending = query.ascending;
  query.sort_by = ListQuery::SortBy::kCreationTime;
  query.next_token.clear();
  TRY(call.parts.jobs.find(query, [&](const jobs::TrainingJob& job) {
    const std::optional<json::value> document = document_of(job, call);
    if (document && expression.matches(*document)) {
      places.push_back(place_of(*document, property, job.name));
    }
    return false;  // only looked at
  }));
  std::ranges::sort(places, [&](const Place& a, const Place& b) {
    if (a.absent != b.absent) return b.absent;
    return ascending ? a < b : b < a;
  });
  Found found;
  for (std::size_t i = from; i < places.size() && found.documents.size() < limit; ++i) {
    const Result<jobs::TrainingJob> job = call.parts.jobs.describe(places[i].name);
    if (!job) continue;  // deleted meanwhile
    if (auto document = document_of(*job, call)) found.documents.push_back(*std::move(document));
  }
  if (from + limit < places.size()) {
    found.next_token = to_base64(fmt::format("{}/{}", id, from + limit));
  }
  return found;
}

Result<Found> search_jobs(const Call& call) {
  const SearchExpression expression = TRY(SearchExpression::read(call.input, resource_shape()));
  const std::string property = find_string(call.input, "SortBy").value_or("LastModifiedTime");
  if (!has_property(resource_shape(), property)) {
    return Error{Code::kInvalidArgument,
                 fmt::format("SortBy '{}' is not a property of a training job", property)};
  }
  ListQuery query;
  narrow(call.input, query);
  query.ascending = find_string(call.input, "SortOrder") == "Ascending";
  query.max_results = static_cast<std::size_t>(find_int(call.input, "MaxResults").value_or(10));
  query.next_token = find_string(call.input, "NextToken").value_or("");
  query.filter_id = id_of(call.input);
  if (const auto sort_by = indexed(property)) {
    query.sort_by = *sort_by;
    return search_by_index(call, expression, query);
  }
  return search_by_value(call, expression, property, query);
}

}  // namespace

Outcome search(const Call& call) {
  if (find_string(call.input, "CrossAccountFilterOption") == "CrossAccount") {
    return validation_error("CrossAccountFilterOption CrossAccount: there is one account here");
  }
  json::object out{{"Results", json::array{}}};
  if (find_string(call.input, "Resource") != "TrainingJob") return out;
  Result<Found> found = search_jobs(call);
  if (!found) return from_error(found.error());
  json::array& results = out["Results"].get_array();
  for (const json::value& document : found->documents) {
    results.push_back(json::object{{"TrainingJob", project(document, resource_shape())}});
  }
  if (!found->next_token.empty()) out.emplace("NextToken", found->next_token);
  return out;
}

namespace {

// Names that jobs have given themselves: of metrics, hyperparameters and tags.
void add_own_names(const jobs::TrainingJob& job, const json::value& document,
                   std::set<std::string>& names) {
  for (const auto& metric : job.final_metrics) names.insert("Metrics." + metric.name);
  if (const json::object* given = find_object(document, "HyperParameters")) {
    for (const auto& [name, value] : *given) names.insert("HyperParameters." + std::string(name));
  }
  if (const json::array* tags = find_array(document, "Tags")) {
    for (const json::value& tag : *tags) {
      names.insert("Tags." + find_string(tag, "Key").value_or(""));
    }
  }
}

Result<std::set<std::string>> known_properties(const Call& call) {
  const std::vector<std::string> fixed = property_names(resource_shape());
  std::set<std::string> names(fixed.begin(), fixed.end());
  ListQuery newest;
  newest.max_results = kJobsForSuggestions;
  const auto page = TRY(call.parts.jobs.find(newest, jobs::every_job));
  for (const jobs::TrainingJob& job : page.jobs) {
    if (const auto document = document_of(job, call)) add_own_names(job, *document, names);
  }
  return names;
}

}  // namespace

Outcome get_search_suggestions(const Call& call) {
  std::string hint;
  if (const json::value* query = find_member(call.input, "SuggestionQuery")) {
    if (const json::value* by_name = find_member(*query, "PropertyNameQuery")) {
      hint = find_string(*by_name, "PropertyNameHint").value_or("");
    }
  }
  json::array suggestions;
  if (find_string(call.input, "Resource") == "TrainingJob") {
    const Result<std::set<std::string>> names = known_properties(call);
    if (!names) return from_error(names.error());
    for (const std::string& name : *names) {
      if (suggestions.size() == kMostSuggestions) break;
      if (name.find(hint) == std::string::npos) continue;
      suggestions.push_back(json::object{{"PropertyName", name}});
    }
  }
  return json::object{{"PropertyNameSuggestions", std::move(suggestions)}};
}

}  // namespace atelier::api
