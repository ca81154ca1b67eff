#include "http/certificate.h"

#include <fmt/core.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <memory>

#include "base/file.h"

namespace atelier::http {

Result<bool> is_self_signed(const std::filesystem::path& certificate) {
  const std::string text = TRY(read_file(certificate, std::size_t{1} << 20));
  const std::unique_ptr<BIO, decltype(&BIO_free)> bytes{
      BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), BIO_free};
  const std::unique_ptr<X509, decltype(&X509_free)> first{
      PEM_read_bio_X509(bytes.get(), nullptr, nullptr, nullptr), X509_free};
  if (!first) {
    return Error{Code::kInvalidArgument,
                 fmt::format("'{}' holds no certificate in PEM", certificate.string())};
  }
  return X509_NAME_cmp(X509_get_subject_name(first.get()), X509_get_issuer_name(first.get())) == 0;
}

}  // namespace atelier::http
