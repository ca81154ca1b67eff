#include "vision/evaluation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/json.h"

namespace atelier::vision {
namespace {

double share(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
}

// Classes before `label` in the order of falling probability; all of them when the row holds a NaN.
std::size_t rank_of(std::span<const float> row, std::size_t label) {
  std::size_t rank = 0;
  for (std::size_t c = 0; c < row.size(); ++c) {
    if (std::isnan(row[c])) return row.size();
    if (row[c] > row[label] || (row[c] == row[label] && c < label)) ++rank;
  }
  return rank;
}

}  // namespace

double ClassScore::recall() const { return share(correct, support); }
double ClassScore::precision() const { return share(correct, predicted); }
double ClassScore::f1() const { return share(2 * correct, support + predicted); }

Evaluator::Evaluator(std::size_t classes, std::size_t k, bool multi_label) {
  ATELIER_CHECK(classes > 0 && k > 0, "an evaluation needs classes and a k");
  counts_.k = std::min(k, classes);
  counts_.classes.resize(classes);
  counts_.multi_label = multi_label;
  if (!multi_label) counts_.confusion.resize(classes * classes);
}

void Evaluator::add_set(std::span<const float> probabilities,
                        std::span<const std::uint32_t> labels) {
  ATELIER_CHECK(probabilities.size() == counts_.classes.size(), "a row of probabilities is short");
  bool exact = true;
  double loss = 0;
  std::size_t next = 0;
  for (std::size_t c = 0; c < probabilities.size(); ++c) {
    const bool truth = next < labels.size() && labels[next] == c;
    if (truth) ++next;
    const auto p = static_cast<double>(probabilities[c]);
    const bool predicted = p >= 0.5;  // a NaN is none
    ClassScore& score = counts_.classes[c];
    if (truth) ++score.support;
    if (predicted) ++score.predicted;
    if (truth && predicted) ++score.correct;
    exact = exact && truth == predicted;
    loss -= std::log(std::max(truth ? p : 1 - p, 1e-12));
  }
  ++counts_.count;
  if (exact) ++exact_;
  loss_sum_ += loss / static_cast<double>(probabilities.size());
}

void Evaluator::finish_sets(Evaluation& result) const {
  std::uint64_t correct = 0;
  std::uint64_t support = 0;
  std::uint64_t predicted = 0;
  std::uint64_t wrong = 0;
  for (const ClassScore& score : result.classes) {
    correct += score.correct;
    support += score.support;
    predicted += score.predicted;
    wrong += score.support + score.predicted - 2 * score.correct;
  }
  const std::uint64_t answers = result.count * result.classes.size();
  result.k = 0;
  result.top_1 = share(answers - wrong, answers);
  result.top_k = result.macro_top_k = 0;
  result.micro_precision = share(correct, predicted);
  result.micro_recall = share(correct, support);
  result.micro_f1 = share(2 * correct, support + predicted);
  result.exact = share(exact_, result.count);
}

void Evaluator::add(std::span<const float> probabilities, std::span<const std::int64_t> labels) {
  const std::size_t classes = counts_.classes.size();
  ATELIER_CHECK(probabilities.size() == labels.size() * classes, "a row of probabilities is short");
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const auto row = probabilities.subspan(i * classes, classes);
    const auto label = static_cast<std::size_t>(labels[i]);
    ATELIER_CHECK(label < classes, "a label has no class");
    const std::size_t rank = rank_of(row, label);
    const auto best =
        static_cast<std::size_t>(std::max_element(row.begin(), row.end()) - row.begin());
    ClassScore& score = counts_.classes[label];
    ++counts_.count;
    ++score.support;
    ++counts_.classes[best].predicted;
    ++counts_.confusion[label * classes + best];
    if (rank == 0) ++score.correct;
    if (rank < counts_.k) {
      ++score.correct_top_k;
      ++correct_top_k_;
    }
    loss_sum_ -= std::log(std::max(static_cast<double>(row[label]), 1e-12));
  }
}

