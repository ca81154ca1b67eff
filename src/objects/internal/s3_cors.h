// Cross-origin requests, as browsers make them.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "http/message.h"
#include "objects/internal/bucket_rules.h"
#include "objects/internal/s3_request.h"
#include "objects/local_store.h"

namespace atelier::objects::internal {

// The rules of the buckets' documents, parsed once for each version of a document: a preflight
// comes without a signature, and must cost no more than a look. From any thread.
class CorsRules {
 public:
  using Rules = std::shared_ptr<const std::vector<CorsRule>>;
  explicit CorsRules(LocalStore& store) : store_(store) {}
  // AccessForbidden when the bucket has none.
  Result<Rules> find(const std::string& bucket);

 private:
  struct Parsed {
    std::string document;
    Rules rules;
  };
  LocalStore& store_;
  std::mutex mutex_;
  std::map<std::string, Parsed> parsed_;  // by bucket; bounded
};

// The answer to a preflight (OPTIONS), which browsers send without a signature.
http::Response preflight(CorsRules& rules, const http::RequestHead& head);

// What a browser has to see before it hands an answer on; nothing for requests without an Origin,
// or from one that the bucket's rules do not name.
void add_cors(CorsRules& rules, const S3Request& request, http::Headers& headers);

}  // namespace atelier::objects::internal
