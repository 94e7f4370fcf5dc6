# Run with -P: writes the build-info header from git's state. See BuildInfo.cmake.
set(commit unknown)
set(dirty 0)
find_program(GIT git)
if(GIT)
  execute_process(COMMAND ${GIT} -C ${SOURCE_DIR} rev-parse HEAD OUTPUT_VARIABLE head RESULT_VARIABLE failed
                  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(NOT failed)
    set(commit ${head})
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
