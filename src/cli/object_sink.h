// An object store as the destination of an import (datasets/import.h): batches of small objects go
// up with many requests in flight; dataset.json, the mark of a whole import, goes last.
#pragma once

#include <memory>
#include <string>

#include "datasets/import.h"
#include "objects/object_store.h"

namespace atelier::cli {

// `destination`: "s3://bucket/prefix"; the bucket is made when it is missing. A prefix that holds
// objects of something else (no dataset.json of ours in front) is kAlreadyExists: they stay
// untouched.
Result<std::unique_ptr<datasets::Sink>> object_sink(objects::ObjectStore& store,
                                                    const std::string& destination);

}  // namespace atelier::cli
