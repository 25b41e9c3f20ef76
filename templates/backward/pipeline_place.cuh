// Where a pipeline lies in shared memory. Compiled by the host and by NVRTC.
#pragma once

namespace jit {

/// Where a pipeline lies: its stages, and for each an mbarrier that says that it is full, and one that says it is empty.
struct PipelinePlace {
  static constexpr int none = -1;  ///< of barriers that nobody waits for
  int stages;                      ///< 0: there is no such pipeline
  int tiles;
  int full;
  int empty;
};

}  // namespace jit
