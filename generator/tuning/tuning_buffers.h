// The tensors that candidates are measured and checked on.
#pragma once

#include <string>

#include "generator/plan/plan.h"

namespace jit {

/// Tensors of a problem's sizes with random contents, and what a reference makes of them. Nothing of a caller's is written.
class TuningBuffers {
 public:
  virtual ~TuningBuffers() = default;

  /// Batch entries: those of the call, or as many as half of the free memory has room for.
  virtual int batch() const = 0;

  /// Puts the plan's kernels on a stream.
  virtual void run(const Plan& plan, CUstream stream) const = 0;

  /// Runs the plan on poisoned outputs and compares sampled rows. Returns what is wrong, beginning with "wrong"; empty
  /// when nothing is.
  virtual std::string check(const Plan& plan, CUstream stream) const = 0;
};

}  // namespace jit
