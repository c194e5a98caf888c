# Precompiled headers: what most files include, of other projects only, read once per kind of target and not once per file.
# Without them each preset still compiles: files include what they use, and the presets of clang and the cross builds,
# which have none, show a file that forgot. ccache keeps objects and precompiled headers alike (see CMakeLists.txt).
option(BATON_PRECOMPILE "precompiled headers (GCC only)" ON)
if(CMAKE_CROSSCOMPILING OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(BATON_PRECOMPILE OFF)
endif()

# JSON not where hardly a file has it: every file behind it instantiates its parser, half a second of a file's time.
set(baton_headers_kernel <algorithm> <array> <charconv> <chrono> <cmath> <cstdint> <cstring> <filesystem> <functional>
  <map> <memory> <mutex> <optional> <span> <string> <string_view> <utility> <vector> <fmt/format.h>
  <fmt/ranges.h> <tl/expected.hpp>)
set(baton_headers_library ${baton_headers_kernel} <nlohmann/json.hpp>)
set(baton_headers_front ${baton_headers_library})
set(baton_headers_test ${baton_headers_library} <gtest/gtest.h>)

# baton_precompile(TARGET KIND): KIND is library, kernel, front or test. A carrier of each kind compiles the headers, with
# its -O: GCC 12 takes those of another -O without a word, and may crash behind them. A file with an instruction set or an
# -O of its own sets SKIP_PRECOMPILE_HEADERS.
function(baton_precompile target kind)
  if(NOT BATON_PRECOMPILE)
    return()
  endif()
  set(carrier baton_headers_of_${kind})
  if(NOT TARGET ${carrier})
    # A program for programs: they are compiled with -fPIE, libraries are not.
    if(kind STREQUAL test)
      add_executable(${carrier} ${PROJECT_SOURCE_DIR}/cmake/precompile.cc)
    else()
      add_library(${carrier} OBJECT ${PROJECT_SOURCE_DIR}/cmake/precompile.cc)
    endif()
    get_target_property(options ${target} COMPILE_OPTIONS)
    target_link_libraries(${carrier} PRIVATE baton_options baton_fmt nlohmann_json::nlohmann_json tl::expected)
    if(kind STREQUAL test)
      target_link_libraries(${carrier} PRIVATE GTest::gtest)
    endif()
    if(options)
      target_compile_options(${carrier} PRIVATE ${options})
    endif()
    target_precompile_headers(${carrier} PRIVATE ${baton_headers_${kind}})
  endif()
  target_precompile_headers(${target} REUSE_FROM ${carrier})
endfunction()
