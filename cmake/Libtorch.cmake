# stepscope::libtorch: the libtorch that pip installed into .venv (or STEPSCOPE_TORCH_DIR).
#
# PyTorch's own TorchConfig.cmake is not used: a wheel built with CUDA refuses to configure on a
# machine without the toolkit, although nothing of it is needed on CPU.
set(STEPSCOPE_TORCH_DIR "" CACHE PATH "Folder of the Python package torch; empty: the one in .venv")
set(torch_dir ${STEPSCOPE_TORCH_DIR})
if(NOT torch_dir)
  file(GLOB torch_candidates ${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch)
  list(LENGTH torch_candidates torch_candidate_count)
  if(torch_candidate_count EQUAL 1)
    set(torch_dir ${torch_candidates})
  endif()
endif()
if(NOT EXISTS ${torch_dir}/lib/libtorch_cpu.so)
  message(FATAL_ERROR "PyTorch was not found. Run cmake/setup.sh, or give -DSTEPSCOPE_TORCH_DIR=<site-packages>/torch.")
endif()
find_path(GLOO_INCLUDE_DIR gloo/transport/device.h REQUIRED
          DOC "Gloo's headers, which c10d's ProcessGroupGloo.hpp includes (Debian: libgloo-dev); nothing is linked")

# The wheel's libraries need those of the nvidia-* wheels beside it. -rpath-link lets the linker resolve
# them there; otherwise it may take an older NCCL of the system and miss symbols.
get_filename_component(site_packages ${torch_dir} DIRECTORY)
file(GLOB nvidia_lib_dirs ${site_packages}/nvidia/*/lib)
add_library(stepscope_libtorch INTERFACE)
add_library(stepscope::libtorch ALIAS stepscope_libtorch)
target_include_directories(
  stepscope_libtorch SYSTEM INTERFACE ${torch_dir}/include ${torch_dir}/include/torch/csrc/api/include ${GLOO_INCLUDE_DIR})
# NDEBUG as the wheel was built with: without it libtorch's headers check flags that the wheel never sets
# (at::RecordFunction::inputs).
target_compile_definitions(
  stepscope_libtorch INTERFACE USE_C10D_GLOO USE_DISTRIBUTED USE_RPC $<$<NOT:$<CONFIG:Release,MinSizeRel>>:NDEBUG>)
target_link_libraries(stepscope_libtorch INTERFACE ${torch_dir}/lib/libtorch_cpu.so ${torch_dir}/lib/libc10.so)
foreach(dir ${torch_dir}/lib ${nvidia_lib_dirs})
  target_link_options(stepscope_libtorch INTERFACE -Wl,-rpath-link,${dir})
endforeach()
set(STEPSCOPE_TORCH_LIB_DIR ${torch_dir}/lib)
message(STATUS "PyTorch: ${torch_dir}")
