# Files compiled for an instruction set of baton/base/simd/instruction_sets.inc, each by itself: nothing that a linker
# merges may come from them, or it would run where the set is missing.
set(BATON_INSTRUCTION_SETS "")  # of this processor, best first
set(kernels_list ${PROJECT_SOURCE_DIR}/baton/base/simd/instruction_sets.inc)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${kernels_list})
set(kernels_processor none)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(kernels_processor x86_64)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  set(kernels_processor aarch64)
endif()
file(READ ${kernels_list} text)
string(REGEX MATCH "defined\\(__${kernels_processor}__\\)[^#]*" text "${text}")
string(REGEX MATCHALL "BATON_INSTRUCTION_SET\\([^\"]*\"[^\"]*\"" lines "${text}")
foreach(line IN LISTS lines)
  string(REGEX MATCH "\\(([a-z0-9_]+),[^\"]*\"(.*)\"" matched "${line}")
  list(APPEND BATON_INSTRUCTION_SETS ${CMAKE_MATCH_1})
  separate_arguments(BATON_OPTIONS_${CMAKE_MATCH_1} UNIX_COMMAND "${CMAKE_MATCH_2}")
endforeach()

function(baton_set_options set out)
  set(options "")
  foreach(word IN LISTS BATON_OPTIONS_${set})
    if(word MATCHES "^-")
      list(APPEND options ${word})
    else()
      baton_set_options(${word} more)
      list(APPEND options ${more})
    endif()
  endforeach()
  if(APPLE)  # every arm64 Mac has dotprod, and compilers for it know
    list(REMOVE_ITEM options -march=armv8.2-a+dotprod)
  endif()
  if(BATON_MACOS_ROOT)  # the compiler of the cross build for macOS has no -march
    list(FILTER options EXCLUDE REGEX "^-march=")
  endif()
  set(${out} ${options} PARENT_SCOPE)
endfunction()

# baton_kernels(FILE SET [OPTION...]): `file`, below the source folder, is compiled for `set` and with the options; for a
# set of another processor, or "scalar", with the options alone.
function(baton_kernels file set)
  baton_set_options(${set} options)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # GCC 12 reports its own intrinsics (_mm256_undefined_pd) in optimised code.
    list(APPEND options -Wno-uninitialized)
  endif()
  set_source_files_properties(${PROJECT_SOURCE_DIR}/${file} PROPERTIES
    COMPILE_OPTIONS "${options};${ARGN}" SKIP_PRECOMPILE_HEADERS ON)
endfunction()
