// What a training leaves besides weights: the model card, evaluation.json, and pictures for people.
#pragma once

#include <boost/json/fwd.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"
#include "vision/evaluation.h"
#include "vision/image.h"

namespace atelier::vision {

// A sheet of the most confident mistakes: each picture with what it is and what it was taken for.
Result<Image> mistake_sheet(const ImageFolder& folder, const std::vector<Mistake>& mistakes,
                            const std::string& title);

// Truth down, prediction across, darker is more; with counts where they fit.
Image confusion_picture(const Evaluation& evaluation, const std::vector<std::string>& classes);

// evaluation.json, and with one label a picture mistakes.png and confusion.png, in `folder`.
// `parts` are named evaluations, the first of which the pictures show.
struct NamedEvaluation {
  std::string name;
  const ImageFolder* folder = nullptr;
  const EvaluationRun* run = nullptr;
};
Result<void> write_reports(const std::filesystem::path& folder,
                           const std::vector<NamedEvaluation>& parts,
                           const std::vector<std::string>& classes);

boost::json::array damaged_to_json(const std::vector<DamagedPicture>& damaged);

}  // namespace atelier::vision
