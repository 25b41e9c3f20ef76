# Finds cuda.h and nvrtc.h. Only headers are needed: both libraries are opened while the program runs.
# Looks at CUDA_HOME, /usr/local/cuda, the nvcc on PATH and the folders that PyPI's nvidia wheels use.
find_program(_cuda_headers_nvcc nvcc)
if(_cuda_headers_nvcc)
  get_filename_component(_cuda_headers_root ${_cuda_headers_nvcc} DIRECTORY)
  set(_cuda_headers_root ${_cuda_headers_root}/..)
endif()
set(_cuda_headers_hints ${CUDA_HOME} $ENV{CUDA_HOME} $ENV{CUDA_PATH} /usr/local/cuda ${_cuda_headers_root}
    ${PROJECT_SOURCE_DIR}/.deps/cuda)
find_path(CudaHeaders_CUDA_DIR cuda.h HINTS ${_cuda_headers_hints} PATH_SUFFIXES include)
find_path(CudaHeaders_NVRTC_DIR nvrtc.h HINTS ${_cuda_headers_hints} PATH_SUFFIXES include)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CudaHeaders REQUIRED_VARS CudaHeaders_CUDA_DIR CudaHeaders_NVRTC_DIR)
if(CudaHeaders_FOUND AND NOT TARGET CudaHeaders::CudaHeaders)
  add_library(CudaHeaders::CudaHeaders INTERFACE IMPORTED)
  target_include_directories(CudaHeaders::CudaHeaders SYSTEM INTERFACE
    ${CudaHeaders_CUDA_DIR} ${CudaHeaders_NVRTC_DIR})
endif()
