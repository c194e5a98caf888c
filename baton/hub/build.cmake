# The files that name libcurl and OpenSSL. Without one of them nothing is fetched, and `baton pull` says so.
if(baton_curl)
  set_source_files_properties(${PROJECT_SOURCE_DIR}/${folder}/http.cc ${PROJECT_SOURCE_DIR}/${folder}/sum.cc
    ${PROJECT_SOURCE_DIR}/${folder}/sum_test.cc PROPERTIES COMPILE_DEFINITIONS BATON_HUB_FETCHES)
endif()
