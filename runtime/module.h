// Code loaded by the driver: a Module owns one cubin or PTX, a Kernel is one of its entries. Both are cheap
// to copy and share the code, which is unloaded with the last copy: keep one as long as launches or graphs
// use it.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include <cuda.h>

namespace jit {

struct LoadedLibrary;

/// Properties of a kernel on one device, as the driver reports them.
struct KernelFacts {
  int registers = 0;          ///< per thread
  int local_bytes = 0;        ///< per thread
  int static_smem_bytes = 0;  ///< per block
  int max_threads = 0;        ///< per block
};

/// Cluster size that every GPU with clusters supports (CUDA programming guide, "Thread Block Clusters").
inline constexpr int portable_cluster = 8;

/// One entry of a Module. Thread safe; works on every device that the code runs on.
class Kernel {
 public:
  CUkernel handle() const { return handle_; }
  const std::string& name() const { return name_; }

  /// Allows up to `bytes` of dynamic shared memory; required once per device, before the first launch.
  void set_dynamic_smem(int device, int bytes) const;

  /// Allows clusters of more than portable_cluster blocks; required once per device, before the first launch.
  void allow_large_cluster(int device) const;

  /// Loads the code into the context of `device`, so that no launch has to; allowed during stream capture.
  void force_load(int device) const;

  KernelFacts facts(int device) const;

  /// Occupancy: blocks of this size that are resident on an SM of `device` at once.
  int blocks_per_sm(int device, int block_threads, std::size_t dynamic_smem_bytes) const;

  /// Clusters of this many blocks of this size that are resident on `device` at once: fewer than its SMs
  /// could hold if some GPCs have spare SMs.
  int resident_clusters(int device, int cluster, int block_threads, std::size_t dynamic_smem_bytes) const;

 private:
  friend class Module;
  std::shared_ptr<const LoadedLibrary> loaded_;
  CUkernel handle_ = nullptr;
  std::string name_;
};

class Module {
 public:
  /// Loads a cubin. Throws Error load_failed if the driver rejects the image, driver_unavailable without a
  /// driver. An emulated device rejects every cubin.
  explicit Module(std::span<const std::byte> cubin);
  /// Loads PTX, which a GPU's driver compiles. Throws the same errors.
  explicit Module(const std::string& ptx);

  /// The entry `name`. Throws Error load_failed if it does not exist.
  Kernel kernel(const std::string& name) const;

 private:
  std::shared_ptr<const LoadedLibrary> loaded_;
};

}  // namespace jit
