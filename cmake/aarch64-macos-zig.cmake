# Cross build for arm64 macOS 13 on Linux with the compiler of the ziglang package, which has the system's headers and
# stubs of its libraries: no SDK. scripts/setup.sh --macos makes build/macos-sysroot; macos_libraries.cmake builds the
# libraries that are not header-only from their sources in there. Nothing of this has run on a Mac.
set(CMAKE_SYSTEM_NAME Darwin)
set(CMAKE_SYSTEM_PROCESSOR arm64)
get_filename_component(BATON_MACOS_ROOT "${CMAKE_CURRENT_LIST_DIR}/../build/macos-sysroot" ABSOLUTE)
set(CMAKE_C_COMPILER ${BATON_MACOS_ROOT}/bin/macos-clang)
set(CMAKE_CXX_COMPILER ${BATON_MACOS_ROOT}/bin/macos-clang++)
set(CMAKE_AR ${BATON_MACOS_ROOT}/bin/macos-ar CACHE FILEPATH "")
set(CMAKE_RANLIB ${BATON_MACOS_ROOT}/bin/macos-ranlib CACHE FILEPATH "")
set(CMAKE_INSTALL_NAME_TOOL /bin/true CACHE FILEPATH "")  # nothing here has an install name
set(CMAKE_OSX_SYSROOT "" CACHE STRING "")
set(CMAKE_OSX_ARCHITECTURES "" CACHE STRING "")
set(CMAKE_OSX_DEPLOYMENT_TARGET "" CACHE STRING "")

set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)  # the first link of all builds the C++ library: not at configure time

set(CMAKE_PREFIX_PATH ${BATON_MACOS_ROOT}/usr)
set(CMAKE_FIND_ROOT_PATH ${BATON_MACOS_ROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
