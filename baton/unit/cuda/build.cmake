# Kernels: each kernels/*.cu becomes a fat binary for the cards of BATON_CUDA_ARCHITECTURES, and all of them bytes of this
# library (embedded.h). Without a toolkit the unit is built all the same and says what it lacks.
set(BATON_CUDA AUTO CACHE STRING "kernels for NVIDIA cards: AUTO where nvcc is found, ON, OFF")
set_property(CACHE BATON_CUDA PROPERTY STRINGS AUTO ON OFF)
set(cuda_asked "${BATON_CUDA_ARCHITECTURES}")  # also where there are no kernels: then it is no mistake either

set(cuda_why "")
if(NOT BATON_CUDA)
  set(cuda_why "BATON_CUDA is OFF")
elseif(CMAKE_CROSSCOMPILING OR NOT CMAKE_SYSTEM_NAME STREQUAL "Linux")
  set(cuda_why "only builds for the Linux machine that they run on have it")
else()
  # Debian 12's own, 11.8, knows no -std=c++20: where it is in the way, another one is looked for.
  set(cuda_least 12)
  function(baton_nvcc_will_do result file)
    execute_process(COMMAND ${file} --version OUTPUT_VARIABLE says ERROR_QUIET)
    if(NOT says MATCHES "V([0-9.]+)" OR CMAKE_MATCH_1 VERSION_LESS cuda_least)
      set(${result} FALSE PARENT_SCOPE)
    endif()
  endfunction()
  find_program(BATON_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin
    VALIDATOR baton_nvcc_will_do DOC "compiler of kernels for NVIDIA cards")
  if(NOT BATON_NVCC)
    set(cuda_why
      "no nvcc of version ${cuda_least} or later: install the CUDA toolkit, or give its path as BATON_NVCC (docs/cuda.md)")
  endif()
endif()
if(cuda_why AND BATON_CUDA STREQUAL "ON")
  message(FATAL_ERROR "BATON_CUDA=ON, but ${cuda_why}")
elseif(cuda_why)
  message(STATUS "without CUDA: ${cuda_why}")
  return()
endif()

execute_process(COMMAND ${BATON_NVCC} --list-gpu-arch OUTPUT_VARIABLE cuda_known COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "[0-9]+" cuda_known "${cuda_known}")
set(cuda_default "$ENV{BATON_CUDA_ARCHITECTURES}")
if("${cuda_asked}${cuda_default}" STREQUAL "")
  include(${PROJECT_SOURCE_DIR}/cmake/card_architectures.cmake)
  baton_card_architectures(cuda_default "90a;80" "${cuda_known}")
endif()
set(BATON_CUDA_ARCHITECTURES "${cuda_default}" CACHE STRING
  "compute capabilities that kernels are compiled for, as far as nvcc knows them; the last also as PTX, for later cards")
execute_process(COMMAND ${BATON_NVCC} --version OUTPUT_VARIABLE cuda_version COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCH "V([0-9.]+)" cuda_version "${cuda_version}")
set(cuda_build "nvcc ${CMAKE_MATCH_1} for")
if(CMAKE_MATCH_1 VERSION_LESS cuda_least)
  message(FATAL_ERROR "${BATON_NVCC} is of version ${CMAKE_MATCH_1}: ${cuda_least} or later is needed")
endif()
set(cuda_flags "")
set(cuda_newest "")
foreach(arch IN LISTS BATON_CUDA_ARCHITECTURES)
  string(REGEX MATCH "^[0-9]+" plain "${arch}")
  if(plain IN_LIST cuda_known)
    list(APPEND cuda_flags "-gencode=arch=compute_${arch},code=sm_${arch}")
    string(APPEND cuda_build " sm_${arch}")
    set(cuda_newest ${arch})
  endif()
endforeach()
if(NOT cuda_flags)
  message(FATAL_ERROR "${BATON_NVCC} knows none of BATON_CUDA_ARCHITECTURES=${BATON_CUDA_ARCHITECTURES}")
endif()
if(cuda_newest MATCHES "^[0-9]+$")  # what needs a letter runs on no other card
  list(APPEND cuda_flags "-gencode=arch=compute_${cuda_newest},code=compute_${cuda_newest}")
  string(APPEND cuda_build " and later")
endif()
message(STATUS "CUDA kernels: ${cuda_build}")

file(GLOB cuda_kernels CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/kernels/*.cu)
# ccache looks at what the host would compile, and so not at what is for one card only: it is told of all that a kernel
# may include from here.
set(cuda_launcher "")
if(BATON_CCACHE)
  file(GLOB cuda_included CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.h ${PROJECT_SOURCE_DIR}/${folder}/kernels/*)
  list(JOIN cuda_included ":" cuda_included)
  set(cuda_launcher ${CMAKE_COMMAND} -E env CCACHE_EXTRAFILES=${cuda_included} ${BATON_CCACHE})
endif()
set(cuda_out ${PROJECT_BINARY_DIR}/generated/${folder})
set(cuda_binaries "")
set(cuda_list "")
set(cuda_data "// Made by build.cmake: the fat binaries as data.\n")
foreach(kernel IN LISTS cuda_kernels)
  get_filename_component(name ${kernel} NAME_WE)
  set(binary ${cuda_out}/${name}.fatbin)
  add_custom_command(OUTPUT ${binary}
    COMMAND ${cuda_launcher} ${BATON_NVCC} -std=c++20 -O3 --expt-relaxed-constexpr ${cuda_flags} -I${PROJECT_SOURCE_DIR}
            -MD -MT ${binary} -MF ${binary}.d -fatbin -c -o ${binary} ${kernel}
    DEPENDS ${kernel} DEPFILE ${binary}.d COMMENT "kernels of ${name}.cu" VERBATIM)
  # What takes minutes first: begun last it would leave the other cores idle, as much waits for all of them.
  if(name MATCHES "^list(_together)?$")
    list(PREPEND cuda_binaries ${binary})
  else()
    list(APPEND cuda_binaries ${binary})
  endif()
  string(APPEND cuda_list "BATON_KERNELS(${name})\n")
  string(APPEND cuda_data "asm(\".section .rodata\\n.balign 64\\n.globl baton_kernels_${name}\\nbaton_kernels_${name}:\\n\"
    \".incbin \\\"${binary}\\\"\\n.byte 0\\n.previous\");\n")
endforeach()
file(CONFIGURE OUTPUT ${cuda_out}/kernel_list.inc CONTENT "${cuda_list}" @ONLY)
file(CONFIGURE OUTPUT ${cuda_out}/kernel_data.cc CONTENT "${cuda_data}" @ONLY)
target_sources(${target} PRIVATE ${cuda_out}/kernel_data.cc)
# Definitions of their own keep the two files alone (baton_unity).
set_source_files_properties(${cuda_out}/kernel_data.cc PROPERTIES
  COMPILE_DEFINITIONS BATON_KERNEL_DATA OBJECT_DEPENDS "${cuda_binaries}" SKIP_PRECOMPILE_HEADERS ON)
set_source_files_properties(${PROJECT_SOURCE_DIR}/${folder}/embedded.cc PROPERTIES
  COMPILE_DEFINITIONS "BATON_CUDA_KERNELS=\"${cuda_build}\"")
