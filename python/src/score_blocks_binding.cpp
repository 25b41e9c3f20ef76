#include "score_blocks_binding.h"

#include <array>
#include <span>

#include <fmt/format.h>
#include <jit/score_blocks.h>

#include "call_spec.h"
#include "given.h"
#include "operation_call.h"
#include "score_call.h"

namespace jit::python {
namespace {

using namespace nb::literals;

BlockReduction reduction_of(nb::handle reduce) {
  if (PyUnicode_Check(reduce.ptr())) {
    if (PyUnicode_CompareWithASCIIString(reduce.ptr(), "max") == 0) return BlockReduction::max;
    if (PyUnicode_CompareWithASCIIString(reduce.ptr(), "mean") == 0) return BlockReduction::mean;
    if (PyUnicode_CompareWithASCIIString(reduce.ptr(), "probability") == 0)
      return BlockReduction::probability;
  }
  refuse("reduce",
         fmt::format("is {}; it must be \"max\", \"mean\" or \"probability\"", nb::repr(reduce).c_str()));
}

nb::object score_blocks_of(nb::handle q, nb::handle k, int block_size, nb::handle reduce, nb::handle mask,
                           nb::handle score, nb::handle softmax_scale, nb::handle tensors,
                           nb::handle cu_seqlens_q, nb::handle cu_seqlens_k, std::optional<int> blocks,
                           nb::handle lse, int key_span, nb::handle out, nb::handle dtype,
                           nb::handle stream) {
  const BlockReduction reduction = reduction_of(reduce);
  OperationCall call(q, "q", stream, input_dtype_of(dtype, "dtype"));
  const ScoreCall scores(call, {q, k, mask, score, softmax_scale, tensors, cu_seqlens_q, cu_seqlens_k},
                         "scores of blocks");
  TensorView lse_view, result;
  call.read(lse, "lse", lse_view);
  call.write(out, "out", result);
  const ScoreBlocksSpec spec{.attention = scores.attention(),
                             .block_size = block_size,
                             .reduction = reduction,
                             .key_span = key_span};
  const bool is_varlen_q = spec.attention.sequences_q == SequenceKind::varlen,
             is_varlen_k = spec.attention.sequences_kv == SequenceKind::varlen;
  try {
    validate(spec);
    std::optional<std::size_t> made;
    if (!result.is_present()) {
      const std::int64_t* const rows = scores.q().shape;
      if (is_varlen_k && !blocks)
        refuse("blocks",
               "is missing; beside cu_seqlens_k only the caller knows how many the longest sequence has");
      const std::int64_t keys = scores.k().shape[1], strides = keys == 0 ? 0 : keys + key_span - 1;
      const std::int64_t columns = blocks ? std::int64_t{*blocks} : (strides + block_size - 1) / block_size;
      if (columns < 0) refuse("blocks", fmt::format("is {}; it must not be negative", columns));
      const int group = reduction == BlockReduction::probability ? spec.attention.gqa_ratio : 1;
      const std::array<std::int64_t, 4> dense = {rows[0], rows[1], rows[2] / group, columns};
      const std::array<std::int64_t, 3> varlen = {rows[0], rows[1] / group, columns};
      using Sizes = std::span<const std::int64_t>;
      made = call.make(DType::fp32, is_varlen_q ? Sizes(varlen) : Sizes(dense), result);
    } else if (blocks && result.rank > 0 && result.shape[result.rank - 1] != *blocks) {
      refuse("blocks", fmt::format("is {}, but out has {}", *blocks, result.shape[result.rank - 1]));
    }
    const auto given = [&] {
      ScoreBlocksArguments all;
      scores.fill(all);
      all.lse = lse_view;
      all.scores = result;
      return all;
    };
    call.stage([&] { check_arguments(spec, given()); });
    call.launch([&](const Context& context) { score_blocks(spec, context)(given(), call.stream()); });
    return made ? call.result(*made) : nb::borrow(out);
  } catch (const Error& error) {
    throw ScoreCall::renamed(error, "scores");
  }
}

}  // namespace

void bind_score_blocks(nb::module_& module) {
  define(module, "score_blocks", score_blocks_of, "q"_a, "k"_a, nb::kw_only(), "block_size"_a = 128,
         "reduce"_a = "max", "mask"_a = nb::none(), "score"_a = nb::none(), "softmax_scale"_a = nb::none(),
         "tensors"_a = nb::none(), "cu_seqlens_q"_a = nb::none(), "cu_seqlens_k"_a = nb::none(),
         "blocks"_a = nb::none(), "lse"_a = nb::none(), "key_span"_a = 1, "out"_a = nb::none(),
         "dtype"_a = nb::none(), "stream"_a = nb::none());
}

}  // namespace jit::python
