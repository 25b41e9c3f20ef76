#include "score_blocks_binding.h"

#include <algorithm>
#include <array>
#include <span>
#include <string>

#include <fmt/format.h>
#include <jit/dtype.h>
#include <jit/score_blocks.h>

#include "argument_names.h"
#include "array.h"
#include "call_spec.h"
#include "given.h"
#include "named_arrays.h"
#include "operation_call.h"
#include "spec_conversion.h"

namespace jit::python {
namespace {

using namespace nb::literals;

BlockReduction reduction_of(nb::handle reduce) {
  if (PyUnicode_Check(reduce.ptr())) {
    if (PyUnicode_CompareWithASCIIString(reduce.ptr(), "max") == 0) return BlockReduction::max;
    if (PyUnicode_CompareWithASCIIString(reduce.ptr(), "mean") == 0) return BlockReduction::mean;
  }
  refuse("reduce", fmt::format("is {}; it must be \"max\" or \"mean\"", nb::repr(reduce).c_str()));
}

void check_rank(const TensorView& view, const char* name, bool is_varlen) {
  if (view.rank != (is_varlen ? 3 : 4))
    refuse(name, fmt::format("has {} dimensions; it must have {}", view.rank,
                             is_varlen ? "3 beside cu_seqlens: (rows, heads, head_dim)"
                                       : "4: (batch, seqlen, heads, head_dim)"));
}

nb::object score_blocks_of(nb::handle q, nb::handle k, int block_size, nb::handle reduce, nb::handle mask,
                           nb::handle score, nb::handle softmax_scale, nb::handle tensors,
                           nb::handle cu_seqlens_q, nb::handle cu_seqlens_k, std::optional<int> blocks,
                           nb::handle out, nb::handle dtype, nb::handle stream) {
  const BlockReduction reduction = reduction_of(reduce);
  OperationCall call(q, "q", stream, input_dtype_of(dtype, "dtype"));
  ScoreBlocksArguments arguments;
  call.read(q, "q", arguments.q);
  call.check_dtype(arguments.q, "q");
  call.read(k, "k", arguments.k);
  call.read(cu_seqlens_q, "cu_seqlens_q", arguments.cu_seqlens_q);
  call.read(cu_seqlens_k, "cu_seqlens_k", arguments.cu_seqlens_k);
  call.write(out, "out", arguments.scores);
  const NamedArrays named(tensors);
  std::array<NamedTensor, NamedTensors::capacity> read;
  if (named.size() > read.size())
    refuse("tensors", fmt::format("are {}; at most {} fit", named.size(), read.size()));
  std::size_t count = 0;
  for (const NamedArray& given : named) {
    read[count].name = given.name;
    call.read(given.object, given.name, read[count++].tensor);
  }
  const bool is_varlen_q = arguments.cu_seqlens_q.is_present(),
             is_varlen_k = arguments.cu_seqlens_k.is_present();
  check_rank(arguments.q, "q", is_varlen_q);
  check_rank(arguments.k, "k", is_varlen_k);
  ScoreBlocksSpec spec{
      .attention = {.dtype = arguments.q.dtype}, .block_size = block_size, .reduction = reduction};
  AttentionSpec& attention = spec.attention;
  if (!facts(attention.dtype).is_operand)
    refuse("q", fmt::format("is {}; scores of blocks are of bf16 and fp16", to_string(attention.dtype)));
  attention.head_dim = small_size(arguments.q, arguments.q.rank - 1, "q");
  attention.gqa_ratio = gqa_ratio(arguments.q, arguments.k);
  attention.alignment = std::max(2, common_alignment({&arguments.q, &arguments.k}));
  if (is_varlen_q) attention.sequences_q = SequenceKind::varlen;
  if (is_varlen_k) attention.sequences_kv = SequenceKind::varlen;
  attention.mask = mask_of(mask);
  attention.score = score_of(score);
  attention.softmax_scale = scale_of(softmax_scale);
  const auto by_arguments = [](const Error& error) {
    return renamed_field(renamed_argument(error, {{"scores", "out"}}),
                         {{"dtype", "q"}, {"head_dim", "q"}, {"gqa_ratio", "k"}, {"alignment", "q"}});
  };
  try {
    validate(spec);
    std::optional<std::size_t> made;
    if (!arguments.scores.is_present()) {
      const std::int64_t* const rows = arguments.q.shape;
      if (is_varlen_k && !blocks)
        refuse("blocks",
               "is missing; beside cu_seqlens_k only the caller knows how many the longest sequence has");
      const std::int64_t columns =
          blocks ? std::int64_t{*blocks} : (arguments.k.shape[1] + block_size - 1) / block_size;
      if (columns < 0) refuse("blocks", fmt::format("is {}; it must not be negative", columns));
      const std::array<std::int64_t, 4> dense = {rows[0], rows[1], rows[2], columns};
      const std::array<std::int64_t, 3> varlen = {rows[0], rows[1], columns};
      using Sizes = std::span<const std::int64_t>;
      made = call.make(DType::fp32, is_varlen_q ? Sizes(varlen) : Sizes(dense), arguments.scores);
    } else if (blocks && arguments.scores.rank > 0 &&
               arguments.scores.shape[arguments.scores.rank - 1] != *blocks) {
      refuse("blocks", fmt::format("is {}, but out has {}", *blocks,
                                   arguments.scores.shape[arguments.scores.rank - 1]));
    }
    const auto given = [&] {
      ScoreBlocksArguments all = arguments;
      for (std::size_t i = 0; i < count; ++i) all.tensors.add(read[i]);
      return all;
    };
    call.stage([&] { check_arguments(spec, given()); });
    call.launch([&](const Context& context) { score_blocks(spec, context)(given(), call.stream()); });
    return made ? call.result(*made) : nb::borrow(out);
  } catch (const Error& error) {
    throw by_arguments(error);
  }
}

}  // namespace

void bind_score_blocks(nb::module_& module) {
  define(module, "score_blocks", score_blocks_of, "q"_a, "k"_a, nb::kw_only(), "block_size"_a = 128,
         "reduce"_a = "max", "mask"_a = nb::none(), "score"_a = nb::none(), "softmax_scale"_a = nb::none(),
         "tensors"_a = nb::none(), "cu_seqlens_q"_a = nb::none(), "cu_seqlens_k"_a = nb::none(),
         "blocks"_a = nb::none(), "out"_a = nb::none(), "dtype"_a = nb::none(), "stream"_a = nb::none());
}

}  // namespace jit::python
