// The embedded S3 server: S3's REST protocol over a store in a local folder. It speaks after
// authentication: the front door checks the signature of the head and hands over who is calling.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

#include "base/time.h"
#include "http/message.h"
#include "http/sigv4.h"

namespace atelier::objects {

struct S3Options {
  // After how long a multipart upload that nobody completes is given up, in buckets without a
  // lifecycle document.
  std::chrono::days abandoned_uploads{7};
  std::chrono::seconds sweep_period{3600};
};

class S3Service {
 public:
  // Opens (or makes) the store in `folder`, and finishes or undoes what a crash left half done.
  static Result<std::unique_ptr<S3Service>> open(const std::filesystem::path& folder,
                                                 const Clock& clock, std::string region,
                                                 const S3Options& options = {});
  virtual ~S3Service() = default;
  virtual std::unique_ptr<http::Exchange> begin(const http::RequestHead& head,
                                                const http::Verified& caller) = 0;
  // The answer to a browser's OPTIONS, which comes without a signature.
  virtual http::Response preflight(const http::RequestHead& head) = 0;
  // What a request is called in policies and records: {"s3:GetObject", "arn:aws:s3:::bucket/key"}.
  struct Named {
    std::string action;  // "s3:?" when it is none of S3's operations
    std::string resource;
  };
  [[nodiscard]] virtual Named name(const http::RequestHead& head) const = 0;
  // An error of authentication (http::verify) as S3 answers it: XML with the code before the colon.
  [[nodiscard]] virtual http::Response refuse(const http::RequestHead& head,
                                              const Error& error) const = 0;
};

}  // namespace atelier::objects
