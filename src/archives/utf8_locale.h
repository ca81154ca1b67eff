// libarchive takes names to be in the locale's encoding, and a program starts in "C", where a name
// that is not ASCII has none: it comes back as a null pointer. The thread that holds a Utf8Locale
// speaks UTF-8.
#pragma once

#include <locale.h>

namespace atelier::archives {

class Utf8Locale {
 public:
  Utf8Locale();
  ~Utf8Locale();
  Utf8Locale(const Utf8Locale&) = delete;
  Utf8Locale& operator=(const Utf8Locale&) = delete;

 private:
  locale_t before_;
};

}  // namespace atelier::archives
