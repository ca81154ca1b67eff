# The half with tensors. libtorch is looked for in CMAKE_PREFIX_PATH, then in the project's Python environment
# (ATELIER_PYTHON_ENV), then where the distribution puts it. Only its headers and two libraries are used, not
# its CMake files, which ask for compilers and packages that inference and training on a processor do not need.
file(GLOB environment_torch ${ATELIER_PYTHON_ENV}/lib/python3*/site-packages/torch)
# A prefix is torch's folder, the one around it, or what torch.utils.cmake_prefix_path says: torch/share/cmake.
set(prefix_torch ${CMAKE_PREFIX_PATH})
list(FILTER prefix_torch INCLUDE REGEX "/share/cmake/?$")
list(TRANSFORM prefix_torch REPLACE "/share/cmake/?$" "")
find_path(ATELIER_TORCH_INCLUDE torch/csrc/autograd/custom_function.h
  HINTS ${prefix_torch} ${environment_torch} PATH_SUFFIXES include torch/include)
if(NOT ATELIER_TORCH_INCLUDE)
  message(FATAL_ERROR "libtorch was not found: install libtorch-dev, put torch into ${ATELIER_PYTHON_ENV}, give "
    "-DCMAKE_PREFIX_PATH=/path/to/libtorch, or build without it: -DATELIER_VISION=OFF")
endif()
get_filename_component(torch_root ${ATELIER_TORCH_INCLUDE} DIRECTORY)
foreach(library torch_cpu c10)
  find_library(ATELIER_TORCH_LIBRARY_${library} ${library} HINTS ${torch_root}/lib NO_CMAKE_PATH REQUIRED)
endforeach()

foreach(header torch/headeronly/version.h torch/csrc/api/include/torch/version.h)
  if(EXISTS ${ATELIER_TORCH_INCLUDE}/${header})
    file(STRINGS ${ATELIER_TORCH_INCLUDE}/${header} version_lines REGEX "define TORCH_VERSION_(MAJOR|MINOR) ")
    break()
  endif()
endforeach()
string(REGEX MATCH "MAJOR ([0-9]+)" _ "${version_lines}")
set(torch_major ${CMAKE_MATCH_1})
string(REGEX MATCH "MINOR ([0-9]+)" _ "${version_lines}")
math(EXPR torch_number "${torch_major} * 10000 + ${CMAKE_MATCH_1} * 100")
message(STATUS "libtorch ${torch_major}.${CMAKE_MATCH_1}: ${torch_root}")

find_package(CLI11 REQUIRED)
find_package(OpenMP REQUIRED)

# pip's torch brings headers of fmt (12, where the system's library is 9) that would hide the system's: its own are
# shown alone.
set(torch_headers ${ATELIER_TORCH_INCLUDE})
if(EXISTS ${ATELIER_TORCH_INCLUDE}/fmt AND NOT ATELIER_TORCH_INCLUDE IN_LIST CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES)
  set(torch_headers ${CMAKE_CURRENT_BINARY_DIR}/torch_headers)
  file(MAKE_DIRECTORY ${torch_headers})
  foreach(folder ATen c10 torch)
    file(CREATE_LINK ${ATELIER_TORCH_INCLUDE}/${folder} ${torch_headers}/${folder} SYMBOLIC)
  endforeach()
endif()
add_library(atelier_torch INTERFACE)
target_include_directories(atelier_torch SYSTEM INTERFACE ${torch_headers} ${torch_headers}/torch/csrc/api/include)
target_compile_definitions(atelier_torch INTERFACE ATELIER_TORCH_VERSION=${torch_number})
# at::parallel_for is a template over OpenMP: without the flag it would run on one thread. pip's torch brings a libgomp
# of its own; two in one process would be two pools of threads, so that one serves our code, too.
if(EXISTS ${torch_root}/lib/libgomp.so.1)
  target_compile_options(atelier_torch INTERFACE ${OpenMP_CXX_FLAGS})
  set(torch_openmp ${torch_root}/lib/libgomp.so.1)
else()
  set(torch_openmp OpenMP::OpenMP_CXX)
endif()
# Not libtorch.so, which is empty but for its link to libtorch_cuda.so where there is one: 4 GB of libraries at each start.
target_link_libraries(atelier_torch INTERFACE ${torch_openmp} ${ATELIER_TORCH_LIBRARY_torch_cpu} ${ATELIER_TORCH_LIBRARY_c10})

atelier_library(vision
  SOURCES backbone.cc classify.cc fine_tune.cc head.cc host_probe.cc incremental.cc model_files.cc ops.cc predict_command.cc
          pretrained.cc train_command.cc
  DEPS atelier_training
  PRIVATE_DEPS atelier_archives)
target_link_libraries(atelier_vision PUBLIC atelier_torch)
target_precompile_headers(atelier_vision PRIVATE <ATen/ATen.h>)

add_executable(atelier-vision main.cc)
target_link_libraries(atelier-vision PRIVATE atelier_vision CLI11::CLI11 atelier_flags)

atelier_test(vision_test SOURCES training_inputs_test.cc vision_test.cc DEPS atelier_vision LABELS vision TIMEOUT 900)
# As the program sets it for itself: threads that spin take minutes where processors are shared.
set_tests_properties(vision_test PROPERTIES ENVIRONMENT OMP_WAIT_POLICY=PASSIVE)

# Beside torchvision's ResNet-18 and the reference EfficientNet-Lite0 (of .env-reference); without one of them it is skipped.
add_test(NAME vision_reference
  COMMAND ${test_python} ${PROJECT_SOURCE_DIR}/tests/vision/reference_test.py $<TARGET_FILE:atelier-vision>
          ${PROJECT_SOURCE_DIR}/.cache/weights/efficientnet-lite0.pth)
set_tests_properties(vision_reference PROPERTIES LABELS vision TIMEOUT 300 SKIP_RETURN_CODE 77)

# Target T8 in small: `tests/faults/kill_training.py --kills 100` is the whole of it.
add_test(NAME vision_kill
  COMMAND ${PROJECT_SOURCE_DIR}/tests/faults/kill_training.py $<TARGET_FILE:atelier-vision> --kills 3 --term --epochs 2)
set_tests_properties(vision_kill PROPERTIES LABELS vision TIMEOUT 900)
