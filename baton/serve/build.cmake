# The files of page/ as data that page.cc includes: the program needs no file beside itself.
set(page_folder ${PROJECT_SOURCE_DIR}/${folder}/page)
file(GLOB page_names CONFIGURE_DEPENDS RELATIVE ${page_folder} ${page_folder}/*)
list(FILTER page_names INCLUDE REGEX "\\.(html|css|js|svg)$")
list(TRANSFORM page_names PREPEND "${page_folder}/" OUTPUT_VARIABLE page_files)
list(JOIN page_names "," page_names)
set(page_data ${PROJECT_BINARY_DIR}/generated/baton/serve/page_data.inc)
add_custom_command(OUTPUT ${page_data}
  COMMAND ${CMAKE_COMMAND} -DFOLDER=${page_folder} -DNAMES=${page_names} -DOUT=${page_data}
    -P ${PROJECT_SOURCE_DIR}/cmake/page_data.cmake
  DEPENDS ${page_files} ${PROJECT_SOURCE_DIR}/cmake/page_data.cmake VERBATIM)
add_custom_target(baton_page_data DEPENDS ${page_data})
add_dependencies(${target} baton_page_data)
