#include "compute/socket_users.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <string>

#include "base/file.h"

namespace atelier::compute {
namespace {

constexpr std::size_t kMaxTable = std::size_t{64} << 20;
constexpr std::string_view kTimeWait = "06";  // belongs to nobody any more
constexpr std::string_view kListen = "0A";

// The kernel prints an address as words in the byte order of the host.
std::string as_words(const unsigned char* bytes, std::size_t size) {
  std::string text;
  for (std::size_t at = 0; at < size; at += 4) {
    std::uint32_t word = 0;
    std::memcpy(&word, bytes + at, 4);
    text += fmt::format("{:08X}", word);
  }
  return text;
}

struct Place {
  std::string v4, v6;  // as the two tables have it, with the port; empty: it is none of those
};

Result<Place> parse_place(std::string_view address) {
  const std::size_t colon = address.rfind(':');
  const Error wrong{Code::kInvalidArgument,
                    fmt::format("'{}' is no address with a port", address.substr(0, 100))};
  if (colon == std::string_view::npos) return wrong;
  unsigned port = 0;
  const std::string_view digits = address.substr(colon + 1);
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (parsed.ec != std::errc{} || parsed.ptr != digits.data() + digits.size() || port > 0xffff) {
    return wrong;
  }
  std::string host{address.substr(0, colon)};
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  std::array<unsigned char, 16> bytes{};
  Place place;
  const std::string end = fmt::format(":{:04X}", port);
  if (inet_pton(AF_INET, host.c_str(), bytes.data()) == 1) {
    place.v4 = as_words(bytes.data(), 4) + end;
    // A socket of version 6 that speaks version 4.
    std::array<unsigned char, 16> mapped{};
    mapped[10] = mapped[11] = 0xff;
    std::copy_n(bytes.begin(), 4, mapped.begin() + 12);
    place.v6 = as_words(mapped.data(), 16) + end;
    return place;
  }
  if (inet_pton(AF_INET6, host.c_str(), bytes.data()) != 1) return wrong;
  place.v6 = as_words(bytes.data(), 16) + end;
  return place;
}

// Of "  0: 0100007F:1F90 0100007F:C350 01 ...": the column that is asked for.
std::string_view column(std::string_view line, std::size_t wanted) {
  for (;; --wanted) {
    const std::size_t start = line.find_first_not_of(' ');
    if (start == std::string_view::npos) return {};
    line.remove_prefix(start);
    const std::string_view word = line.substr(0, line.find(' '));
    if (wanted == 0) return word;
    line.remove_prefix(word.size());
  }
}

Result<void> look(const char* path, const std::string& place, std::vector<uid_t>& users) {
  if (place.empty()) return {};
  const Result<std::string> table = read_file(path, kMaxTable);
  if (!table) {
    if (table.error().code == Code::kNotFound) return {};  // a host without that version
    return table.error();
  }
  for (std::string_view rest = *table; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    if (column(line, 1) != place) continue;
    const std::string_view state = column(line, 3);
    if (state == kTimeWait || state == kListen) continue;
    const std::string_view user = column(line, 7);
    uid_t uid = 0;
    const auto parsed = std::from_chars(user.data(), user.data() + user.size(), uid);
    if (parsed.ec != std::errc{}) {
      return Error{Code::kInternal, fmt::format("'{}' has a line without a user", path)};
    }
    users.push_back(uid);
  }
  return {};
}

}  // namespace

Result<std::vector<uid_t>> users_of_socket(std::string_view address) {
  const Place place = TRY(parse_place(address));
  std::vector<uid_t> users;
  // The tables are read piece by piece, and a line may move while others come and go.
  for (int tries = 3; tries > 0 && users.empty(); --tries) {
    TRY(look("/proc/net/tcp", place.v4, users));
    TRY(look("/proc/net/tcp6", place.v6, users));
  }
  return users;
}

}  // namespace atelier::compute
