// The run-time properties of a call that decide which kernels serve it best.
#pragma once

#include <cstdint>

namespace jit {

/// The pass that a kernel computes. A kernel family serves one pass; size classes, records and plans are per
/// pass. A backward call runs a kernel for all gradients, with small kernels around it, or one kernel for
/// each of two passes.
enum class Pass {
  forward,
  backward,      ///< all gradients
  backward_dq,   ///< the gradient of the queries
  backward_dkv,  ///< those of keys and values
};

/// Name of a pass: "forward".
constexpr const char* to_string(Pass pass) {
  switch (pass) {
    case Pass::forward:
      return "forward";
    case Pass::backward:
      return "backward";
    case Pass::backward_dq:
      return "backward_dq";
    case Pass::backward_dkv:
      break;
  }
  return "backward_dkv";
}

/// Limit of a grid's second and third dimensions (CUDA programming guide, "Technical Specifications per
/// Compute Capability").
inline constexpr int max_grid_yz = 65535;

struct ProblemShape {
  Pass pass = Pass::forward;
  std::int64_t batch = 1;
  std::int64_t heads_q = 1;
  std::int64_t seqlen_q = 1;
  std::int64_t seqlen_kv = 1;
  bool tma = true;  ///< whether TMA can map the tensors (tma_operands.h)
  /// Whether lengths are on the device; the lengths here are then averages or upper bounds.
  bool has_device_lengths = false;
  /// Whether k has more heads than a grid's second dimension allows.
  bool has_many_heads = false;
  /// is_plain() of the spec, when a family is asked whether it suits: kernels of other specs read lengths.
  bool is_plain = true;

  /// Whether the chosen config may run calls of any size, so that its workspace must not grow with sizes.
  bool any_size = false;

  /// Varlen queries in excess of one per request, if the call may mix requests of many and of few queries, so
  /// that each kind gets its own kernel (surplus_queries()); else 0.
  std::int64_t surplus_q = 0;

  bool operator==(const ProblemShape&) const = default;
};

/// ProblemShape::surplus_q of `total_q` varlen queries. Two kernels pay off if the surplus fills a few tiles,
/// and the average is small: otherwise the kernel for many queries can also serve requests of few.
std::int64_t surplus_queries(std::int64_t batch, std::int64_t total_q);
inline constexpr std::int64_t least_surplus = 256;            ///< that justifies a second kernel
inline constexpr std::int64_t many_queries_on_average = 512;  ///< from which there is no second kernel

/// The shapes by which a mixed call's two kernels are chosen: all requests with one query each, and the
/// surplus as a single request.
ProblemShape shape_of_few(const ProblemShape& shape);
ProblemShape shape_of_many(const ProblemShape& shape);

/// The size class of a shape: sizes rounded up to powers of two, with batch and heads combined. Keys plans
/// and tuning records.
struct SizeClass {
  Pass pass = Pass::forward;
  int rows = 0;                     ///< log2 of batch · heads_q, rounded up
  int seqlen_q = 0;                 ///< log2, rounded up
  int seqlen_kv = 0;                ///< log2, rounded up
  bool tma = true;                  ///< whether TMA kernels are candidates
  bool has_device_lengths = false;  ///< excludes kernels of dense sequences
  bool has_many_heads = false;      ///< excludes kernels with KV heads in a grid's second dimension
  bool is_mixed = false;            ///< whether two kernels may share the requests

  bool operator==(const SizeClass&) const = default;
};
SizeClass size_class(const ProblemShape& shape);

/// The largest shape of a class, with one batch entry.
ProblemShape largest_shape(const SizeClass& sizes);

}  // namespace jit
