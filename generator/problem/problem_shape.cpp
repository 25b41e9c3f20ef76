#include "generator/problem/problem_shape.h"

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
          .has_device_lengths = shape.has_device_lengths,
          .has_many_heads = shape.has_many_heads,
          .is_mixed = shape.surplus_q > 0};
}

std::int64_t surplus_queries(std::int64_t batch, std::int64_t total_q) {
  const std::int64_t surplus = total_q - batch;
  return batch > 1 && surplus >= least_surplus && total_q < batch * many_queries_on_average ? surplus : 0;
}

ProblemShape shape_of_few(const ProblemShape& shape) {
  ProblemShape few = shape;
  few.seqlen_q = 1;
  few.surplus_q = 0;
  return few;
}

ProblemShape shape_of_many(const ProblemShape& shape) {
  ProblemShape many = shape;
  many.batch = 1;
  many.seqlen_q = shape.surplus_q;
  many.surplus_q = 0;
  return many;
}

ProblemShape largest_shape(const SizeClass& sizes) {
  return {.pass = sizes.pass,
          .heads_q = std::int64_t{1} << sizes.rows,
          .seqlen_q = std::int64_t{1} << sizes.seqlen_q,
          .seqlen_kv = std::int64_t{1} << sizes.seqlen_kv,
          .tma = sizes.tma,
          .has_device_lengths = sizes.has_device_lengths,
          .has_many_heads = sizes.has_many_heads};
}

}  // namespace jit
