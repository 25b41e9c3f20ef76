// Code in the driver: a Module owns one loaded cubin or PTX, a Kernel is one entry of it. Both are cheap to
// copy and share the loaded code, which is unloaded after the last copy is gone: keep one for as long as
// launches or graphs use it.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include <cuda.h>

namespace jit {

struct LoadedLibrary;

/// Facts that the driver reads back from a kernel on one device.
struct KernelFacts {
  int registers = 0;          ///< per thread
  int local_bytes = 0;        ///< per thread
  int static_smem_bytes = 0;  ///< per block
  int max_threads = 0;        ///< per block
};

/// Blocks that a cluster may have on every GPU that has clusters (CUDA programming guide, "Thread Block Clusters").
inline constexpr int portable_cluster = 8;

/// One entry of a Module. Thread safe; good for every device that the code runs on.
class Kernel {
 public:
  CUkernel handle() const { return handle_; }
  const std::string& name() const { return name_; }

  /// Allows launches with up to `bytes` of dynamic shared memory; needed once per device, before the first
  /// launch.
  void set_dynamic_smem(int device, int bytes) const;

  /// Allows launches of a kernel whose clusters have more than portable_cluster blocks; needed once per device, before the
  /// first launch.
  void allow_large_cluster(int device) const;

  /// Loads the code into the context of `device` now, so that no launch does; allowed during graph capture.
  void force_load(int device) const;

  KernelFacts facts(int device) const;

  /// Blocks of this size that fit on one multiprocessor of `device` at once.
  int blocks_per_sm(int device, int block_threads, std::size_t dynamic_smem_bytes) const;

  /// Clusters of so many blocks of this size that fit on `device` at once: fewer than multiprocessors would hold where some
  /// of these are parted from the others.
  int resident_clusters(int device, int cluster, int block_threads, std::size_t dynamic_smem_bytes) const;

 private:
  friend class Module;
  std::shared_ptr<const LoadedLibrary> loaded_;
  CUkernel handle_ = nullptr;
  std::string name_;
};

class Module {
 public:
  /// Throws Error load_failed when the driver refuses the image, driver_unavailable when there is none. An
  /// emulated device refuses every cubin.
  explicit Module(std::span<const std::byte> cubin);
  /// From PTX, which a GPU's driver compiles now. Throws the same.
  explicit Module(const std::string& ptx);

  /// Throws Error load_failed when there is no such entry.
  Kernel kernel(const std::string& name) const;

 private:
  std::shared_ptr<const LoadedLibrary> loaded_;
};

}  // namespace jit
