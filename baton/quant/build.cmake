# Instruction sets of the quantizers' searches: each lanes_<set>.cc, and nothing else, is compiled for its set; lanes.cc
# chooses at run time.
set(lanes_options -O3)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND lanes_options -Wno-psabi)  # vectors are passed between functions of one file only
endif()
set_source_files_properties(${PROJECT_SOURCE_DIR}/baton/quant/lanes_base.cc PROPERTIES
  COMPILE_OPTIONS "${lanes_options}" SKIP_PRECOMPILE_HEADERS ON)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set_source_files_properties(${PROJECT_SOURCE_DIR}/baton/quant/lanes_avx2.cc PROPERTIES
    COMPILE_OPTIONS "-mavx2;${lanes_options}" SKIP_PRECOMPILE_HEADERS ON)
  set_source_files_properties(${PROJECT_SOURCE_DIR}/baton/quant/lanes_avx512.cc PROPERTIES
    COMPILE_OPTIONS "-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mprefer-vector-width=512;${lanes_options}"
    SKIP_PRECOMPILE_HEADERS ON)
endif()
