// Makes RecordIO as MXNet's im2rec does, for tests.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace atelier::vision {

inline std::string le32(std::uint32_t value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}
inline std::string magic_bytes() { return le32(0xced7230a); }

inline std::string part_of(std::uint32_t kind, const std::string& payload) {
  std::string part =
      magic_bytes() + le32(kind << 29 | static_cast<std::uint32_t>(payload.size())) + payload;
  part.resize((part.size() + 3) / 4 * 4, '\0');
  return part;
}

// One record; one label stands in the header, several behind it.
inline std::string record_of(const std::vector<float>& labels, const std::string& picture) {
  std::string payload = le32(labels.size() == 1 ? 0 : static_cast<std::uint32_t>(labels.size()));
  float first = labels.size() == 1 ? labels.front() : 0;
  std::uint32_t bits = 0;
  std::memcpy(&bits, &first, sizeof(bits));
  payload += le32(bits) + std::string(16, '\1');
  for (const float label : labels) {
    if (labels.size() == 1) break;
    std::memcpy(&bits, &label, sizeof(bits));
    payload += le32(bits);
  }
  payload += picture;
  // dmlc-core's writer: cut at every multiple of 4 where the magic number stands.
  std::vector<std::string> parts(1);
  for (std::size_t at = 0; at < payload.size();) {
    const std::string word = payload.substr(at, 4);
    if (word == magic_bytes()) {
      parts.emplace_back();
    } else {
      parts.back() += word;
    }
    at += 4;
  }
  if (parts.size() == 1) return part_of(0, parts.front());
  std::string record;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    record += part_of(i == 0 ? 1 : i + 1 == parts.size() ? 3 : 2, parts[i]);
  }
  return record;
}

}  // namespace atelier::vision
