// Functions that are compiled for three processor generations, one of which is chosen when the
// program loads (simdjson's rule: kernels are picked once, at run time).
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define ATELIER_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define ATELIER_CLONES
#endif
#define ATELIER_INLINE inline __attribute__((always_inline))
