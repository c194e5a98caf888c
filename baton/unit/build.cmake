# The digest of all that decides the bits of a result in this build: the sources below the engine, compiler and flags.
# Part of every arithmetic() (unit.h): states of another build are not taken for bit-exact.
foreach(below baton/base baton/quant baton/model baton/state baton/unit)
  list(APPEND patterns ${below}/*.cc ${below}/*.h ${below}/*.inc ${below}/*.cu ${below}/*.cuh ${below}/*.mm)
endforeach()
file(GLOB_RECURSE digested RELATIVE ${PROJECT_SOURCE_DIR} CONFIGURE_DEPENDS ${patterns})
list(FILTER digested EXCLUDE REGEX "_(test|bench)\\.(cc|h|cu|mm)$")
list(SORT digested)
list(JOIN digested "\n" lines)
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/source_digest.txt CONTENT "${lines}\n" @ONLY)
string(TOUPPER "${CMAKE_BUILD_TYPE}" build_type)
set(how "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION} ${CMAKE_SYSTEM_NAME} ${CMAKE_SYSTEM_PROCESSOR} ${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${build_type}} ${BATON_SANITIZE}")
set(digest_inc ${PROJECT_BINARY_DIR}/generated/baton/unit/source_digest.inc)
list(TRANSFORM digested PREPEND "${PROJECT_SOURCE_DIR}/" OUTPUT_VARIABLE digested_files)
add_custom_command(OUTPUT ${digest_inc}
  COMMAND ${CMAKE_COMMAND} -DROOT=${PROJECT_SOURCE_DIR} -DLIST=${PROJECT_BINARY_DIR}/source_digest.txt -DEXTRA=${how}
          -DOUT=${digest_inc} -P ${PROJECT_SOURCE_DIR}/cmake/source_digest.cmake
  DEPENDS ${digested_files} ${PROJECT_BINARY_DIR}/source_digest.txt ${PROJECT_SOURCE_DIR}/cmake/source_digest.cmake
  COMMENT "digest of the sources" VERBATIM)
target_sources(${target} PRIVATE ${digest_inc})
set_source_files_properties(${folder}/arithmetic.cc PROPERTIES OBJECT_DEPENDS ${digest_inc})
