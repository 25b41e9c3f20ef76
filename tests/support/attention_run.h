// One attention problem on a GPU, surrounded by poison: NaN between and around all tensors, NaN in the
// outputs before the kernel runs, and the verdict afterwards.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <jit/attention.h>

#include "tests/support/arena.h"
#include "tests/support/attention_case.h"
#include "tests/support/attention_problem.h"
#include "tests/support/host_functors.h"
#include "tests/support/request_rows.h"

namespace jit::testing {

struct Verdict {
  std::string failure = {};  ///< empty: right
  double error_ratio = 0;    ///< largest error of o or lse, relative to what is allowed
};

class AttentionRun {
 public:
  /// Fills inputs with random numbers and uploads everything. Throws Error where memory is short.
  explicit AttentionRun(const AttentionCase& wanted, int device = 0);

  /// Views of the device's tensors; valid as long as this object.
  AttentionArguments arguments() const;
  /// Fills the outputs with NaN again.
  void poison_outputs();
  /// Bytes of the outputs and of what surrounds them, from the device.
  std::vector<unsigned char> outputs() const;
  /// Bytes of the inputs and of what surrounds them, as they were uploaded.
  const std::vector<unsigned char>& inputs() const { return inputs_.host; }
  /// Whether no byte of the outputs was written since they were poisoned.
  bool untouched() const;
  /// Compares `sampled` rows with the reference, and all rows with what must hold for any. What the stream
  /// of the launch does must be done.
  Verdict check(std::size_t sampled = 512) const;
  /// The problem that the reference computes.
  const reference::Problem& problem() const { return problem_; }

 private:
  /// Makes `problem_` one of dense numbers: of what elements of 8 bits stand for, and of rows of requests.
  void upcast();

  AttentionCase case_;
  RequestRows q_rows_, kv_rows_;
  Arena inputs_, outputs_;
  Place q_, k_, v_, o_, lse_;
  Place q_descale_, k_descale_, v_descale_;  // of elements of 8 bits
  Place v_mean_, lse_shift_;                 // what they have lost, if the spec says so
  Place sinks_, page_table_, boundaries_q_, boundaries_k_, used_queries_, used_keys_;
  std::vector<std::uint16_t> wide_[3];  // q, k and v that do not lie as dense numbers of 16 bits: these
  std::vector<FunctorTensorSpec> tensor_specs_;
  std::vector<Place> tensors_;
  reference::Problem problem_;
};

}  // namespace jit::testing
