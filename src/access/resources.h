// The names of S3's resources in policies.
#pragma once

#include <string>
#include <string_view>

namespace atelier::access {

inline std::string s3_bucket_arn(std::string_view bucket) {
  return std::string{"arn:aws:s3:::"}.append(bucket);
}

// The key byte for byte, as the store keeps it: dots and slashes in it mean nothing.
inline std::string s3_object_arn(std::string_view bucket, std::string_view key) {
  return s3_bucket_arn(bucket).append("/").append(key);
}

}  // namespace atelier::access
