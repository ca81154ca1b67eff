// The embedded S3 server: S3's REST protocol over a store in a local folder. It speaks after
// authentication: the front door checks the signature of the head and hands over who is calling.
#pragma once

#include <filesystem>
#include <memory>

#include "base/time.h"
#include "http/message.h"
#include "http/sigv4.h"

namespace atelier::objects {

class S3Service {
 public:
  // Opens (or makes) the store in `folder`, and finishes or undoes what a crash left half done.
  static Result<std::unique_ptr<S3Service>> open(const std::filesystem::path& folder,
                                                 const Clock& clock, std::string region);
  virtual ~S3Service() = default;
  virtual std::unique_ptr<http::Exchange> begin(const http::RequestHead& head,
                                                const http::Verified& caller) = 0;
  // An error of authentication (http::verify) as S3 answers it: XML with the code before the colon.
  [[nodiscard]] virtual http::Response refuse(const http::RequestHead& head,
                                              const Error& error) const = 0;
};

}  // namespace atelier::objects
