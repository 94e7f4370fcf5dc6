# Decides whether the CUDA back end is built (STEPSCOPE_CUDA=AUTO|ON|OFF) and with which toolkit: the
# system's CUDA 13, else NVIDIA's packages from PyPI in .venv (cmake/setup.sh looks in the same places and
# installs those where the system has none). Sets STEPSCOPE_CUDA_ENABLED.
set(STEPSCOPE_CUDA_ENABLED OFF)
if(NOT STEPSCOPE_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "STEPSCOPE_CUDA is '${STEPSCOPE_CUDA}': it takes AUTO, ON or OFF.")
endif()
if(NOT STEPSCOPE_CUDA STREQUAL "OFF")
  find_program(path_nvcc nvcc NO_CACHE)
  file(GLOB wheel_nvcc ${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/nvidia/cu13/bin/nvcc)
  set(nvcc "")
  foreach(candidate ${CMAKE_CUDA_COMPILER} $ENV{CUDACXX} ${path_nvcc} /usr/local/cuda/bin/nvcc ${wheel_nvcc})
    if(NOT nvcc AND EXISTS ${candidate})
      execute_process(COMMAND ${candidate} --version OUTPUT_VARIABLE nvcc_version ERROR_QUIET)
      if(nvcc_version MATCHES "release 13\\.")
        set(nvcc ${candidate})
      endif()
    endif()
  endforeach()
  if(nvcc)
    get_filename_component(cuda_bin ${nvcc} DIRECTORY)
    get_filename_component(cuda_root ${cuda_bin} DIRECTORY)
    set(CMAKE_CUDA_COMPILER ${nvcc} CACHE FILEPATH "nvcc" FORCE)
    set(CUDAToolkit_ROOT ${cuda_root} CACHE PATH "CUDA toolkit" FORCE)
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES "75;80;86;89;90;100;103;120" CACHE STRING "Targets of the CUDA kernels")
    endif()
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)
    set(STEPSCOPE_CUDA_ENABLED ON)
    message(STATUS "CUDA back end: ${nvcc}, targets ${CMAKE_CUDA_ARCHITECTURES}")
  elseif(STEPSCOPE_CUDA STREQUAL "ON")
    message(FATAL_ERROR "STEPSCOPE_CUDA=ON, and no CUDA 13 was found. Run cmake/setup.sh, or give -DCMAKE_CUDA_COMPILER=<nvcc 13>.")
  else()
    message(STATUS "CUDA back end: not built (no CUDA 13 found; cmake/setup.sh installs it)")
  endif()
endif()

# NVTX is headers only, and used even where no CUDA code is built: from the toolkit, else from PyPI.
file(GLOB wheel_cuda_include ${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/nvidia/cu13/include)
find_path(STEPSCOPE_NVTX_INCLUDE_DIR nvtx3/nvToolsExt.h PATHS ${CUDAToolkit_INCLUDE_DIRS} /usr/local/cuda/include ${wheel_cuda_include}
          DOC "Folder of nvtx3/nvToolsExt.h")

# CUPTI's headers, to the same end, with those of the driver beside them.
set(cuda_roots ${CUDAToolkit_ROOT} /usr/local/cuda)
list(TRANSFORM cuda_roots APPEND /extras/CUPTI/include OUTPUT_VARIABLE cupti_folders)
find_path(STEPSCOPE_CUPTI_INCLUDE_DIR cupti.h PATHS ${wheel_cuda_include} ${cupti_folders} ${CUDAToolkit_INCLUDE_DIRS}
          DOC "Folder of cupti.h")
find_path(STEPSCOPE_CUDA_INCLUDE_DIR crt/host_defines.h PATHS ${wheel_cuda_include} ${CUDAToolkit_INCLUDE_DIRS} /usr/local/cuda/include
          DOC "Folder of cuda.h and of what it includes")
set(STEPSCOPE_CUPTI_INCLUDE_DIRS "")
if(STEPSCOPE_CUPTI_INCLUDE_DIR AND STEPSCOPE_CUDA_INCLUDE_DIR)
  # Those of CUDA 12 have another record of kernels.
  file(STRINGS ${STEPSCOPE_CUPTI_INCLUDE_DIR}/cupti_activity.h kernel_record REGEX "CUpti_ActivityKernel10;")
endif()
if(kernel_record)
  set(STEPSCOPE_CUPTI_INCLUDE_DIRS ${STEPSCOPE_CUPTI_INCLUDE_DIR} ${STEPSCOPE_CUDA_INCLUDE_DIR})
endif()
# Where tests find libcupti.
set(STEPSCOPE_CUPTI_LIBRARY_PATH ${STEPSCOPE_CUPTI_INCLUDE_DIR}/../lib:${STEPSCOPE_CUPTI_INCLUDE_DIR}/../lib64)

# NCCL's header, of the version that libtorch loads; the library itself is loaded at run time.
file(GLOB wheel_nccl_include ${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/nvidia/nccl/include)
find_path(STEPSCOPE_NCCL_INCLUDE_DIR nccl.h PATHS ${wheel_nccl_include} NO_DEFAULT_PATH DOC "Folder of nccl.h")
find_path(STEPSCOPE_NCCL_INCLUDE_DIR nccl.h PATHS ${CUDAToolkit_INCLUDE_DIRS})
