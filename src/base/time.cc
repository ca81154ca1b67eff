#include "base/time.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <ctime>

namespace atelier {
namespace {

class SystemClock final : public Clock {
 public:
  Time now() const override {
    return std::chrono::time_point_cast<std::chrono::milliseconds>(
        std::chrono::system_clock::now());
  }
  std::chrono::steady_clock::time_point steady() const override {
    return std::chrono::steady_clock::now();
  }
};

std::tm split(Time time) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(time);
  const std::time_t value = static_cast<std::time_t>(seconds.time_since_epoch().count());
  std::tm parts{};
  gmtime_r(&value, &parts);
  return parts;
}

std::string format(Time time, const char* pattern) {
  const std::tm parts = split(time);
  std::array<char, 64> buffer{};
  const std::size_t length = std::strftime(buffer.data(), buffer.size(), pattern, &parts);
  return {buffer.data(), length};
}

Error bad_time(std::string_view text, const char* example) {
  return Error{Code::kInvalidArgument,
               "'" + std::string{text} + "' is not a time; write it like " + example};
}

// strptime accepts leading blanks and short fields; writing the result back shows whether it was
// exact.
Result<Time> parse_exact(const std::string& text, const char* pattern, const char* example) {
  std::tm parts{};
  const char* end = strptime(text.c_str(), pattern, &parts);
  if (end == nullptr || *end != '\0') return bad_time(text, example);
  const Time time{std::chrono::seconds{timegm(&parts)}};
  if (format(time, pattern) != text) return bad_time(text, example);
  return time;
}

}  // namespace

const Clock& system_clock() {
  static const SystemClock clock;
  return clock;
}

std::string format_iso8601(Time time, bool milliseconds) {
  std::string text = format(time, "%Y-%m-%dT%H:%M:%S");
  if (milliseconds) {
    const auto fraction = time - std::chrono::floor<std::chrono::seconds>(time);
    std::array<char, 8> buffer{};
    std::snprintf(buffer.data(), buffer.size(), ".%03d", static_cast<int>(fraction.count()));
    text += buffer.data();
  }
  return text + "Z";
}

std::string format_basic_iso8601(Time time) { return format(time, "%Y%m%dT%H%M%SZ"); }

std::string format_http_date(Time time) { return format(time, "%a, %d %b %Y %H:%M:%S GMT"); }

Result<Time> parse_iso8601(std::string_view text) {
  static constexpr const char* kExample = "2026-11-30T07:05:55Z";
  if (text.size() < 16 || text.size() > 32) return bad_time(text.substr(0, 64), kExample);
  std::string whole{text};
  std::chrono::milliseconds fraction{0};
  if (const std::size_t dot = whole.find('.'); dot != std::string::npos) {
    int digits = 0;
    int value = 0;
    std::size_t position = dot + 1;
    for (; position < whole.size() && whole[position] >= '0' && whole[position] <= '9';
         ++position) {
      if (digits < 3) {
        value = value * 10 + (whole[position] - '0');
        ++digits;
      }
    }
    if (digits == 0) return bad_time(text, kExample);
    for (; digits < 3; ++digits) value *= 10;
    fraction = std::chrono::milliseconds{value};
    whole.erase(dot, position - dot);
  }
  if (whole.ends_with("+00:00")) whole.replace(whole.size() - 6, 6, "Z");
  const char* pattern = whole[4] == '-' ? "%Y-%m-%dT%H:%M:%SZ" : "%Y%m%dT%H%M%SZ";
  Result<Time> time = parse_exact(whole, pattern, kExample);
  if (!time) return bad_time(text, kExample);
  return *time + fraction;
}

Result<Time> parse_http_date(std::string_view text) {
  if (text.size() > 40) return bad_time(text.substr(0, 40), "Mon, 30 Nov 2026 07:05:55 GMT");
  return parse_exact(std::string{text}, "%a, %d %b %Y %H:%M:%S GMT",
                     "Mon, 30 Nov 2026 07:05:55 GMT");
}

double to_epoch_seconds(Time time) {
  return static_cast<double>(time.time_since_epoch().count()) / 1000.0;
}

Time from_epoch_seconds(double seconds) {
  return Time{std::chrono::milliseconds{std::llround(seconds * 1000.0)}};
}

}  // namespace atelier
