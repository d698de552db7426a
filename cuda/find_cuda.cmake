# Decides whether the CUDA backend is built, and finds what it needs. Sets ANNULUS_CUDA_ON.
set(ANNULUS_CUDA_ON OFF)
set(ANNULUS_CUDA_NEEDS "")

# Says why not: an error when CUDA was asked for, a line otherwise.
macro(no_cuda why)
  if(ANNULUS_CUDA STREQUAL "AUTO")
    message(STATUS "CUDA backend: off (${why})")
  else()
    message(FATAL_ERROR "ANNULUS_CUDA=ON, but ${why}")
  endif()
  return()
endmacro()

if(ANNULUS_CUDA STREQUAL "OFF")
  message(STATUS "CUDA backend: off (ANNULUS_CUDA=OFF)")
  return()
endif()

find_program(NVCC nvcc HINTS ${CUDAToolkit_ROOT} ENV CUDAToolkit_ROOT ENV CUDA_HOME ENV CUDA_PATH
             PATHS /usr/local/cuda PATH_SUFFIXES bin)
if(NOT NVCC)
  no_cuda("there is no nvcc: load the cuda module, or set CUDA_HOME")
endif()
execute_process(COMMAND ${NVCC} --version OUTPUT_VARIABLE NVCC_TEXT ERROR_QUIET)
string(REGEX MATCH "release ([0-9]+\\.[0-9]+)" NVCC_TEXT "${NVCC_TEXT}")
set(NVCC_VERSION ${CMAKE_MATCH_1})
if(NOT NVCC_VERSION OR NVCC_VERSION VERSION_LESS 12.8)
  no_cuda("${NVCC} is of version '${NVCC_VERSION}', and 12.8 or later is needed")
endif()
if(NOT CMAKE_CUDA_COMPILER)
  set(CMAKE_CUDA_COMPILER ${NVCC})
endif()
set(CMAKE_CUDA_ARCHITECTURES OFF)  # cuda/CMakeLists.txt names them
enable_language(CUDA)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake learned it in 3.26
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
find_package(CUDAToolkit 12.8 REQUIRED)

find_library(CUBLASLT_LIBRARY cublasLt HINTS ${CUDAToolkit_LIBRARY_DIR} ENV CUDA_HOME PATH_SUFFIXES lib64 lib)
find_library(NVRTC_LIBRARY nvrtc HINTS ${CUDAToolkit_LIBRARY_DIR} ENV CUDA_HOME PATH_SUFFIXES lib64 lib)
find_library(NCCL_LIBRARY nccl HINTS ENV NCCL_HOME ENV NCCL_ROOT ${CUDAToolkit_LIBRARY_DIR} PATH_SUFFIXES lib64 lib)
find_path(NCCL_INCLUDE nccl.h HINTS ENV NCCL_HOME ENV NCCL_ROOT ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES include)
find_library(CUDNN_LIBRARY cudnn HINTS ENV CUDNN_HOME ENV CUDNN_ROOT ${CUDAToolkit_LIBRARY_DIR} PATH_SUFFIXES lib64 lib)
find_path(CUDNN_INCLUDE cudnn_graph.h HINTS ENV CUDNN_HOME ENV CUDNN_ROOT ${CUDAToolkit_INCLUDE_DIRS}
          PATH_SUFFIXES include)

# The header-only cuDNN frontend: a folder that was named, the build folder (`make cudnn-frontend` puts it there), a Python
# environment that has the wheel nvidia-cudnn-frontend, or the system.
file(GLOB FRONTEND_VENVS ${CMAKE_SOURCE_DIR}/.venv/lib/python3*/site-packages/include
     ${CMAKE_SOURCE_DIR}/.venv/include/python3*/nvidia-cudnn-frontend)
find_program(PYTHON3 python3)
set(FRONTEND_PYTHON "")
if(PYTHON3)
  execute_process(COMMAND ${PYTHON3} -c "import sysconfig; print(sysconfig.get_path('purelib'))"
                  OUTPUT_VARIABLE FRONTEND_PYTHON OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
find_path(CUDNN_FRONTEND_INCLUDE cudnn_frontend.h
          HINTS ${CUDNN_FRONTEND_PATH} ENV CUDNN_FRONTEND_PATH ${CMAKE_BINARY_DIR}/cudnn-frontend ${FRONTEND_VENVS}
                ${FRONTEND_PYTHON} ENV CUDNN_HOME ${CUDAToolkit_INCLUDE_DIRS}
          PATH_SUFFIXES include)

# CUTLASS, header-only too, likewise: `make cutlass`, the wheel nvidia-cutlass, or a copy of it.
file(GLOB CUTLASS_VENVS ${CMAKE_SOURCE_DIR}/.venv/lib/python3*/site-packages)
find_path(CUTLASS_INCLUDE cutlass/gemm/kernel/sm90_gemm_array_tma_warpspecialized_cooperative.hpp
          HINTS ${CUTLASS_PATH} ENV CUTLASS_PATH ${CMAKE_BINARY_DIR}/cutlass ${CUTLASS_VENVS} ${FRONTEND_PYTHON}
          PATH_SUFFIXES include cutlass_library/source/include)

foreach(one CUBLASLT_LIBRARY NVRTC_LIBRARY NCCL_LIBRARY NCCL_INCLUDE CUDNN_LIBRARY CUDNN_INCLUDE)
  if(NOT ${one})
    no_cuda("${one} was not found: load the modules cuda, nccl and cudnn, or set NCCL_HOME and CUDNN_HOME")
  endif()
endforeach()
if(NOT CUDNN_FRONTEND_INCLUDE)
  no_cuda("cudnn_frontend.h was not found: `make cudnn-frontend` fetches it, or set CUDNN_FRONTEND_PATH")
endif()
if(NOT CUTLASS_INCLUDE)
  no_cuda("CUTLASS was not found: `make cutlass` fetches it, or set CUTLASS_PATH")
endif()

# The names under which the dynamic linker is asked for them, for messages.
foreach(one ${CUBLASLT_LIBRARY} ${NCCL_LIBRARY} ${CUDNN_LIBRARY} ${NVRTC_LIBRARY})
  execute_process(COMMAND ${CMAKE_OBJDUMP} -p ${one} OUTPUT_VARIABLE HEADER ERROR_QUIET)
  if(HEADER MATCHES "SONAME +([^ \n]+)")
    list(APPEND ANNULUS_CUDA_NEEDS ${CMAKE_MATCH_1})
  endif()
endforeach()
list(JOIN ANNULUS_CUDA_NEEDS " " ANNULUS_CUDA_NEEDS)
set(ANNULUS_CUDA_ON ON)
message(STATUS "CUDA backend: on (nvcc ${NVCC_VERSION}; ${ANNULUS_CUDA_NEEDS}; frontend ${CUDNN_FRONTEND_INCLUDE}; CUTLASS ${CUTLASS_INCLUDE})")
