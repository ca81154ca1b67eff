# cmake -P: newest_clang.cmake takes the highest number that links libFuzzer, and says so where none does.
set(folder ${CMAKE_CURRENT_BINARY_DIR}/newest_clang_test)
file(REMOVE_RECURSE ${folder})
function(fake version links)
  foreach(name clang-${version} clang++-${version})
    file(WRITE ${folder}/${name} "#!/bin/sh\n[ \"$1\" = -dumpversion ] && echo ${version}.0.1 || exit ${links}\n")
    file(CHMOD ${folder}/${name} PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
  endforeach()
endfunction()

set(ENV{PATH} ${folder})
unset(ENV{CXX})
execute_process(COMMAND ${CMAKE_COMMAND} -P ${CMAKE_CURRENT_LIST_DIR}/newest_clang.cmake
  RESULT_VARIABLE failed ERROR_VARIABLE message)
if(failed EQUAL 0 OR NOT message MATCHES "no clang with libFuzzer")
  message(FATAL_ERROR "no clang, and: ${failed} ${message}")
endif()

fake(9 0)
fake(18 0)
fake(21 1) # without the runtime libraries
include(${CMAKE_CURRENT_LIST_DIR}/newest_clang.cmake)
if(NOT CMAKE_CXX_COMPILER STREQUAL ${folder}/clang++-18 OR NOT CMAKE_C_COMPILER STREQUAL ${folder}/clang-18)
  message(FATAL_ERROR "of clang 9, 18 and a 21 without libFuzzer ${CMAKE_CXX_COMPILER} was taken")
endif()
