# Run with -P: writes the build-info header from git's state. See BuildInfo.cmake.
set(commit unknown)
set(dirty 0)
find_program(GIT git)
if(GIT)
  # The way up to the top of the work tree, an empty line at the top itself, and the commit. An unpacked archive within
  # somebody's repository must not be given that repository's commit (see bench/checkout.py).
  execute_process(COMMAND ${GIT} -C ${SOURCE_DIR} rev-parse --show-cdup HEAD OUTPUT_VARIABLE head
                  RESULT_VARIABLE failed ERROR_QUIET)
  if(NOT failed AND head MATCHES "^\n([0-9a-f]+)\n$")
    set(commit ${CMAKE_MATCH_1})
    execute_process(COMMAND ${GIT} -C ${SOURCE_DIR} status --porcelain --untracked-files=no
                    OUTPUT_VARIABLE changes OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(changes)
      set(dirty 1)
    endif()
  endif()
endif()
set(text "#pragma once
#define STEPSCOPE_VERSION \"${VERSION}\"
#define STEPSCOPE_COMMIT \"${commit}\"
#define STEPSCOPE_DIRTY ${dirty}
#define STEPSCOPE_BUILD_TYPE \"${BUILD_TYPE}\"
")
set(old "")
if(EXISTS ${OUT})
  file(READ ${OUT} old)
endif()
if(NOT old STREQUAL text)
  file(WRITE ${OUT} "${text}")
endif()
