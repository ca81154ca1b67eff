// What people see while they wait: colour only on a terminal, one progress line with rate and ETA
// on anything that takes over two seconds, and plain lines where the output goes to a file.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace atelier::cli {

enum class Style { kBold, kDim, kGreen, kYellow, kRed, kCyan };

// Whether stderr / stdout is a terminal that takes colour (NO_COLOR and TERM=dumb are honoured).
bool colour_on_stderr();
bool colour_on_stdout();
// `text` in `style` when `colour`.
std::string styled(std::string_view text, Style style, bool colour);

// What a stranger named, safe to show: control characters as \xNN, so that none reaches the
// terminal. `kept`: those that stay as they are.
std::string printable(std::string_view text);
std::string printable(std::string_view text, std::string_view kept);
// What a program wrote, for stdout / stderr: printable with its tabs and line ends on a terminal,
// as it is for anything else.
std::string shown_on_stdout(std::string_view text);
std::string shown_on_stderr(std::string_view text);

std::string format_bytes(double bytes);                      // "1.5 GiB"
std::string format_duration(std::chrono::seconds duration);  // "1 h 02 min", "3 min 05 s", "12 s"
std::string format_count(double count);                      // "70,000"

// One line on stderr that is drawn over and over; not safe from several threads.
class Progress {
 public:
  enum class Unit { kItems, kBytes };
  Progress(std::string label, Unit unit, bool quiet = false);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  // Draws at most ten times a second on a terminal, every ten seconds elsewhere. `total` 0:
  // unknown.
  void update(std::uint64_t done, std::uint64_t total, std::string_view note = {});
  // Clears the line; the caller prints what is to stay.
  void finish();

 private:
  std::string line(std::uint64_t done, std::uint64_t total, std::string_view note) const;

  std::string label_;
  Unit unit_;
  bool quiet_;
  bool terminal_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point last_{};
};

}  // namespace atelier::cli
