#include "http/internal/curl_library.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include "base/error.h"

namespace atelier::http::internal {
namespace {

// The same name since 2006, on every distribution.
constexpr const char* kFile = "libcurl.so.4";

template <typename Function>
void find(void* library, const char* name, Function& function) {
  // POSIX has a function's address come as that of an object.
  function = reinterpret_cast<Function>(dlsym(library, name));
  ATELIER_CHECK(function != nullptr, fmt::format("{} has no {}", kFile, name).c_str());
}

CurlLibrary load() {
  void* library = dlopen(kFile, RTLD_NOW | RTLD_LOCAL);
  ATELIER_CHECK(library != nullptr,
                fmt::format("{} (install the package libcurl4)", dlerror()).c_str());
  CurlLibrary curl;
  find(library, "curl_global_init", curl.global_init);
  find(library, "curl_easy_init", curl.easy_init);
  find(library, "curl_easy_cleanup", curl.easy_cleanup);
  find(library, "curl_easy_reset", curl.easy_reset);
  find(library, "curl_easy_setopt", curl.easy_setopt);
  find(library, "curl_easy_getinfo", curl.easy_getinfo);
  find(library, "curl_easy_strerror", curl.easy_strerror);
  find(library, "curl_multi_init", curl.multi_init);
  find(library, "curl_multi_cleanup", curl.multi_cleanup);
  find(library, "curl_multi_setopt", curl.multi_setopt);
  find(library, "curl_multi_add_handle", curl.multi_add_handle);
  find(library, "curl_multi_remove_handle", curl.multi_remove_handle);
  find(library, "curl_multi_perform", curl.multi_perform);
  find(library, "curl_multi_poll", curl.multi_poll);
  find(library, "curl_multi_wakeup", curl.multi_wakeup);
  find(library, "curl_multi_info_read", curl.multi_info_read);
  find(library, "curl_slist_append", curl.slist_append);
  find(library, "curl_slist_free_all", curl.slist_free_all);
  ATELIER_CHECK(curl.global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK, "curl_global_init failed");
  return curl;
}

}  // namespace

const CurlLibrary& curl() {
  static const CurlLibrary library = load();
  return library;
}

}  // namespace atelier::http::internal
