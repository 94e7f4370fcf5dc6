# stepscope_build_info: a header with version, commit, dirty flag and build type. It is remade at every
# build, and rewritten only when something changed, so that one object file is recompiled at most.
add_library(stepscope_build_info INTERFACE)
set(STEPSCOPE_BUILD_INFO_DIR ${PROJECT_BINARY_DIR}/build_info)
set(STEPSCOPE_BUILD_INFO_COMMAND
    ${CMAKE_COMMAND} -DSOURCE_DIR=${PROJECT_SOURCE_DIR} -DVERSION=${PROJECT_VERSION} -DBUILD_TYPE=${CMAKE_BUILD_TYPE}
    -DOUT=${STEPSCOPE_BUILD_INFO_DIR}/stepscope_build_info.h -P ${CMAKE_CURRENT_LIST_DIR}/WriteBuildInfo.cmake)
execute_process(COMMAND ${STEPSCOPE_BUILD_INFO_COMMAND} COMMAND_ERROR_IS_FATAL ANY)
add_custom_target(stepscope_write_build_info COMMAND ${STEPSCOPE_BUILD_INFO_COMMAND} BYPRODUCTS
                  ${STEPSCOPE_BUILD_INFO_DIR}/stepscope_build_info.h)
add_dependencies(stepscope_build_info stepscope_write_build_info)
target_include_directories(stepscope_build_info INTERFACE ${STEPSCOPE_BUILD_INFO_DIR})
