// cuBLAS, opened while the program runs: what `bench` measures the steps of the matrix product beside.
#pragma once

#include <memory>
#include <string>

#include <jit/matmul.h>

namespace jit::tool {

/// cuBLAS on the current device. Use from one thread.
class Cublas {
 public:
  /// Opens libcublas.so.13, or .12: as the dynamic linker finds it, else of CUDA_HOME, /usr/local/cuda or one of NVIDIA's
  /// wheels. Throws BadInput, saying where it looked.
  Cublas();
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
