# Finds cuda.h and nvrtc.h. Only headers are needed: both libraries are opened while the program runs.
# Looks first at .deps/cuda, which tools/setup fills where no toolkit of CUDA 12.8 or later is installed, then at
# CUDA_HOME, CUDA_PATH, /usr/local/cuda and the toolkit of the nvcc on PATH.
find_program(_cuda_headers_nvcc nvcc)
if(_cuda_headers_nvcc)
  get_filename_component(_cuda_headers_root ${_cuda_headers_nvcc} DIRECTORY)
  set(_cuda_headers_root ${_cuda_headers_root}/..)
endif()
set(_cuda_headers_hints ${PROJECT_SOURCE_DIR}/.deps/cuda ${CUDA_HOME} $ENV{CUDA_HOME} $ENV{CUDA_PATH}
    /usr/local/cuda ${_cuda_headers_root})
find_path(CudaHeaders_CUDA_DIR cuda.h HINTS ${_cuda_headers_hints} PATH_SUFFIXES include)
find_path(CudaHeaders_NVRTC_DIR nvrtc.h HINTS ${_cuda_headers_hints} PATH_SUFFIXES include)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CudaHeaders REQUIRED_VARS CudaHeaders_CUDA_DIR CudaHeaders_NVRTC_DIR)
if(CudaHeaders_FOUND AND NOT TARGET CudaHeaders::CudaHeaders)
  add_library(CudaHeaders::CudaHeaders INTERFACE IMPORTED)
  target_include_directories(CudaHeaders::CudaHeaders SYSTEM INTERFACE
    ${CudaHeaders_CUDA_DIR} ${CudaHeaders_NVRTC_DIR})
endif()
