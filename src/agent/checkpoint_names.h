// Which names of a checkpoint folder are copied: the map of the names that trainers give to files
// and folders which they have not finished.
#pragma once

#include <string_view>

namespace atelier::agent {

// Whether a part of the path is a name that its writer takes away when the file or folder is whole,
// by rename:
//
//   x.tmp  x_tmp  x.tmp-1  .tmp-x  x.part  x.partial  x.incomplete  x.temp  x_temp  x~  .x.swp
//   tmp-checkpoint-500/...        transformers, until it is checkpoint-500
//   .metadata.tmp                 torch.distributed.checkpoint
//   0.orbax-checkpoint-tmp-17/... Orbax
//   x.tempstate123                TensorFlow
//   tmpab3d_x9q                   Python's tempfile in the same folder, then os.replace
bool is_temporary_name(std::string_view path);

// Whether an object can have that name below a prefix of `prefix_bytes` bytes: UTF-8, and at most
// 1,024 bytes with the prefix.
bool is_object_name(std::string_view path, std::size_t prefix_bytes);

}  // namespace atelier::agent
