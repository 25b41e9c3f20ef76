# Finds cuda.h and cudaTypedefs.h, from one folder. Only headers are needed: the driver is opened while the program runs.
# Looks first at .deps/cuda, which tools/setup fills where no toolkit of CUDA 12.8 or later is installed, then at
# CUDA_HOME, CUDA_PATH, /usr/local/cuda and the toolkit of the nvcc on PATH, and at the wheel nvidia-cuda-runtime, which
# `pip install` puts beside the Python packages that it builds with.
find_program(_cuda_headers_nvcc nvcc)
if(_cuda_headers_nvcc)
  get_filename_component(_cuda_headers_root ${_cuda_headers_nvcc} DIRECTORY)
  set(_cuda_headers_root ${_cuda_headers_root}/..)
endif()
find_path(CudaHeaders_CUDA_DIR cudaTypedefs.h
  HINTS ${PROJECT_SOURCE_DIR}/.deps/cuda ${CUDA_HOME} $ENV{CUDA_HOME} $ENV{CUDA_PATH} /usr/local/cuda ${_cuda_headers_root}
  PATH_SUFFIXES include)
if(NOT CudaHeaders_CUDA_DIR AND Python_EXECUTABLE)
  execute_process(COMMAND ${Python_EXECUTABLE} -c "import nvidia; print(*nvidia.__path__, sep=';')"
    OUTPUT_VARIABLE _cuda_headers_wheels OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  find_path(CudaHeaders_CUDA_DIR cudaTypedefs.h HINTS ${_cuda_headers_wheels} NO_DEFAULT_PATH
    PATH_SUFFIXES cu13/include cuda_runtime/include)
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CudaHeaders REQUIRED_VARS CudaHeaders_CUDA_DIR REASON_FAILURE_MESSAGE
  "cuda.h and cudaTypedefs.h are missing: tools/setup fetches them, and so does pip install nvidia-cuda-runtime")
if(CudaHeaders_FOUND AND NOT TARGET CudaHeaders::CudaHeaders)
  add_library(CudaHeaders::CudaHeaders INTERFACE IMPORTED)
  target_include_directories(CudaHeaders::CudaHeaders SYSTEM INTERFACE ${CudaHeaders_CUDA_DIR})
endif()
