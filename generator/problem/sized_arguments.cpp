#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include <fmt/format.h>
#include <jit/error.h>
#include <jit/spec_table.h>
#include <jit/tuning.h>

#include "generator/problem/arguments.h"
#include "generator/problem/gradient_arguments.h"

namespace jit {
namespace {

[[noreturn]] void refuse(const char* size, std::int64_t value, const std::string& rule) {
  throw Error(ErrorCode::invalid_argument, "arguments", size,
              fmt::format("{}: is {}; it must be {}", size, value, rule));
}

void check_sizes(const AttentionSpec& spec, const AttentionShape& shape) {
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  for (const auto& [name, size] : {std::pair{"batch", shape.batch},
                                   {"heads_q", shape.heads_q},
                                   {"seqlen_q", shape.seqlen_q},
                                   {"seqlen_kv", shape.seqlen_kv}}) {
    if (size < 1) refuse(name, size, "at least 1");
    if (size > most) refuse(name, size, fmt::format("at most {}", most));
  }
  if (shape.heads_q % spec.gqa_ratio != 0)
    refuse("heads_q", shape.heads_q, fmt::format("a multiple of spec.gqa_ratio = {}", spec.gqa_ratio));
  // Each tensor has a 256th of the address space.
  constexpr double most_elements = static_cast<double>(std::int64_t{1} << 54);
  const double rows = static_cast<double>(shape.batch) * static_cast<double>(shape.heads_q);
  for (const auto& [name, seqlen] : {std::pair{"seqlen_q", shape.seqlen_q}, {"seqlen_kv", shape.seqlen_kv}}) {
    const double elements =
        rows * static_cast<double>(seqlen) * std::max(spec.head_dim, spec.value_head_dim());
    if (elements > most_elements)
      refuse(name, seqlen, fmt::format("less: {:.1e} elements are more than any memory holds", elements));
  }
}

}  // namespace

AttentionArguments sized_arguments(const AttentionSpec& spec, const AttentionShape& shape,
                                   const NamedTensors& tensors) {
  validate(spec);
  check_sizes(spec, shape);
  AttentionArguments arguments =
      placeholder_arguments(spec, extents_of(spec, {.batch = shape.batch,
                                                    .heads_q = shape.heads_q,
                                                    .seqlen_q = shape.seqlen_q,
                                                    .seqlen_kv = shape.seqlen_kv}));
  arguments.tensors = tensors;
  return arguments;
}

BackwardArguments sized_backward_arguments(const AttentionSpec& spec, const AttentionShape& shape,
                                           const NamedTensors& tensors) {
  const AttentionArguments forward = sized_arguments(spec, shape, tensors);
  check_has_backward(spec);
  // Addresses like forward's, but from the other end.
  std::uintptr_t slot = 0x100;
  const auto next = [&] { return reinterpret_cast<void*>(--slot << 56); };
  const auto like = [&](TensorView tensor, DType dtype) {
    tensor.data = next();
    tensor.dtype = dtype;
    return tensor;
  };
  const TensorView& q = forward.q;
  const DType read = input_dtype(spec), written = output_dtype(spec);
  return {.d_o = like(forward.o, read),
          .q = q,
          .k = forward.k,
          .v = forward.v,
          .o = forward.o,
          .lse = has_varlen_q(spec) ? TensorView::dense(next(), DType::fp32, {q.shape[1], q.shape[0]})
                                    : TensorView::bhs(next(), q.shape[0], q.shape[2], q.shape[1]),
          .dq = like(q, written),
          .dk = like(forward.k, written),
          .dv = like(forward.v, written),
          .tensors = forward.tensors,
          .cu_seqlens_q = forward.cu_seqlens_q,
          .cu_seqlens_k = forward.cu_seqlens_k,
          .rng_state = forward.rng_state,
          .sinks = forward.sinks,
          .mean_score = forward.mean_score,
          .d_mean_score = spec.mean_score ? like(forward.mean_score, DType::fp32) : TensorView{}};
}

}  // namespace jit
