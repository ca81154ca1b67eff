#include "cli/terminal.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace atelier::cli {
namespace {

bool takes_colour(int fd) {
  const char* no_colour = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  return isatty(fd) == 1 && (no_colour == nullptr || *no_colour == '\0') &&
         (term == nullptr || std::strcmp(term, "dumb") != 0);
}

std::size_t terminal_width() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

std::string bar(double fraction, std::size_t width) {
  const auto filled =
      static_cast<std::size_t>(std::clamp(fraction, 0.0, 1.0) * static_cast<double>(width));
  std::string text;
  for (std::size_t i = 0; i < width; ++i) text += i < filled ? "█" : "░";
  return text;
}

}  // namespace

bool colour_on_stderr() { return takes_colour(STDERR_FILENO); }
bool colour_on_stdout() { return takes_colour(STDOUT_FILENO); }

std::string styled(std::string_view text, Style style, bool colour) {
  if (!colour) return std::string{text};
  const char* code = "0";
  switch (style) {
    case Style::kBold:
      code = "1";
      break;
    case Style::kDim:
      code = "2";
      break;
    case Style::kGreen:
      code = "32";
      break;
    case Style::kYellow:
      code = "33";
      break;
    case Style::kRed:
      code = "31";
      break;
    case Style::kCyan:
      code = "36";
      break;
  }
  return fmt::format("\x1b[{}m{}\x1b[0m", code, text);
}

std::string printable(std::string_view text) { return printable(text, {}); }

std::string printable(std::string_view text, std::string_view kept) {
  std::string shown;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    const bool control = (byte < 0x20 || byte == 0x7f) && kept.find(text[i]) == kept.npos;
    // U+0080 to U+009F, which terminals obey as well.
    const bool more = byte == 0xc2 && next >= 0x80 && next < 0xa0;
    if (control || more) {
      shown += fmt::format("\\x{:02x}", more ? next : byte);
      if (more) ++i;
    } else {
      shown += text[i];
    }
  }
  return shown;
}

namespace {

std::string shown_on(int descriptor, std::string_view text) {
  return isatty(descriptor) == 1 ? printable(text, "\t\n") : std::string{text};
}

}  // namespace

std::string shown_on_stdout(std::string_view text) { return shown_on(STDOUT_FILENO, text); }
std::string shown_on_stderr(std::string_view text) { return shown_on(STDERR_FILENO, text); }

std::string format_bytes(double bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  while (bytes >= 1024 && unit < 4) {
    bytes /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, kUnits[unit]);
}

std::string format_duration(std::chrono::seconds duration) {
  const auto seconds = std::max<std::int64_t>(duration.count(), 0);
  if (seconds < 60) return fmt::format("{} s", seconds);
  if (seconds < 3600) return fmt::format("{} min {:02} s", seconds / 60, seconds % 60);
  return fmt::format("{} h {:02} min", seconds / 3600, seconds / 60 % 60);
}

std::string format_count(double count) {
  std::string text = fmt::format("{:.0f}", count);
  for (std::size_t i = text.size(); i > 3;) {
    i -= 3;
    text.insert(i, ",");
  }
  return text;
}

Progress::Progress(std::string label, Unit unit, bool quiet)
    : label_(std::move(label)),
      unit_(unit),
      quiet_(quiet),
      terminal_(isatty(STDERR_FILENO) == 1),
      start_(std::chrono::steady_clock::now()) {}

Progress::~Progress() { finish(); }

std::string Progress::line(std::uint64_t done, std::uint64_t total, std::string_view note) const {
  const double elapsed = std::max(
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(), 1e-3);
  const double rate = static_cast<double>(done) / elapsed;
  const auto amount = [this](double value) {
    return unit_ == Unit::kBytes ? format_bytes(value) : format_count(value);
  };
  std::string text = label_;
  if (total > 0) {
    const double fraction = static_cast<double>(done) / static_cast<double>(total);
    text += fmt::format(" {} {:3.0f} %  {} of {}", bar(fraction, 20), fraction * 100,
                        amount(static_cast<double>(done)), amount(static_cast<double>(total)));
  } else {
    text += "  " + amount(static_cast<double>(done));
  }
  text += fmt::format("  {}/s", amount(rate));
  if (total > done && rate > 0) {
    const double left = static_cast<double>(total - done) / rate;
    text += "  ETA " + format_duration(std::chrono::seconds{static_cast<std::int64_t>(left) + 1});
  }
  if (!note.empty()) text += fmt::format("  {}", note);
  return text;
}

void Progress::update(std::uint64_t done, std::uint64_t total, std::string_view note) {
  using namespace std::chrono_literals;
  const auto now = std::chrono::steady_clock::now();
  if (quiet_ || now - start_ < 2s || now - last_ < (terminal_ ? 100ms : 10000ms)) return;
  last_ = now;
  std::string text = line(done, total, note);
  if (terminal_) {
    // Cut by bytes is good enough: the bar is the only part that is not ASCII, and it stands in
    // front.
    const std::size_t bar_excess = total > 0 ? 40 : 0;
    text.resize(std::min(text.size(), terminal_width() - 1 + bar_excess));
    std::fprintf(stderr, "\r\x1b[2K%s", text.c_str());
    drawn_ = true;
  } else {
    std::fprintf(stderr, "%s\n", text.c_str());
  }
  std::fflush(stderr);
}

void Progress::finish() {
  if (drawn_) std::fputs("\r\x1b[2K", stderr);
  drawn_ = false;
}

}  // namespace atelier::cli
