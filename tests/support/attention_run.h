// One attention problem on a GPU, surrounded by poison: NaN between and around all tensors, NaN in the
// outputs before the kernel runs, and the verdict afterwards.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <jit/attention.h>
#include <jit/device_buffer.h>

#include "tests/support/attention_problem.h"
#include "tests/support/host_functors.h"

namespace jit::testing {

enum class Layout {
  bshd,        ///< dense
  bhsd,        ///< dense, heads before positions
  packed_qkv,  ///< q, k and v are slices of one tensor, or k and v where lengths differ
  padded,      ///< rows lie apart and start at addresses aligned to spec.alignment and no more
  reversed,    ///< positions run backwards through memory
};
inline constexpr int layout_count = 5;
std::string_view to_string(Layout layout);

/// Where elements are of 8 bits, every scale is a power of two, so that they stand for numbers of 16 bits.
struct AttentionCase {
  AttentionSpec spec = {};
  int batch = 1;
  int heads_kv = 1;
  int seqlen_q = 1;
  int seqlen_kv = 1;
  Layout layout = Layout::bshd;
  bool with_lse = true;
  float amplitude = 1;  ///< standard deviation of q, k and v
  std::uint64_t seed = 0;
  /// Of each batch entry, in seqused_k; rows behind them hold NaN. Empty: all.
  std::vector<int> used_keys = {};

  int heads_q() const { return heads_kv * spec.gqa_ratio; }
};
std::string to_string(const AttentionCase& problem);

struct Verdict {
  std::string failure = {};  ///< empty: right
  double error_ratio = 0;    ///< largest error of o or lse, relative to what is allowed
};

/// A tensor within an arena.
struct Place {
  std::size_t offset = 0;  ///< bytes, of the element with all indices 0
  DType dtype = DType::bf16;
  int rank = 0;
  std::int64_t shape[max_rank] = {};
  std::int64_t strides[max_rank] = {};
  std::int64_t rows = 1;  ///< of elements that a scale is that of

  /// Byte offset of an element.
  std::size_t at(std::int64_t i, std::int64_t j = 0, std::int64_t k = 0, std::int64_t l = 0) const;
};

/// Host memory full of poison in which tensors lie, and its copy on the device.
struct Arena {
  std::vector<unsigned char> host;
  DeviceBuffer device;

  /// Room for `bytes` between two guard bands; the offset is a multiple of 16.
  std::size_t reserve(std::size_t bytes);
  void upload(int device_ordinal);
  TensorView view(const Place& place) const;
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
  /// What the reference computes.
  const reference::Problem& problem() const { return problem_; }

 private:
  /// Makes `problem_` one of the numbers that elements of 8 bits stand for.
  void widen();

  AttentionCase case_;
  Arena inputs_, outputs_;
  Place q_, k_, v_, o_, lse_;
  Place q_descale_, k_descale_, v_descale_;  // of elements of 8 bits
  Place v_mean_, lse_shift_;                 // what they have lost, if the spec says so
  Place sinks_, used_keys_;
  std::vector<std::uint16_t> wide_[3];  // q, k and v of 8 bits times their scales, in 16
  std::vector<FunctorTensorSpec> tensor_specs_;
  std::vector<Place> tensors_;
  reference::Problem problem_;
};

}  // namespace jit::testing
