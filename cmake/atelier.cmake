# Targets of this project. Every folder of src/ is one library (atelier_library), with its tests
# (atelier_test), benchmarks (atelier_benchmark) and fuzz targets (atelier_fuzz) beside the sources.
include_guard()

find_package(Threads REQUIRED)

# Flags common to all of our own code; third-party headers come in as SYSTEM.
add_library(atelier_flags INTERFACE)
target_compile_options(atelier_flags INTERFACE -Wall -Wextra -Wconversion -Wshadow
  -Wnon-virtual-dtor -Werror $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>
  # False alarms of GCC 12 on std::string (PR 105651).
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
target_include_directories(atelier_flags INTERFACE ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(atelier_flags INTERFACE Threads::Threads)
if(ATELIER_SANITIZE)
  add_compile_options(-fsanitize=${ATELIER_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${ATELIER_SANITIZE})
endif()
if(ATELIER_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

find_program(ATELIER_CCACHE ccache)
if(ATELIER_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${ATELIER_CCACHE})
endif()
find_program(ATELIER_MOLD mold)
if(ATELIER_MOLD AND NOT ATELIER_SANITIZE)
  add_link_options(-fuse-ld=mold)
endif()

# atelier_library(NAME SOURCES a.cc b.cc DEPS atelier_base PRIVATE_DEPS X::X)
function(atelier_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(atelier_${name} STATIC ${arg_SOURCES})
  target_link_libraries(atelier_${name} PUBLIC ${arg_DEPS} PRIVATE ${arg_PRIVATE_DEPS} atelier_flags)
endfunction()

# atelier_test(NAME SOURCES a_test.cc DEPS atelier_x [LABELS unit] [TIMEOUT 60])
function(atelier_test name)
  cmake_parse_arguments(arg "" "TIMEOUT" "SOURCES;DEPS;LABELS" ${ARGN})
  find_package(GTest REQUIRED)
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_DEPS} GTest::gtest GTest::gtest_main GTest::gmock atelier_flags)
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  if(NOT arg_LABELS)
    set(arg_LABELS unit)
  endif()
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT})
endfunction()

# atelier_benchmark(NAME SOURCES a_bench.cc DEPS atelier_x): built by the target of that name only.
function(atelier_benchmark name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPS" ${ARGN})
  find_package(benchmark REQUIRED)
  add_executable(${name} EXCLUDE_FROM_ALL ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_DEPS} benchmark::benchmark benchmark::benchmark_main atelier_flags)
endfunction()

# atelier_fuzz(NAME SOURCES a_fuzz.cc DEPS atelier_x). With the fuzz preset it is a libFuzzer program;
# otherwise the same source runs over fuzz/corpus/NAME as a test, so that no finding comes back.
function(atelier_fuzz name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPS" ${ARGN})
  if(ATELIER_FUZZ)
    add_executable(${name} ${arg_SOURCES})
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  else()
    add_executable(${name} ${arg_SOURCES} ${PROJECT_SOURCE_DIR}/fuzz/replay_main.cc)
    add_test(NAME ${name} COMMAND ${name} ${PROJECT_SOURCE_DIR}/fuzz/corpus/${name})
    set_tests_properties(${name} PROPERTIES LABELS "unit;fuzz" TIMEOUT 120)
  endif()
  target_link_libraries(${name} PRIVATE ${arg_DEPS} atelier_flags)
endfunction()
