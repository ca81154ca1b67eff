// A look at a folder whose names and files a running, perhaps hostile program changes all the time.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "agent/ml_tree.h"
#include "agent/sync_ledger.h"
#include "base/result.h"

namespace atelier::agent {

// Regular files below `folder` of the tree. Links, FIFOs, sockets and devices are not there; what
// goes or is replaced while we look is not either. `is_known` says which versions need no closer
// look, for whether somebody writes them. kResourceExhausted beyond 250,000 files; kNotFound when
// the folder itself is not there, which says nothing about what should be in S3.
Result<Look> look_at_folder(
    const MlTree& tree, const std::string& folder,
    const std::function<bool(std::string_view name, const FileVersion&)>& is_known);

Result<FileVersion> version_of(int fd);

// Whether some process has the file of `fd` (opened read-only) open, or mapped, for writing. False
// also where the file system cannot tell.
bool has_writer(int fd);

}  // namespace atelier::agent
