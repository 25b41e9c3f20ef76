#include "key_mass_binding.h"

#include <algorithm>
#include <array>
#include <string>

#include <fmt/format.h>
#include <jit/dtype.h>
#include <jit/key_mass.h>

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

// Whether "heads" asks for those of queries.
bool is_per_query_head(nb::handle heads) {
  if (PyUnicode_Check(heads.ptr())) {
    if (PyUnicode_CompareWithASCIIString(heads.ptr(), "kv") == 0) return false;
    if (PyUnicode_CompareWithASCIIString(heads.ptr(), "q") == 0) return true;
  }
  refuse("heads",
         fmt::format("is {}; it must be \"kv\", for sums over the query heads of a KV head, or \"q\"",
                     nb::repr(heads).c_str()));
}

void check_rank(const TensorView& view, const char* name, bool is_varlen) {
  if (view.rank != (is_varlen ? 3 : 4))
    refuse(name, fmt::format("has {} dimensions; it must have {}", view.rank,
                             is_varlen ? "3 beside cu_seqlens: (rows, heads, head_dim)"
                                       : "4: (batch, seqlen, heads, head_dim)"));
}

nb::object key_mass_of(nb::handle q, nb::handle k, nb::handle lse, nb::handle mask, nb::handle score,
                       nb::handle softmax_scale, nb::handle heads, nb::handle tensors,
                       nb::handle cu_seqlens_q, nb::handle cu_seqlens_k, nb::handle out, nb::handle dtype,
                       nb::handle stream) {
  const bool per_query_head = is_per_query_head(heads);
  OperationCall call(q, "q", stream, input_dtype_of(dtype, "dtype"));
  KeyMassArguments arguments;
  call.read(q, "q", arguments.q);
  call.check_dtype(arguments.q, "q");
  call.read(k, "k", arguments.k);
  call.read(lse, "lse", arguments.lse);
  call.read(cu_seqlens_q, "cu_seqlens_q", arguments.cu_seqlens_q);
  call.read(cu_seqlens_k, "cu_seqlens_k", arguments.cu_seqlens_k);
  call.write(out, "out", arguments.mass);
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
  KeyMassSpec spec{.attention = {.dtype = arguments.q.dtype}, .per_query_head = per_query_head};
  AttentionSpec& attention = spec.attention;
  if (!facts(attention.dtype).is_operand)
    refuse("q", fmt::format("is {}; key masses are of bf16 and fp16", to_string(attention.dtype)));
  attention.head_dim = small_size(arguments.q, arguments.q.rank - 1, "q");
  attention.gqa_ratio = gqa_ratio(arguments.q, arguments.k);
  attention.alignment = std::max(2, common_alignment({&arguments.q, &arguments.k}));
  if (is_varlen_q) attention.sequences_q = SequenceKind::varlen;
  if (is_varlen_k) attention.sequences_kv = SequenceKind::varlen;
  attention.mask = mask_of(mask);
  attention.score = score_of(score);
  attention.softmax_scale = scale_of(softmax_scale);
  std::optional<std::size_t> made;
  if (!arguments.mass.is_present()) {
    const TensorView& keys = arguments.k;
    const std::int64_t own_heads =
        keys.shape[keys.rank - 2] * (per_query_head ? std::int64_t{attention.gqa_ratio} : 1);
    const std::array<std::int64_t, 3> dense = {keys.shape[0], own_heads, keys.shape[1]};
    const std::array<std::int64_t, 2> varlen = {own_heads, keys.shape[0]};
    made =
        call.make(DType::fp32,
                  is_varlen_k ? std::span<const std::int64_t>(varlen) : std::span<const std::int64_t>(dense),
                  arguments.mass);
  }
  const auto given = [&] {
    KeyMassArguments all = arguments;
    for (std::size_t i = 0; i < count; ++i) all.tensors.add(read[i]);
    return all;
  };
  try {
    call.stage([&] {
      validate(spec);
      check_arguments(spec, given());
    });
    call.launch([&](const Context& context) { key_mass(spec, context)(given(), call.stream()); });
  } catch (const Error& error) {
    throw renamed_field(renamed_argument(error, {{"mass", "out"}}),
                        {{"dtype", "q"}, {"head_dim", "q"}, {"gqa_ratio", "k"}, {"alignment", "q"}});
  }
  return made ? call.result(*made) : nb::borrow(out);
}

}  // namespace

void bind_key_mass(nb::module_& module) {
  define(module, "key_mass", key_mass_of, "q"_a, "k"_a, "lse"_a, nb::kw_only(), "mask"_a = nb::none(),
         "score"_a = nb::none(), "softmax_scale"_a = nb::none(), "heads"_a = "kv", "tensors"_a = nb::none(),
         "cu_seqlens_q"_a = nb::none(), "cu_seqlens_k"_a = nb::none(), "out"_a = nb::none(),
         "dtype"_a = nb::none(), "stream"_a = nb::none());
}

}  // namespace jit::python
