// cuBLAS, loaded at run time: the baseline that `bench` compares the matrix product's steps with.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <jit/matmul.h>

namespace jit::tool {

/// Candidate paths of libcublas.so.13 or .12, best first: the dynamic linker's, then CUDA_HOME,
/// /usr/local/cuda and NVIDIA's wheels.
std::vector<std::string> cublas_files();

/// cuBLAS on the current device. Single-threaded.
class Cublas {
 public:
  /// Loads the first of `files` that can be opened. Throws BadInput when none can, Error launch_failed when
  /// cuBLAS does not start.
  explicit Cublas(const std::vector<std::string>& files);
  ~Cublas();
  Cublas(const Cublas&) = delete;
  Cublas& operator=(const Cublas&) = delete;

  /// "cuBLAS 13.1.0".
  std::string name() const;

  /// C = A Bᵀ of `arguments`, in bf16 with fp32 sums. Throws Error launch_failed.
  void multiply(const MatmulArguments& arguments, Stream stream) const;

 private:
  struct Library;
  std::unique_ptr<Library> library_;
};

}  // namespace jit::tool
