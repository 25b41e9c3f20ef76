// Allocates the shared memory of a block, one place behind another. Host and NVRTC compile this file; generated
// programs assert that both compute the same size.
#pragma once

#include "base/host_device.cuh"

namespace jit {

/// Where a pipeline (pipeline/pipeline.cuh) lies in a block's shared memory, as byte offsets: the tile of its first
/// stage, and the barriers of that, one that says that it is full and one that says it is empty.
struct PipelinePlace {
  static constexpr int none = -1;  ///< the offset of barriers that no thread waits for
  int stages;                      ///< 0: there is no such pipeline
  int tiles;
  int full;
  int empty;
};

/// Each function gives the byte offset of a new place.
class SmemAllocator {
 public:
  JIT_HOST_DEVICE constexpr int place(int bytes, int alignment) {
    const int begin = (end_ + alignment - 1) / alignment * alignment;
    end_ = begin + bytes;
    return begin;
  }
  /// Room for tiles that TMA writes and wgmma reads, in their swizzles.
  JIT_HOST_DEVICE constexpr int tiles(int bytes) { return place(bytes, 1024); }
  /// Room for rows that cp.async writes, in chunks of 16 bytes.
  JIT_HOST_DEVICE constexpr int rows(int bytes) { return place(bytes, 16); }
  /// Room for words of 4 bytes.
  JIT_HOST_DEVICE constexpr int words(int bytes) { return place(bytes, 4); }
  /// Room for numbers of up to 8 bytes.
  JIT_HOST_DEVICE constexpr int numbers(int bytes) { return place(bytes, 8); }
  /// Room for one mbarrier.
  JIT_HOST_DEVICE constexpr int barrier() { return place(8, 8); }
  /// Gives a pipeline the barriers of so many stages.
  JIT_HOST_DEVICE constexpr void barriers(PipelinePlace& pipeline, int stages) {
    pipeline.stages = stages;
    pipeline.full = place(stages * 8, 8);
    pipeline.empty = place(stages * 8, 8);
  }

  /// Bytes of all.
  JIT_HOST_DEVICE constexpr int total() const { return end_; }

 private:
  int end_ = 0;
};

}  // namespace jit
