// Places in the shared memory of a block, one behind another. Compiled by the host and by NVRTC.
#pragma once

#include "base/host_device.cuh"

namespace jit {

/// Each gives the byte offset of a new place.
class SmemPlaces {
 public:
  /// Of tiles that TMA writes and wgmma reads, in their swizzles.
  JIT_HOST_DEVICE constexpr int tiles(int bytes) { return place(bytes, 1024); }
  /// Of numbers of up to 8 bytes.
  JIT_HOST_DEVICE constexpr int numbers(int bytes) { return place(bytes, 8); }
  /// Of one mbarrier for each stage of a pipeline.
  JIT_HOST_DEVICE constexpr int barriers(int stages) { return place(stages * 8, 8); }

  /// Bytes of all.
  JIT_HOST_DEVICE constexpr int total() const { return end_; }

 private:
  JIT_HOST_DEVICE constexpr int place(int bytes, int alignment) {
    const int begin = (end_ + alignment - 1) / alignment * alignment;
    end_ = begin + bytes;
    return begin;
  }

  int end_ = 0;
};

}  // namespace jit
