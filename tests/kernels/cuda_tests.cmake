# Tests of the arithmetic `bnb-cuda` and of the CUDA back end. Those of the kernels need nvcc, not a GPU.
stepscope_test(bnb_cuda_test SOURCES bnb_cuda_test.cc LIBS stepscope_kernels)

# The interface of bitsandbytes' CUDA library, as one that records its calls: whole, with a function missing, and in need of a library that is
# not where the loader looks, as where NVIDIA's packages are missing.
foreach(recorder bnb_cuda_abi_recorder bnb_cuda_abi_recorder_incomplete bnb_cuda_abi_recorder_needy bnb_cuda_missing_library)
  add_library(${recorder} SHARED bnb_cuda_abi_recorder.cc)
  target_link_libraries(${recorder} PRIVATE stepscope_options)
endforeach()
target_compile_definitions(bnb_cuda_abi_recorder_incomplete PRIVATE STEPSCOPE_ONE_FUNCTION_MISSING)
target_link_libraries(bnb_cuda_abi_recorder_needy PRIVATE -Wl,--no-as-needed bnb_cuda_missing_library)
set_target_properties(bnb_cuda_abi_recorder_needy PROPERTIES SKIP_BUILD_RPATH ON)
stepscope_test(bnb_cuda_abi_test SOURCES bnb_cuda_abi_test.cc LIBS stepscope_bitsandbytes_abi)
add_dependencies(bnb_cuda_abi_test bnb_cuda_abi_recorder bnb_cuda_abi_recorder_incomplete bnb_cuda_abi_recorder_needy)
get_filename_component(site_packages ${STEPSCOPE_TORCH_LIB_DIR}/../.. ABSOLUTE)
target_compile_definitions(
  bnb_cuda_abi_test
  PRIVATE STEPSCOPE_ABI_RECORDER="$<TARGET_FILE:bnb_cuda_abi_recorder>" STEPSCOPE_SITE_PACKAGES="${site_packages}"
          STEPSCOPE_ABI_RECORDER_INCOMPLETE="$<TARGET_FILE:bnb_cuda_abi_recorder_incomplete>"
          STEPSCOPE_ABI_RECORDER_NEEDY="$<TARGET_FILE:bnb_cuda_abi_recorder_needy>")

stepscope_pytest(ptxrun_test ptxrun_test.py LABELS cuda)
stepscope_pytest(ptx_test ptx_test.py TIMEOUT 900 LABELS cuda)
stepscope_pytest(sass_test sass_test.py TIMEOUT 600 LABELS cuda)
# A skipped file is not a passed one; the reasons are printed.
set_tests_properties(ptx_test sass_test PROPERTIES SKIP_REGULAR_EXPRESSION "(^|\n)[0-9]+ skipped in ")
set_property(TEST ptx_test sass_test APPEND PROPERTY ENVIRONMENT "PYTEST_ADDOPTS=-rs")

if(STEPSCOPE_CUDA_ENABLED)
  list(JOIN CMAKE_CUDA_ARCHITECTURES "," cuda_targets)
  stepscope_test(step_table_test SOURCES cuda_step_table_test.cc LIBS stepscope_kernels_cuda LABELS cuda)
  stepscope_test(cuda_device_test SOURCES cuda_device_test.cc LIBS stepscope_kernels_cuda LABELS cuda)

  # Needs a GPU; tests/device.sh runs it, under compute-sanitizer too.
  stepscope_test(cuda_gpu_test SOURCES cuda_gpu_test.cc LIBS stepscope_kernels_cuda stepscope_bitsandbytes_abi LABELS gpu
                 TIMEOUT 300)
  target_compile_definitions(cuda_gpu_test PRIVATE STEPSCOPE_SITE_PACKAGES="${site_packages}")
  set_tests_properties(cuda_gpu_test PROPERTIES SKIP_REGULAR_EXPRESSION "PASSED  \\] 0 tests")

  # Compiled from sources: the project's static libraries are not position-independent.
  add_library(
    bnb_cuda_oracle SHARED
    bnb_cuda_oracle.cc ${PROJECT_SOURCE_DIR}/core/error.cc ${PROJECT_SOURCE_DIR}/kernels/bnb_cuda_reference.cc
    ${PROJECT_SOURCE_DIR}/kernels/cuda/step_table.cc ${PROJECT_SOURCE_DIR}/kernels/shard_overlap.cc
    ${PROJECT_SOURCE_DIR}/kernels/validate.cc)
  target_link_libraries(bnb_cuda_oracle PRIVATE stepscope_options)
  set_property(
    TEST ptx_test sass_test APPEND
    PROPERTY ENVIRONMENT "STEPSCOPE_NVCC=${CMAKE_CUDA_COMPILER}" "STEPSCOPE_BNB_CUDA_ORACLE=$<TARGET_FILE:bnb_cuda_oracle>"
             "STEPSCOPE_CUDA_LIBRARY=$<TARGET_FILE:stepscope_kernels_cuda>" "STEPSCOPE_CUDA_TARGETS=${cuda_targets}")
endif()
