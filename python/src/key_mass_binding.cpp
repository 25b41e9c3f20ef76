#include "key_mass_binding.h"

#include <array>
#include <span>

#include <fmt/format.h>
#include <jit/key_mass.h>

#include "call_spec.h"
#include "given.h"
#include "operation_call.h"
#include "score_call.h"

namespace jit::python {
namespace {

using namespace nb::literals;

// Whether "heads" requests masses per query head.
bool is_per_query_head(nb::handle heads) {
  if (PyUnicode_Check(heads.ptr())) {
    if (PyUnicode_CompareWithASCIIString(heads.ptr(), "kv") == 0) return false;
    if (PyUnicode_CompareWithASCIIString(heads.ptr(), "q") == 0) return true;
  }
  refuse("heads",
         fmt::format("is {}; it must be \"kv\", for sums over the query heads of a KV head, or \"q\"",
                     nb::repr(heads).c_str()));
}

nb::object key_mass_of(nb::handle q, nb::handle k, nb::handle lse, nb::handle mask, nb::handle score,
                       nb::handle softmax_scale, nb::handle heads, nb::handle tensors,
                       nb::handle cu_seqlens_q, nb::handle cu_seqlens_k, nb::handle page_table,
                       nb::handle seqused_k, nb::handle out, nb::handle dtype, nb::handle stream) {
  const bool per_query_head = is_per_query_head(heads);
  OperationCall call(q, "q", stream, input_dtype_of(dtype, "dtype"));
  const ScoreCall scores(
      call, {q, k, mask, score, softmax_scale, tensors, cu_seqlens_q, cu_seqlens_k, page_table, seqused_k},
      "key masses");
  TensorView lse_view, mass;
  call.read(lse, "lse", lse_view);
  call.write(out, "out", mass);
  const KeyMassSpec spec{.attention = scores.attention(), .per_query_head = per_query_head};
  std::optional<std::size_t> made;
  if (!mass.is_present()) {
    const TensorView& keys = scores.k();
    const std::int64_t own_heads =
        keys.shape[keys.rank - 2] * (per_query_head ? std::int64_t{spec.attention.gqa_ratio} : 1);
    const TensorView& table = scores.page_table();
    const bool is_paged = table.is_present() && table.rank == 2;
    const std::array<std::int64_t, 3> dense = {is_paged ? table.shape[0] : keys.shape[0], own_heads,
                                               keys.shape[1] * (is_paged ? table.shape[1] : 1)};
    const std::array<std::int64_t, 2> varlen = {own_heads, keys.shape[0]};
    using Sizes = std::span<const std::int64_t>;
    const bool is_varlen = spec.attention.sequences_kv == SequenceKind::varlen;
    made = call.make(DType::fp32, is_varlen ? Sizes(varlen) : Sizes(dense), mass);
  }
  const auto given = [&] {
    KeyMassArguments all;
    scores.fill(all);
    all.lse = lse_view;
    all.mass = mass;
    return all;
  };
  try {
    call.stage([&] {
      validate(spec);
      check_arguments(spec, given());
    });
    call.launch([&](const Context& context) { key_mass(spec, context)(given(), call.stream()); });
  } catch (const Error& error) {
    throw ScoreCall::renamed(error, "mass");
  }
  return made ? call.result(*made) : nb::borrow(out);
}

}  // namespace

void bind_key_mass(nb::module_& module) {
  define(module, "key_mass", key_mass_of, "q"_a, "k"_a, "lse"_a, nb::kw_only(), "mask"_a = nb::none(),
         "score"_a = nb::none(), "softmax_scale"_a = nb::none(), "heads"_a = "kv", "tensors"_a = nb::none(),
         "cu_seqlens_q"_a = nb::none(), "cu_seqlens_k"_a = nb::none(), "page_table"_a = nb::none(),
         "seqused_k"_a = nb::none(), "out"_a = nb::none(), "dtype"_a = nb::none(), "stream"_a = nb::none());
}

}  // namespace jit::python
