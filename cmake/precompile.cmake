# Precompiled headers: what most files include, of other projects only, read once per kind of target and not once per file.
# Without them each preset still compiles: files include what they use, and the presets of clang and the cross builds,
# which have none, show a file that forgot. ccache keeps objects and precompiled headers alike (see CMakeLists.txt).
option(BATON_PRECOMPILE "precompiled headers (GCC only)" ON)
if(CMAKE_CROSSCOMPILING OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(BATON_PRECOMPILE OFF)
endif()

set(baton_headers_library <algorithm> <array> <charconv> <chrono> <cmath> <cstdint> <cstring> <filesystem> <functional>
  <map> <memory> <mutex> <optional> <span> <string> <string_view> <utility> <vector> <fmt/format.h>
  <fmt/ranges.h> <nlohmann/json.hpp> <tl/expected.hpp>)
set(baton_headers_test ${baton_headers_library} <gtest/gtest.h>)

# baton_precompile(TARGET KIND): KIND is library or test. The first of a kind compiles the headers, the others use them.
# All of a kind have the same flags but for -O, which changes no header; a file with an instruction set of its own sets
# SKIP_PRECOMPILE_HEADERS.
function(baton_precompile target kind)
  if(NOT BATON_PRECOMPILE)
    return()
  endif()
  get_property(first GLOBAL PROPERTY baton_precompiled_${kind})
  if(first)
    target_precompile_headers(${target} REUSE_FROM ${first})
  else()
    target_precompile_headers(${target} PRIVATE ${baton_headers_${kind}})
    set_property(GLOBAL PROPERTY baton_precompiled_${kind} ${target})
  endif()
endfunction()
