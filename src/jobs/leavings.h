// What an earlier process may have left in the folders of the jobs, and how it is removed: by
// descriptor, so that no link leads a removal elsewhere, and by names that we make ourselves alone.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "jobs/service.h"

namespace atelier::jobs {

// Whether it is of the form NAME.<random id>, which warm pools and removed jobs have. The name
// before the id is the job's.
bool is_name_with_id(std::string_view name);

// The names of that form in `folder`, of folders that are no links. A folder that is not there has
// none; one that is a link is refused (open_own_folder()).
Result<std::vector<std::string>> names_with_id(const std::filesystem::path& folder);

// Removes them; all that can be removed when one cannot.
Result<void> remove_names_with_id(const std::filesystem::path& folder);

// The folder of removed jobs, made when it is not there. An error is the host's, whatever it is: no
// caller of the API can have caused it.
Result<std::filesystem::path> make_removed_folder(const ServiceOptions& options);

// Before anything is opened: refuses, by name, folders that are links, and jobs or warm pools that
// are there while their records are not.
Result<void> check_folders(const ServiceOptions& options);

}  // namespace atelier::jobs
