// Points in time, and the two clocks behind one interface, so that tests can own the time.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace atelier {

// Wall time with the resolution that the wire has: milliseconds since 1970 UTC.
using Time = std::chrono::sys_time<std::chrono::milliseconds>;

class Clock {
 public:
  virtual ~Clock() = default;
  [[nodiscard]] virtual Time now() const = 0;                                      // may jump
  [[nodiscard]] virtual std::chrono::steady_clock::time_point steady() const = 0;  // never does
};

// The machine's clocks; lives for the whole process.
const Clock& system_clock();

// "2026-11-30T07:05:55Z", with milliseconds when `milliseconds`: "...55.123Z".
std::string format_iso8601(Time time, bool milliseconds = false);
// "20261130T070555Z", as SigV4 wants it.
std::string format_basic_iso8601(Time time);
// "Mon, 30 Nov 2026 07:05:55 GMT", as HTTP headers have it.
std::string format_http_date(Time time);

Result<Time> parse_iso8601(std::string_view text);    // extended or basic, with or without fraction
Result<Time> parse_http_date(std::string_view text);  // IMF-fixdate only

// Seconds since 1970 with a millisecond fraction, as AWS JSON writes timestamps.
double to_epoch_seconds(Time time);
Time from_epoch_seconds(double seconds);
inline std::int64_t to_epoch_milliseconds(Time time) { return time.time_since_epoch().count(); }
inline Time from_epoch_milliseconds(std::int64_t value) {
  return Time{std::chrono::milliseconds{value}};
}

}  // namespace atelier
