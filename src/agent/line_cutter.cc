#include "agent/line_cutter.h"

#include <algorithm>

namespace atelier::agent {

void LineCutter::feed(std::string_view bytes, Clock::time_point now, const Emit& emit) {
  touched_ = now;
  while (!bytes.empty()) {
    if (after_cr_) {
      after_cr_ = false;
      if (bytes.front() == '\n') {
        bytes.remove_prefix(1);
        end_line({}, emit);
        continue;
      }
      overwrite({}, now, emit);
    }
    const std::size_t end = std::min(bytes.find('\n'), bytes.size());
    const std::size_t back = std::min(bytes.substr(0, end).find('\r'), end);
    if (back < end) {
      take(bytes.substr(0, back), emit);
      bytes.remove_prefix(back + 1);
      after_cr_ = true;
    } else if (end < bytes.size()) {
      end_line(bytes.substr(0, end), emit);
      bytes.remove_prefix(end + 1);
    } else {
      take(bytes, emit);
      return;
    }
  }
}

// Keeps a piece of the current line.
void LineCutter::take(std::string_view piece, const Emit& emit) {
  while (held_.size() + piece.size() > kMaxLine) {
    const std::size_t room = kMaxLine - held_.size();
    held_.append(piece.substr(0, room));
    piece.remove_prefix(room);
    emit(held_);
    held_.clear();
    given_out_ = true;
  }
  held_.append(piece);
}

void LineCutter::end_line(std::string_view line, const Emit& emit) {
  progress_.clear();
  if (held_.empty() && line.size() <= kMaxLine) {
    // The end alone of a line that was given out adds nothing.
    if (!line.empty() || !given_out_) emit(line);
  } else {
    take(line, emit);
    emit(held_);
    held_.clear();
  }
  given_out_ = false;
}

void LineCutter::overwrite(std::string_view line, Clock::time_point now, const Emit& emit) {
  take(line, emit);
  given_out_ = false;
  if (held_.empty()) return;
  if (now - last_progress_ >= kProgressInterval) {
    emit(held_);
    last_progress_ = now;
    progress_.clear();
  } else {
    progress_ = held_;
  }
  held_.clear();
}

std::optional<LineCutter::Clock::time_point> LineCutter::deadline() const {
  if (held_.empty() && progress_.empty()) return std::nullopt;
  return touched_ + kPatience;
}

void LineCutter::give_out(const Emit& emit) {
  if (!held_.empty()) {
    emit(held_);
    given_out_ = !after_cr_;
    after_cr_ = false;
  } else if (!progress_.empty()) {
    emit(progress_);
  }
  held_.clear();
  progress_.clear();
}

}  // namespace atelier::agent
