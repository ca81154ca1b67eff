// Cuts a program's output into lines: '\n' and "\r\n" end one, '\r' alone begins the line again (a
// progress bar), of which one state a second is kept. What has no end is given out after a moment.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace atelier::agent {

class LineCutter {
 public:
  using Clock = std::chrono::steady_clock;
  using Emit = std::function<void(std::string_view line)>;
  static constexpr std::chrono::milliseconds kPatience{500};
  static constexpr std::chrono::milliseconds kProgressInterval{1000};
  static constexpr std::size_t kMaxLine = std::size_t{256} << 10;

  void feed(std::string_view bytes, Clock::time_point now, const Emit& emit);
  // When give_out() is due, if anything is held.
  [[nodiscard]] std::optional<Clock::time_point> deadline() const;
  // Emits what is held, although its end has not come.
  void give_out(const Emit& emit);

 private:
  void end_line(std::string_view line, const Emit& emit);
  void overwrite(std::string_view line, Clock::time_point now, const Emit& emit);
  void take(std::string_view piece, const Emit& emit);

  std::string held_;        // of the current line
  std::string progress_;    // the last state of a progress bar that was not emitted
  bool after_cr_ = false;   // the byte before was '\r', which may belong to a '\n'
  bool given_out_ = false;  // the current line's beginning was emitted already
  Clock::time_point touched_{};
  Clock::time_point last_progress_{};
};

}  // namespace atelier::agent