Evaluation Evaluator::finish() const {
  Evaluation result = counts_;
  std::uint64_t correct = 0;
  std::size_t present = 0;
  for (const ClassScore& score : result.classes) {
    correct += score.correct;
    if (score.support == 0) continue;
    ++present;
    result.macro_recall += score.recall();
    result.macro_precision += score.precision();
    result.macro_f1 += score.f1();
    result.macro_top_k += share(score.correct_top_k, score.support);
  }
  const double divisor = present == 0 ? 1.0 : static_cast<double>(present);
  for (double* mean :
       {&result.macro_recall, &result.macro_precision, &result.macro_f1, &result.macro_top_k}) {
    *mean /= divisor;
  }
  result.top_1 = share(correct, result.count);
  result.top_k = share(correct_top_k_, result.count);
  result.loss = result.count == 0 ? 0.0 : loss_sum_ / static_cast<double>(result.count);
  if (result.multi_label) finish_sets(result);
  return result;
}

std::vector<Confusion> most_confused(const Evaluation& evaluation, std::size_t limit) {
  const std::size_t classes = evaluation.classes.size();
  std::vector<Confusion> all;
  if (evaluation.multi_label) return all;
  for (std::size_t truth = 0; truth < classes; ++truth) {
    for (std::size_t guess = 0; guess < classes; ++guess) {
      const std::uint64_t count = evaluation.confusion[truth * classes + guess];
      if (truth != guess && count > 0) all.push_back({truth, guess, count});
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Confusion& a, const Confusion& b) { return a.count > b.count; });
  if (all.size() > limit) all.resize(limit);
  return all;
}

boost::json::object evaluation_to_json(const Evaluation& e,
                                       const std::vector<std::string>& classes) {
  json::object per_class;
  for (std::size_t c = 0; c < e.classes.size(); ++c) {
    const ClassScore& s = e.classes[c];
    per_class[classes[c]] = {
        {"support", s.support}, {"predicted", s.predicted},
        {"recall", s.recall()}, {"precision", s.precision()},
        {"f1", s.f1()},         {"top_k_recall", share(s.correct_top_k, s.support)}};
    if (e.multi_label) per_class[classes[c]].as_object().erase("top_k_recall");
  }
  if (e.multi_label) {
    return {{"count", e.count},
            {"accuracy", e.top_1},
            {"exact", e.exact},
            {"loss", e.loss},
            {"micro",
             {{"recall", e.micro_recall}, {"precision", e.micro_precision}, {"f1", e.micro_f1}}},
            {"macro",
             {{"recall", e.macro_recall}, {"precision", e.macro_precision}, {"f1", e.macro_f1}}},
            {"per_class", std::move(per_class)}};
  }
  json::array confusion;
  for (std::size_t truth = 0; truth < e.classes.size(); ++truth) {
    json::array row;
    for (std::size_t guess = 0; guess < e.classes.size(); ++guess) {
      row.push_back(e.confusion[truth * e.classes.size() + guess]);
    }
    confusion.push_back(std::move(row));
  }
  json::array confused;
  for (const Confusion& c : most_confused(e, 20)) {
    confused.push_back(
        {{"truth", classes[c.truth]}, {"taken_for", classes[c.prediction]}, {"count", c.count}});
  }
  return {{"count", e.count},
          {"accuracy", e.top_1},
          {"k", e.k},
          {"top_k_accuracy", e.top_k},
          {"loss", e.loss},
          {"macro",
           {{"recall", e.macro_recall},
            {"precision", e.macro_precision},
            {"f1", e.macro_f1},
            {"top_k_recall", e.macro_top_k}}},
          {"per_class", std::move(per_class)},
          {"confusion", std::move(confusion)},
          {"most_confused", std::move(confused)}};
}

}  // namespace atelier::vision
