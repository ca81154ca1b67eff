#include "vision/internal/fine_tune_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace atelier::vision {

Result<void> check_state(const FineTuneState& state, const StateBounds& bounds) {
  const auto wrong = [](std::string_view name, auto value, auto limit) {
    return Error{Code::kDataLoss,
                 fmt::format("checkpoint: '{}' is {}, it must be within {}; remove the checkpoint "
                             "to begin anew",
                             name, value, limit)};
  };
  const auto pictures = static_cast<std::int64_t>(bounds.trained_pictures);
  if (state.epoch < 1) return wrong("epoch", state.epoch, "1 and up");
  if (state.steps < 0) return wrong("steps", state.steps, "0 and up");
  if (state.epoch_pictures < 0 || state.epoch_pictures > pictures) {
    return wrong("epoch_pictures", state.epoch_pictures, fmt::format("0 and {}", pictures));
  }
  if (state.result.best_epoch < 0 || state.result.best_epoch > state.epoch) {
    return wrong("best_epoch", state.result.best_epoch, fmt::format("0 and {}", state.epoch));
  }
  // Before the first validation there is none.
  const Evaluation& best = state.result.best.evaluation;
  const bool validated = state.result.best_epoch > 0;
  const std::size_t classes = validated ? bounds.classes : 0;
  if (best.classes.size() != classes || (validated && best.multi_label != bounds.multi_label)) {
    return wrong("best.classes", best.classes.size(), fmt::format("the run's {} classes", classes));
  }
  if (best.confusion.size() != (bounds.multi_label ? 0 : classes * classes)) {
    return wrong("best.confusion", best.confusion.size(),
                 fmt::format("the run's {} classes", classes));
  }
  for (const Mistake& mistake : state.result.best.mistakes) {
    if (mistake.index >= bounds.validation_pictures) {
      return wrong("best.mistakes", mistake.index,
                   fmt::format("the {} validation pictures", bounds.validation_pictures));
    }
    const std::uint32_t shown = std::max(mistake.truth, mistake.guess);
    if (shown >= classes) return wrong("best.mistakes", shown, fmt::format("{} classes", classes));
  }
  return {};
}

}  // namespace atelier::vision
