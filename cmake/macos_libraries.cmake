# fmt, PCRE2, utf8proc, xxHash and what is used of libsodium for the macOS cross build, from the archives that Debian's source packages hold, under the
# names of the pkg-config targets. Their own build systems are left out: few files, fixed settings.
set(source ${BATON_MACOS_ROOT}/src)

set(pcre2_files auto_possess chkdint compile config context convert dfa_match error extuni find_bracket maketables match
  match_data newline ord2utf pattern_info script_run serialize string_utils study substitute substring tables ucd
  valid_utf xclass)
foreach(name IN LISTS pcre2_files)
  if(EXISTS ${source}/pcre2/src/pcre2_${name}.c)
    list(APPEND pcre2_sources ${source}/pcre2/src/pcre2_${name}.c)
  endif()
endforeach()
set(generated ${PROJECT_BINARY_DIR}/generated/pcre2)
configure_file(${source}/pcre2/src/config.h.generic ${generated}/config.h COPYONLY)
configure_file(${source}/pcre2/src/pcre2.h.generic ${generated}/pcre2.h COPYONLY)
configure_file(${source}/pcre2/src/pcre2_chartables.c.dist ${generated}/pcre2_chartables.c COPYONLY)
add_library(baton_pcre2 STATIC ${pcre2_sources} ${generated}/pcre2_chartables.c)
target_include_directories(baton_pcre2 SYSTEM PUBLIC ${generated} PRIVATE ${source}/pcre2/src)
target_compile_definitions(baton_pcre2 PUBLIC PCRE2_STATIC PRIVATE HAVE_CONFIG_H PCRE2_CODE_UNIT_WIDTH=8
  SUPPORT_PCRE2_8 SUPPORT_UNICODE HAVE_MEMMOVE)

add_library(baton_utf8proc STATIC ${source}/utf8proc/utf8proc.c)
target_include_directories(baton_utf8proc SYSTEM PUBLIC ${source}/utf8proc)
target_compile_definitions(baton_utf8proc PUBLIC UTF8PROC_STATIC)

add_library(baton_xxhash STATIC ${source}/xxhash/xxhash.c)
target_include_directories(baton_xxhash SYSTEM PUBLIC ${source}/xxhash)

# Could be header-only, but that doubles the time of every file.
add_library(baton_fmt STATIC ${source}/fmtlib/src/format.cc ${source}/fmtlib/src/os.cc)
target_include_directories(baton_fmt SYSTEM PUBLIC ${source}/fmtlib/include)
target_compile_definitions(baton_fmt PUBLIC SPDLOG_FMT_EXTERNAL)

# Keyed BLAKE2b in portable C, comparison and wiping. version.h comes with Debian's headers, as libsodium's configure wrote it.
# Its core.c chooses among the implementations of every algorithm, and would bring them all; here there is one.
set(sodium ${source}/libsodium/src/libsodium)
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/sodium/core.c CONTENT "int sodium_init(void);\nint sodium_init(void) { return 0; }\n" @ONLY)
add_library(baton_sodium STATIC ${sodium}/crypto_generichash/crypto_generichash.c
  ${sodium}/crypto_generichash/blake2b/generichash_blake2.c ${sodium}/crypto_generichash/blake2b/ref/generichash_blake2b.c
  ${sodium}/crypto_generichash/blake2b/ref/blake2b-ref.c ${sodium}/crypto_generichash/blake2b/ref/blake2b-compress-ref.c
  ${sodium}/crypto_verify/sodium/verify.c ${sodium}/randombytes/randombytes.c
  ${sodium}/randombytes/sysrandom/randombytes_sysrandom.c ${sodium}/sodium/utils.c ${sodium}/sodium/runtime.c
  ${PROJECT_BINARY_DIR}/generated/sodium/core.c)
target_include_directories(baton_sodium SYSTEM PUBLIC ${BATON_MACOS_ROOT}/usr/include PRIVATE ${sodium}/include/sodium)
target_compile_definitions(baton_sodium PRIVATE CONFIGURED=1 NATIVE_LITTLE_ENDIAN=1 HAVE_WEAK_SYMBOLS=1)

# Part of macOS: the header as Debian has it, and what the linker needs to know of the system's library.
set(edit_symbols el_init el_end el_wset el_wget el_wgets el_wgetc el_wline el_winsertstr el_source el_resize history_winit
  history_wend history_w)
list(TRANSFORM edit_symbols PREPEND _)
list(JOIN edit_symbols ", " edit_symbols)
file(WRITE ${PROJECT_BINARY_DIR}/generated/libedit.tbd "--- !tapi-tbd
tbd-version: 4
targets: [ arm64-macos ]
install-name: '/usr/lib/libedit.3.dylib'
exports:
  - targets: [ arm64-macos ]
    symbols: [ ${edit_symbols} ]
...
")
add_library(baton_edit INTERFACE)
target_include_directories(baton_edit SYSTEM INTERFACE ${BATON_MACOS_ROOT}/usr/include)
target_link_libraries(baton_edit INTERFACE ${PROJECT_BINARY_DIR}/generated/libedit.tbd)

add_library(PkgConfig::PCRE2 ALIAS baton_pcre2)
add_library(PkgConfig::UTF8PROC ALIAS baton_utf8proc)
add_library(PkgConfig::XXHASH ALIAS baton_xxhash)
add_library(PkgConfig::SODIUM ALIAS baton_sodium)
