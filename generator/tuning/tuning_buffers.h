// Tensors for measuring and checking candidates.
#pragma once

#include <string>

#include "generator/plan/plan.h"

namespace jit {

/// Random tensors of a problem's sizes, and the reference's results. The caller's tensors are never written.
class TuningBuffers {
 public:
  virtual ~TuningBuffers() = default;

  /// Batch entries: the call's, or as many as fit into half of the free memory.
  virtual int batch() const = 0;

  /// Launches the plan's kernels on a stream.
  virtual void run(const Plan& plan, CUstream stream) const = 0;

  /// Runs the plan on poisoned outputs and compares sampled rows. Returns an error that begins with "wrong",
  /// or an empty string.
  virtual std::string check(const Plan& plan, CUstream stream) const = 0;
};

}  // namespace jit
