// Work over an index range by a few threads that live for the call.
#pragma once

#include <cstddef>
#include <functional>

#include "base/result.h"

namespace atelier {

// Calls work(i) for every i below `count`, in rising order, on up to `threads` threads, the
// caller's among them, and on fewer where the host gives no more. After the first Error no further
// call begins, and it is returned.
Result<void> for_each_parallel(std::size_t count, std::size_t threads,
                               const std::function<Result<void>(std::size_t)>& work);

}  // namespace atelier
