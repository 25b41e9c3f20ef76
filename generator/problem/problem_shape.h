// The run-time sizes of a call, as far as they decide which kernels serve it best.
#pragma once

#include <cstdint>

namespace jit {

/// The pass that a kernel computes. A kernel family serves one pass, and sizes, records and plans are kept
/// for each. A backward call runs a kernel that computes all gradients, with what it needs around it, or one
/// of each of its two passes.
enum class Pass {
  forward,
  backward,      ///< all gradients
  backward_dq,   ///< the gradient of the queries
  backward_dkv,  ///< those of keys and values
};

/// "forward"
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

/// Blocks of a grid along its second and third dimension (CUDA programming guide, "Technical Specifications per Compute
/// Capability").
inline constexpr int max_grid_yz = 65535;

struct ProblemShape {
  Pass pass = Pass::forward;
  std::int64_t batch = 1;
  std::int64_t heads_q = 1;
  std::int64_t seqlen_q = 1;
  std::int64_t seqlen_kv = 1;
  bool tma = true;  ///< whether TMA can map the tensors (tma_operands.h)
  /// Whether only the device knows how long sequences are: lengths are averages or the most that there can be.
  bool has_device_lengths = false;
  /// Whether keys have more heads than the second dimension of a grid has blocks.
  bool has_many_heads = false;
  /// The answer of is_plain for the spec, where a family is asked whether it suits: kernels of other specs
  /// read lengths.
  bool is_plain = true;

  /// Whether what is chosen may run calls of all sizes: nothing beside their tensors may grow with them.
  bool any_size = false;

  /// Varlen queries but one for each request, where they may be those of requests of many queries beside
  /// others of few, so that each kind has a kernel of its own (surplus_queries()); else 0.
  std::int64_t surplus_q = 0;

  bool operator==(const ProblemShape&) const = default;
};

/// ProblemShape::surplus_q of so many varlen queries in all. Two kernels are worth their launches where the
/// surplus is that of a few tiles, and queries are few on average: else the requests of few can be left to the kernel
/// of the others.
std::int64_t surplus_queries(std::int64_t batch, std::int64_t total_q);
inline constexpr std::int64_t least_surplus = 256;            ///< that is worth a kernel of its own
inline constexpr std::int64_t many_queries_on_average = 512;  ///< for which there is no second kernel

/// The shapes that the two kernels of a call with a surplus are chosen for: all requests with one query each, and the
/// surplus as one request.
ProblemShape shape_of_few(const ProblemShape& shape);
ProblemShape shape_of_many(const ProblemShape& shape);

/// The size class of a shape: each size rounded up to a power of two, batch and heads together. Plans, tuning
/// records and look-ups share it.
struct SizeClass {
  Pass pass = Pass::forward;
  int rows = 0;                     ///< log2 of batch · heads_q, rounded up
  int seqlen_q = 0;                 ///< log2, rounded up
  int seqlen_kv = 0;                ///< log2, rounded up
  bool tma = true;                  ///< whether kernels with TMA are among the candidates
  bool has_device_lengths = false;  ///< whether kernels of dense sequences are not
  bool has_many_heads = false;      ///< whether kernels with a row of blocks for each KV head are not
  bool is_mixed = false;            ///< whether two kernels may share the requests

  bool operator==(const SizeClass&) const = default;
};
SizeClass size_class(const ProblemShape& shape);

/// The largest shape of a class, of one batch entry.
ProblemShape largest_shape(const SizeClass& sizes);

}  // namespace jit
