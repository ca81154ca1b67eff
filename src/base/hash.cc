#include "base/hash.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>

#include <utility>

namespace atelier {
namespace {

// Fetched once and never freed: OpenSSL looks an EVP_sha256() up again in each use.
const EVP_MD* algorithm(Digest kind) {
  static const std::array<const EVP_MD*, 4> fetched = {
      EVP_MD_fetch(nullptr, "MD5", nullptr), EVP_MD_fetch(nullptr, "SHA1", nullptr),
      EVP_MD_fetch(nullptr, "SHA256", nullptr), EVP_MD_fetch(nullptr, "SHA512", nullptr)};
  return fetched[static_cast<std::size_t>(kind)];
}

// An HMAC over SHA-256 that takes one key after the other.
class Mac {
 public:
  Mac() {
    EVP_MAC* mac = EVP_MAC_fetch(nullptr, "HMAC", nullptr);
    context_ = EVP_MAC_CTX_new(mac);
    EVP_MAC_free(mac);
    char name[] = "SHA256";
    const std::array<OSSL_PARAM, 2> parameters = {
        OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, name, 0),
        OSSL_PARAM_construct_end()};
    ATELIER_CHECK(EVP_MAC_CTX_set_params(context_, parameters.data()) == 1, "OpenSSL lacks HMAC");
  }
  Mac(const Mac&) = delete;
  Mac& operator=(const Mac&) = delete;
  ~Mac() { EVP_MAC_CTX_free(context_); }

  std::string operator()(std::string_view key, std::string_view bytes) {
    const auto raw = [](std::string_view text) {
      return reinterpret_cast<const unsigned char*>(text.empty() ? "" : text.data());
    };
    std::array<unsigned char, EVP_MAX_MD_SIZE> made{};
    std::size_t length = 0;
    ATELIER_CHECK(EVP_MAC_init(context_, raw(key), key.size(), nullptr) == 1 &&
                      EVP_MAC_update(context_, raw(bytes), bytes.size()) == 1 &&
                      EVP_MAC_final(context_, made.data(), &length, made.size()) == 1,
                  "OpenSSL failed an HMAC");
    return {reinterpret_cast<const char*>(made.data()), length};
  }

 private:
  EVP_MAC_CTX* context_ = nullptr;
};

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

struct Hasher::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { EVP_MD_CTX_free(context); }
};

Hasher::Hasher(Digest kind) : state_(std::make_unique<State>()) {
  ATELIER_CHECK(EVP_DigestInit_ex(state_->context, algorithm(kind), nullptr) == 1,
                "OpenSSL lacks a digest");
}
Hasher::Hasher(Hasher&&) noexcept = default;
Hasher& Hasher::operator=(Hasher&&) noexcept = default;
Hasher::~Hasher() = default;

void Hasher::update(std::span<const std::byte> bytes) {
  EVP_DigestUpdate(state_->context, bytes.data(), bytes.size());
}

void Hasher::update(std::string_view bytes) {
  EVP_DigestUpdate(state_->context, bytes.data(), bytes.size());
}

std::string Hasher::finish() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> raw{};
  unsigned int length = 0;
  EVP_DigestFinal_ex(state_->context, raw.data(), &length);
  return {reinterpret_cast<const char*>(raw.data()), length};
}

std::string digest(Digest kind, std::string_view bytes) {
  Hasher hasher{kind};
  hasher.update(bytes);
  return hasher.finish();
}

std::string hmac_sha256(std::string_view key, std::string_view bytes) {
  static thread_local Mac mac;
  return mac(key, bytes);
}

std::string to_hex(std::string_view raw) {
  static constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  text.reserve(raw.size() * 2);
  for (const char c : raw) {
    const auto byte = static_cast<unsigned char>(c);
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

Result<std::string> from_hex(std::string_view text) {
  if (text.size() % 2 != 0)
    return Error{Code::kInvalidArgument, "an odd number of hexadecimal digits"};
  std::string raw;
  raw.reserve(text.size() / 2);
  for (std::size_t i = 0; i < text.size(); i += 2) {
    const int high = hex_value(text[i]);
    const int low = hex_value(text[i + 1]);
    if (high < 0 || low < 0)
      return Error{Code::kInvalidArgument, "a character that is not hexadecimal"};
    raw += static_cast<char>(high * 16 + low);
  }
  return raw;
}

std::string to_base64(std::string_view raw) {
  std::string text((raw.size() + 2) / 3 * 4 + 1, '\0');
  const int length = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                                     reinterpret_cast<const unsigned char*>(raw.data()),
                                     static_cast<int>(raw.size()));
  text.resize(static_cast<std::size_t>(length));
  return text;
}

Result<std::string> from_base64(std::string_view text) {
  if (text.size() % 4 != 0)
    return Error{Code::kInvalidArgument, "base64 whose length is not a multiple of 4"};
  std::string raw(text.size() / 4 * 3 + 1, '\0');
  const int length = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(raw.data()),
                                     reinterpret_cast<const unsigned char*>(text.data()),
                                     static_cast<int>(text.size()));
  if (length < 0) return Error{Code::kInvalidArgument, "a character that is not base64"};
  std::size_t padding = 0;
  if (text.ends_with("=="))
    padding = 2;
  else if (text.ends_with("="))
    padding = 1;
  raw.resize(static_cast<std::size_t>(length) - padding);
  return raw;
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace atelier
