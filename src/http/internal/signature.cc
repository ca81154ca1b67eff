#include "http/internal/signature.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/hash.h"

namespace atelier::http::internal {
namespace {

// Runs of blanks become one, those at the ends none ("Trimall" of the specification).
void append_trimmed(std::string& to, std::string_view value) {
  bool blank = false;
  bool first = true;
  for (const char c : value) {
    if (c == ' ' || c == '\t') {
      blank = !first;
      continue;
    }
    if (blank) to += ' ';
    to += c;
    blank = false;
    first = false;
  }
}

std::string derive_key(std::string_view secret_key, const Scope& scope) {
  const std::string by_date = hmac_sha256("AWS4" + std::string{secret_key}, scope.date);
  const std::string by_region = hmac_sha256(by_date, scope.region);
  const std::string by_service = hmac_sha256(by_region, scope.service);
  return hmac_sha256(by_service, "aws4_request");
}

}  // namespace

std::string Scope::text() const { return date + '/' + region + '/' + service + "/aws4_request"; }

bool is_s3(std::string_view service) { return service.starts_with("s3"); }

std::string to_lower(std::string_view text) {
  std::string lower{text};
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

std::string signing_key(std::string_view secret_key, const Scope& scope) {
  struct Remembered {
    std::string secret_key;
    std::string scope;
    std::string key;
  };
  // A derivation costs four HMACs, about as much as the rest of a check.
  static thread_local std::array<Remembered, 8> remembered;
  static thread_local std::size_t next = 0;
  const std::string text = scope.text();
  for (const Remembered& entry : remembered) {
    if (entry.scope == text && entry.secret_key == secret_key) return entry.key;
  }
  std::string key = derive_key(secret_key, scope);
  remembered[next] = {std::string{secret_key}, text, key};
  next = (next + 1) % remembered.size();
  return key;
}

Result<std::string> canonical_query(std::string_view query) {
  if (query.empty()) return std::string{};
  auto pairs = TRY(parse_query(query));
  std::erase_if(pairs, [](const auto& pair) { return pair.first == "X-Amz-Signature"; });
  for (auto& [name, value] : pairs) {
    name = percent_encode(name);
    value = percent_encode(value);
  }
  std::sort(pairs.begin(), pairs.end());
  std::string text;
  for (const auto& [name, value] : pairs) {
    if (!text.empty()) text += '&';
    text += name;
    text += '=';
    text += value;
  }
  return text;
}

std::string canonical_service_path(std::string_view path) {
  std::vector<std::string_view> segments;
  const bool folder = path.ends_with('/');
  while (!path.empty()) {
    const std::string_view segment = path.substr(0, path.find('/'));
    path.remove_prefix(std::min(segment.size() + 1, path.size()));
    if (segment.empty() || segment == ".") continue;
    if (segment != "..") {
      segments.push_back(segment);
    } else if (!segments.empty()) {
      segments.pop_back();
    }
  }
  if (segments.empty()) return "/";
  std::string text;
  for (const std::string_view segment : segments) {
    text += '/';
    text += percent_encode(segment);
  }
  if (folder) text += '/';
  return text;
}

std::string canonical_request(std::string_view method, std::string_view canonical_path,
                              std::string_view canonical_query, const Headers& headers,
                              const std::vector<std::string_view>& signed_headers,
                              std::string_view payload_hash) {
  std::string text;
  text.reserve(1024);
  text.append(method).append("\n").append(canonical_path).append("\n");
  text.append(canonical_query).append("\n");
  for (const std::string_view name : signed_headers) {
    text.append(name);
    char separator = ':';
    for (const auto& [field, value] : headers.fields()) {
      if (!equal_without_case(field, name)) continue;
      text += separator;
      append_trimmed(text, value);
      separator = ',';
    }
    if (separator == ':') text += ':';
    text += '\n';
  }
  text += '\n';
  for (std::size_t i = 0; i < signed_headers.size(); ++i) {
    if (i > 0) text += ';';
    text += signed_headers[i];
  }
  return text.append("\n").append(payload_hash);
}

std::string signature_of(std::string_view canonical_request, std::string_view timestamp,
                         const Scope& scope, std::string_view key) {
  std::string text{kAlgorithm};
  text.append("\n").append(timestamp).append("\n").append(scope.text()).append("\n");
  text += sha256_hex(canonical_request);
  return to_hex(hmac_sha256(key, text));
}

Error refusal(std::string_view s3_code, std::string_view message) {
  return Error{Code::kUnauthenticated, fmt::format("{}: {}", s3_code, message)};
}

Result<KeyStore::Entry> find_key(const KeyStore& keys, std::string_view access_key,
                                 std::string_view session_token, Time now) {
  std::optional<KeyStore::Entry> entry = keys.find(access_key, session_token);
  if (!entry) {
    return refusal("InvalidAccessKeyId",
                   fmt::format("the access key '{}' is not known here", access_key.substr(0, 128)));
  }
  if (!equal_in_constant_time(entry->credentials.session_token, session_token)) {
    return refusal("InvalidToken", entry->credentials.session_token.empty()
                                       ? "a session token came with a key that has none"
                                       : "the session token is missing or not that of the key");
  }
  if (entry->expires && now >= *entry->expires) {
    return refusal("ExpiredToken", fmt::format("the key '{}' expired at {}", access_key,
                                               format_iso8601(*entry->expires)));
  }
  return *std::move(entry);
}

}  // namespace atelier::http::internal
