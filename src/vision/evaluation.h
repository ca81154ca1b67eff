// What a classifier's probabilities are worth: top-1, top-k, per class and macro, confusion; with
// several labels a picture, what each class's yes or no is worth.
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

#include "vision/image_folder.h"

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
  // With several labels a picture a class is predicted from a probability of 1/2 on; top_1 is then
  // the mean over the classes of their accuracy (SageMaker's accuracy for multi_label), loss the
  // mean binary cross-entropy, and there is neither top_k nor confusion.
  bool multi_label = false;
  double micro_precision = 0, micro_recall = 0, micro_f1 = 0;
  double exact = 0;  // share of the pictures whose labels are all right
};

class Evaluator {
 public:
  Evaluator(std::size_t classes, std::size_t k, bool multi_label = false);
  // A label's rank counts the classes of higher probability, and of equal ones those with a lower
  // number; a row that holds a NaN is wrong at every k.
  void add(std::span<const float> probabilities, std::span<const std::int64_t> labels);
  // One picture with several labels: `labels` are rising class numbers.
  void add_set(std::span<const float> probabilities, std::span<const std::uint32_t> labels);
  [[nodiscard]] Evaluation finish() const;

 private:
  void finish_sets(Evaluation& result) const;

  Evaluation counts_;
  std::uint64_t exact_ = 0;
  std::uint64_t correct_top_k_ = 0;
  double loss_sum_ = 0;
};

// A picture that was taken for another class, for the contact sheet.
struct Mistake {
  std::uint32_t index = 0;  // of the sample
  std::uint32_t truth = 0;
  std::uint32_t guess = 0;
  float probability = 0;  // of the guess
};

struct EvaluationRun {
  Evaluation evaluation;
  std::vector<Mistake> mistakes;  // the most confident ones, first
  std::vector<DamagedPicture> damaged;
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
