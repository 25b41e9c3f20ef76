// Allocates the shared memory of a block, one buffer after the other. Host and NVRTC compile this file; generated
// programs assert that both compute the same size.
#pragma once

#include "base/host_device.cuh"

namespace jit {

/// Byte offsets of a pipeline (pipeline/pipeline.cuh) in a block's shared memory: its first tile, and the full and
/// empty barriers of its first stage.
struct PipelinePlace {
  static constexpr int none = -1;  ///< the offset of barriers that no thread waits for
  int stages;                      ///< 0: the pipeline does not exist
  int tiles;
  int full;
  int empty;
};

/// A bump allocator; each function returns the byte offset of a new buffer.
class SmemAllocator {
 public:
  JIT_HOST_DEVICE constexpr int place(int bytes, int alignment) {
    const int begin = (end_ + alignment - 1) / alignment * alignment;
    end_ = begin + bytes;
    return begin;
  }
  /// A buffer of swizzled tiles that TMA writes and wgmma reads.
  JIT_HOST_DEVICE constexpr int tiles(int bytes) { return place(bytes, 1024); }
  /// A buffer of rows that cp.async writes in chunks of 16 bytes.
  JIT_HOST_DEVICE constexpr int rows(int bytes) { return place(bytes, 16); }
  /// A buffer of 4-byte words.
  JIT_HOST_DEVICE constexpr int words(int bytes) { return place(bytes, 4); }
  /// A buffer of elements of up to 8 bytes.
  JIT_HOST_DEVICE constexpr int numbers(int bytes) { return place(bytes, 8); }
  /// A single mbarrier.
  JIT_HOST_DEVICE constexpr int barrier() { return place(8, 8); }
  /// Allocates the full and empty barriers of a pipeline with `stages` stages.
  JIT_HOST_DEVICE constexpr void barriers(PipelinePlace& pipeline, int stages) {
    pipeline.stages = stages;
    pipeline.full = place(stages * 8, 8);
    pipeline.empty = place(stages * 8, 8);
  }

  /// Bytes allocated so far.
  JIT_HOST_DEVICE constexpr int total() const { return end_; }

 private:
  int end_ = 0;
};

}  // namespace jit
