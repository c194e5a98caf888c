# Boost is header-only here; its code is compiled in asio.cc alone.
target_compile_definitions(${target} PRIVATE BOOST_ASIO_SEPARATE_COMPILATION BOOST_BEAST_SEPARATE_COMPILATION
  BOOST_ASIO_NO_DEPRECATED BOOST_ASIO_DISABLE_VISIBILITY
  BOOST_ASIO_HAS_STD_INVOKE_RESULT)  # Boost 1.74 would take result_of, which C++20 has no more
set_source_files_properties(${PROJECT_SOURCE_DIR}/${folder}/asio.cc PROPERTIES COMPILE_DEFINITIONS BOOST_BEAST_SOURCE)
# What Asio fences is ordered by its locks as well; the thread sanitizer knows these, and no fences.
if(BATON_SANITIZE MATCHES thread)
  target_compile_definitions(${target} PRIVATE BOOST_ASIO_DISABLE_FENCED_BLOCK)
endif()
# The files that name OpenSSL.
if(baton_openssl)
  set_source_files_properties(${PROJECT_SOURCE_DIR}/${folder}/tls.cc ${PROJECT_SOURCE_DIR}/${folder}/tls_test.cc
    PROPERTIES COMPILE_DEFINITIONS BATON_OPENSSL)
endif()
