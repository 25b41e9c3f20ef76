#include "generator/kernels/problem_shape.h"

#include <bit>

namespace jit {
namespace {

int log2_ceiling(std::int64_t value) {
  return value <= 1 ? 0 : static_cast<int>(std::bit_width(static_cast<std::uint64_t>(value - 1)));
}

}  // namespace

SizeClass size_class(const ProblemShape& shape) {
  return {.pass = shape.pass,
          .rows = log2_ceiling(shape.batch * shape.heads_q),
          .seqlen_q = log2_ceiling(shape.seqlen_q),
          .seqlen_kv = log2_ceiling(shape.seqlen_kv),
          .tma = shape.tma,
          .has_device_lengths = shape.has_device_lengths};
}

ProblemShape largest_shape(const SizeClass& sizes) {
  return {.pass = sizes.pass,
          .heads_q = std::int64_t{1} << sizes.rows,
          .seqlen_q = std::int64_t{1} << sizes.seqlen_q,
          .seqlen_kv = std::int64_t{1} << sizes.seqlen_kv,
          .tma = sizes.tma,
          .has_device_lengths = sizes.has_device_lengths};
}

}  // namespace jit
