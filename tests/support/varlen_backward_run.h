// One backward problem of varlen sequences on a device, beside what fp64 on the CPU makes of each request.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <jit/attention.h>
#include <jit/device_buffer.h>

#include "generator/plan/backward_plan.h"
#include "tests/support/attention_gradients.h"
#include "tests/support/device_tensor.h"

namespace jit::testing {

/// The queries, or the keys, of all requests.
struct VarlenSide {
  std::vector<int> lengths;
  /// Rows behind those of each request that it has room for; empty: none, and no seqused array.
  std::vector<int> spare = {};
  int around = 0;  ///< rows before the first request and behind the last one, of varlen sequences

  int room(std::size_t request) const { return lengths[request] + (spare.empty() ? 0 : spare[request]); }
};

struct VarlenBackwardCase {
  AttentionSpec spec = {};  ///< mask and score read no tensors
  int heads_kv = 1;
  VarlenSide q, kv;
  bool has_gaps = false;  ///< between rows, which keep spec.alignment and no more; heads before positions
  std::uint64_t seed = 0;
  float dropout_p = 0;  ///< if spec.dropout
};
std::string to_string(const VarlenBackwardCase& problem);

/// Inputs are random; o and lse are those of fp64, rounded. Rows of nobody, memory between rows, and the gradients are
/// poison.
class VarlenBackwardRun {
 public:
  explicit VarlenBackwardRun(const VarlenBackwardCase& wanted);

  /// Views of the device's tensors; valid as long as this object.
  BackwardArguments arguments(bool deterministic = false) const;
  void poison_gradients();
  /// Computes the gradients by kernels of these configs, on the current device. Throws Error, for a config that is not
  /// legal, too.
  void compute(const Context& context, const KernelConfig& dq, const KernelConfig& dkv) const;
  /// Computes gradients in one pass.
  void compute(const Context& context, const KernelConfig& config) const;
  /// Errors of o and lse of the forward pass, by a kernel of this config if there is one: padding rows, and
  /// the elements between rows, must still be poison. The bytes of o go to `o_bytes`, if given.
  std::string check_forward(const Context& context, const std::optional<KernelConfig>& config,
                            std::vector<std::uint8_t>* o_bytes = nullptr) const;
  /// All bytes of dq, dk and dv and of what lies between their rows, from the device.
  std::vector<std::uint8_t> gradients();
  /// Errors of the gradients on the device; empty: none. Padding rows, and the elements between rows, must
  /// still be poison.
  std::string check();

 private:
  // One side's place in the tensors.
  struct Rows {
    bool varlen = false;
    std::vector<std::int64_t> begins;  // of varlen sequences; one more than there are requests
    std::int64_t count = 0;            // rows of all varlen sequences, or of each dense one
    DeviceTensor boundaries, used;
    bool has_used = false;
  };
  static Rows rows_of(const VarlenSide& side, bool varlen);
  DeviceTensor operand(const Rows& rows, int heads, int columns) const;
  DeviceTensor statistic() const;  // a number for each query and head
  std::vector<std::int64_t> statistic_index(std::size_t request, std::int64_t head, std::int64_t row) const;
  static std::vector<std::int64_t> index(const Rows& rows, std::size_t request, std::int64_t row,
                                         std::int64_t head, std::int64_t column);
  template <class F>
  void for_each(const Rows& rows, const VarlenSide& side, int heads, int columns, std::size_t request,
                const F& visit) const;
  void run(const Context& context, const Plan& plan) const;

  VarlenBackwardCase case_;
  Rows q_rows_, kv_rows_;
  DeviceTensor q_, k_, v_, d_o_, o_, lse_, dq_, dk_, dv_;
  DeviceBuffer rng_state_;
  std::vector<reference::GradientProblem> requests_;
};

}  // namespace jit::testing
