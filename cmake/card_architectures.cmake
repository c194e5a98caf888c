# Which capabilities kernels are compiled for where nobody says: the usual ones, and before them those of this machine's
# cards that none of these has machine code for, as far as nvcc knows them. Such a card would begin with a minute or more
# of its driver compiling PTX, made for older ones.
#
# By itself: cmake -DUSUAL="90a;80" -DKNOWN="80;90;120" -P card_architectures.cmake prints the list.
cmake_policy(VERSION 3.25)

# Machine code runs on cards of its generation that are no older; that of a letter on its own card alone.
function(baton_runs_on result arch capability)
  set(${result} FALSE PARENT_SCOPE)
  if(NOT arch MATCHES "^([0-9]+)([0-9])([a-z]?)$")
    return()
  endif()
  set(generation ${CMAKE_MATCH_1})
  set(minor ${CMAKE_MATCH_2})
  set(letter "${CMAKE_MATCH_3}")
  string(REGEX MATCH "^([0-9]+)([0-9])$" capability ${capability})
  if(NOT generation EQUAL CMAKE_MATCH_1)
    return()
  endif()
  if(minor EQUAL CMAKE_MATCH_2 OR (minor LESS CMAKE_MATCH_2 AND letter STREQUAL ""))
    set(${result} TRUE PARENT_SCOPE)
  endif()
endfunction()

function(baton_card_architectures result usual known)
  set(all ${usual})
  execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
    OUTPUT_VARIABLE says ERROR_QUIET RESULT_VARIABLE code TIMEOUT 20)
  if(code EQUAL 0)
    string(REGEX REPLACE "[][;]" " " says "${says}")  # which would make lines one
    string(REGEX REPLACE "[\r\n]+" ";" says "${says}")
    foreach(line IN LISTS says)
      string(STRIP "${line}" line)
      if(NOT line MATCHES "^([0-9]+)\\.([0-9])$")  # an old driver says what it does not know
        continue()
      endif()
      set(generation ${CMAKE_MATCH_1})
      set(capability ${CMAKE_MATCH_1}${CMAKE_MATCH_2})
      # The newest of its generation that nvcc knows and it runs, if not its own.
      set(own "")
      foreach(minor RANGE ${CMAKE_MATCH_2})
        if("${generation}${minor}" IN_LIST known)
          set(own ${generation}${minor})
        endif()
      endforeach()
      set(has_code FALSE)
      foreach(arch IN LISTS all)
        baton_runs_on(has_code ${arch} ${capability})
        if(has_code)
          break()
        endif()
      endforeach()
      if(NOT has_code AND own AND own GREATER_EQUAL 80)
        list(PREPEND all ${own})
      endif()
    endforeach()
  endif()
  set(${result} "${all}" PARENT_SCOPE)
endfunction()

if(CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  baton_card_architectures(all "${USUAL}" "${KNOWN}")
  message(NOTICE "${all}")
endif()
