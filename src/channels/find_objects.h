// Sizes and ETags of objects whose keys are known, by listings rather than a question for each.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "objects/object_store.h"

namespace atelier::channels {

// The objects of `keys`, each once, in the order of the keys' first places. kNotFound names those
// that are not there (twenty at most). One LIST finds up to a thousand of them where they lie close
// together.
Result<std::vector<objects::ObjectInfo>> find_objects(objects::ObjectStore& store,
                                                      const std::string& bucket,
                                                      std::vector<std::string> keys);

}  // namespace atelier::channels
