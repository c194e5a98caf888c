# The library for others: one archive of all folders but tools, bench and cli, the target baton::baton, and what an installation
# holds. The public headers are those that include/baton/baton.h names, and what they include.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

configure_file(${PROJECT_SOURCE_DIR}/include/baton/version.h.in ${PROJECT_BINARY_DIR}/generated/baton/version.h @ONLY)

set(objects "")
foreach(folder IN LISTS BATON_FOLDERS)
  baton_target_name(${folder} name)
  get_target_property(type baton_${name} TYPE)
  if(NOT folder MATCHES "^baton/(tools|bench|cli)$" AND NOT type STREQUAL "INTERFACE_LIBRARY")
    list(APPEND objects $<TARGET_OBJECTS:baton_${name}>)
  endif()
endforeach()
add_library(baton STATIC ${objects})
add_library(baton::baton ALIAS baton)
set_target_properties(baton PROPERTIES LINKER_LANGUAGE CXX)
target_compile_features(baton INTERFACE cxx_std_20)
target_include_directories(baton INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
  $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/generated> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(baton INTERFACE tl::expected nlohmann_json::nlohmann_json Threads::Threads
  $<LINK_ONLY:fmt::fmt> $<LINK_ONLY:PkgConfig::PCRE2> $<LINK_ONLY:PkgConfig::UTF8PROC> $<LINK_ONLY:PkgConfig::XXHASH>
  $<LINK_ONLY:PkgConfig::SODIUM>)

# Every header that `header` leads to, below the source folder.
function(baton_headers_of header out)
  set(found ${${out}})
  if(NOT header IN_LIST found)
    list(APPEND found ${header})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${header})
    file(STRINGS ${PROJECT_SOURCE_DIR}/${header} lines REGEX "^#include \"baton/")
    foreach(line IN LISTS lines)
      string(REGEX REPLACE "^#include \"([^\"]+)\".*" "\\1" next "${line}")
      if(NOT next STREQUAL "baton/version.h")
        baton_headers_of(${next} found)
      endif()
    endforeach()
  endif()
  set(${out} ${found} PARENT_SCOPE)
endfunction()

option(BATON_INSTALL "rules for cmake --install" ${PROJECT_IS_TOP_LEVEL})
if(BATON_INSTALL)
  set(headers "")
  baton_headers_of(include/baton/baton.h headers)
  foreach(header IN LISTS headers)
    string(REGEX REPLACE "^include/" "" to ${header})
    get_filename_component(to ${to} DIRECTORY)
    install(FILES ${PROJECT_SOURCE_DIR}/${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/${to})
  endforeach()
  install(FILES ${PROJECT_BINARY_DIR}/generated/baton/version.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/baton)

  set(package ${CMAKE_INSTALL_LIBDIR}/cmake/baton)
  install(TARGETS baton EXPORT baton-targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT baton-targets NAMESPACE baton:: DESTINATION ${package})
  configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/baton-config.cmake.in ${PROJECT_BINARY_DIR}/baton-config.cmake
    INSTALL_DESTINATION ${package})
  # Before 1.0 every minor version may change what is promised.
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/baton-config-version.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/baton-config.cmake ${PROJECT_BINARY_DIR}/baton-config-version.cmake
    DESTINATION ${package})
  # The prefix is known when it is installed, not before.
  install(CODE "set(CMAKE_INSTALL_LIBDIR \"${CMAKE_INSTALL_LIBDIR}\")
    set(CMAKE_INSTALL_INCLUDEDIR \"${CMAKE_INSTALL_INCLUDEDIR}\")
    set(PROJECT_VERSION \"${PROJECT_VERSION}\")
    get_filename_component(CMAKE_INSTALL_PREFIX \"\${CMAKE_INSTALL_PREFIX}\" ABSOLUTE)
    configure_file(\"${PROJECT_SOURCE_DIR}/cmake/baton.pc.in\" \"${PROJECT_BINARY_DIR}/baton.pc\" @ONLY)")
  install(FILES ${PROJECT_BINARY_DIR}/baton.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

  # What starts the server at boot: systemd looks in PREFIX/lib/systemd/system, launchd's file is copied by hand.
  install(CODE "set(CMAKE_INSTALL_DATADIR \"${CMAKE_INSTALL_DATADIR}\")
    get_filename_component(CMAKE_INSTALL_PREFIX \"\${CMAKE_INSTALL_PREFIX}\" ABSOLUTE)
    configure_file(\"${PROJECT_SOURCE_DIR}/packaging/baton.service.in\" \"${PROJECT_BINARY_DIR}/baton.service\" @ONLY)
    configure_file(\"${PROJECT_SOURCE_DIR}/packaging/com.baton.serve.plist.in\"
      \"${PROJECT_BINARY_DIR}/com.baton.serve.plist\" @ONLY)")
  if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
    install(FILES ${PROJECT_BINARY_DIR}/baton.service DESTINATION lib/systemd/system)
  endif()
  install(FILES ${PROJECT_BINARY_DIR}/com.baton.serve.plist DESTINATION ${CMAKE_INSTALL_DATADIR}/baton/launchd)

  install(TARGETS baton_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(FILES models/dictionary-28m.Q8_0.gguf models/README.md DESTINATION ${CMAKE_INSTALL_DATADIR}/baton/models)
  install(FILES README.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
  install(DIRECTORY examples/ DESTINATION ${CMAKE_INSTALL_DATADIR}/baton/examples)
endif()
