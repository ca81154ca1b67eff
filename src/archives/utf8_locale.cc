#include "archives/utf8_locale.h"

namespace atelier::archives {
namespace {

// Made once and never freed. Null on a system without it, where the thread's own stays.
locale_t utf8() {
  static const locale_t kLocale = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  return kLocale;
}

}  // namespace

// A null argument only asks which locale is in force.
Utf8Locale::Utf8Locale() : before_(uselocale(utf8())) {}

Utf8Locale::~Utf8Locale() { uselocale(before_); }

}  // namespace atelier::archives
