# Cross build for 64-bit ARM Linux on Debian (g++-aarch64-linux-gnu), run with qemu-user. The libraries come from a
# folder of unpacked arm64 packages, build/arm64-sysroot, made by scripts/setup.sh --arm64; only the C and C++ runtime is
# shared, and that comes with the cross compiler.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L /usr/aarch64-linux-gnu)

get_filename_component(baton_sysroot "${CMAKE_CURRENT_LIST_DIR}/../build/arm64-sysroot" ABSOLUTE)
list(APPEND CMAKE_PREFIX_PATH ${baton_sysroot}/usr)
set(CMAKE_FIND_ROOT_PATH ${baton_sysroot} /usr/aarch64-linux-gnu)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
# Headers that differ by architecture (OpenSSL's): the compiler looks into its own such folder only.
set(CMAKE_C_STANDARD_INCLUDE_DIRECTORIES ${baton_sysroot}/usr/include/aarch64-linux-gnu)
set(CMAKE_CXX_STANDARD_INCLUDE_DIRECTORIES ${baton_sysroot}/usr/include/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_LIBDIR} ${baton_sysroot}/usr/lib/aarch64-linux-gnu/pkgconfig)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${baton_sysroot})
