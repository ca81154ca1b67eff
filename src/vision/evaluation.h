// What a classifier's probabilities are worth: top-1, top-k, per class and macro, confusion.
//
//   Evaluator evaluator(classes, 3);
//   evaluator.add(probabilities, labels);          // rows of `classes` numbers
//   Evaluation result = evaluator.finish();
#pragma once

#include <boost/json/fwd.hpp>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace atelier::vision {

struct ClassScore {
  std::uint64_t support = 0;    // pictures of the class
  std::uint64_t predicted = 0;  // pictures taken for it
  std::uint64_t correct = 0;
  std::uint64_t correct_top_k = 0;
  [[nodiscard]] double recall() const;
  [[nodiscard]] double precision() const;
  [[nodiscard]] double f1() const;
};

struct Evaluation {
  std::uint64_t count = 0;
  std::size_t k = 0;  // as used: at most the number of classes
  double top_1 = 0;
  double top_k = 0;
  double loss = 0;  // mean negative logarithm of the true class's probability
  // Means over the classes that have pictures.
  double macro_recall = 0, macro_precision = 0, macro_f1 = 0, macro_top_k = 0;
  std::vector<ClassScore> classes;
  std::vector<std::uint64_t> confusion;  // [truth][prediction]
};

class Evaluator {
 public:
  Evaluator(std::size_t classes, std::size_t k);
  // A label's rank counts the classes of higher probability, and of equal ones those with a lower
  // number; a row that holds a NaN is wrong at every k.
  void add(std::span<const float> probabilities, std::span<const std::int64_t> labels);
  [[nodiscard]] Evaluation finish() const;

 private:
  Evaluation counts_;
  std::uint64_t correct_top_k_ = 0;
  double loss_sum_ = 0;
};

// The classes most often taken for each other: {truth, prediction, count}, largest first.
struct Confusion {
  std::size_t truth, prediction;
  std::uint64_t count;
};
std::vector<Confusion> most_confused(const Evaluation& evaluation, std::size_t limit);

boost::json::object evaluation_to_json(const Evaluation& evaluation,
                                       const std::vector<std::string>& classes);

}  // namespace atelier::vision
