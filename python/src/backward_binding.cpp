#include "backward_binding.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <jit/attention.h>
#include <jit/device.h>
#include <jit/dtype.h>

#include "array.h"
#include "attention_binding.h"
#include "block_mask_binding.h"
#include "call.h"
#include "named_arrays.h"
#include "operation_call.h"
#include "process.h"
#include "spec_conversion.h"

namespace jit::python {
namespace {

using namespace nb::literals;

// (batch, heads, seqlen, head_dim) as (batch, seqlen, heads, head_dim); ragged tensors have one layout.
void apply_layout(TensorView& view, Layout layout) {
  if (layout != Layout::bhsd || view.rank != 4) return;
  std::swap(view.shape[1], view.shape[2]);
  std::swap(view.strides[1], view.strides[2]);
}

void check_operand(const TensorView& view, const char* name, bool is_ragged) {
  if (!facts(view.dtype).is_operand)
    refuse(name, fmt::format("is {}; gradients are those of bf16 and fp16", to_string(view.dtype)));
  if (view.rank != (is_ragged ? 3 : 4)) {
    refuse(name, fmt::format("has {} dimensions; it must have {}", view.rank,
                             is_ragged ? "3 beside cu_seqlens: (rows, heads, head_dim)" : "4"));
  }
}

/// What a caller gives of the arrays that say where sequences lie. Gradients know the first four.
struct SequenceHandles {
  nb::handle cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, page_table, cache_leftpad;
};

void read_sequences(OperationCall& call, const SequenceHandles& given, BackwardArguments& arguments) {
  for (const auto& [array, name] :
       {std::pair{given.page_table, "page_table"}, {given.cache_leftpad, "cache_leftpad"}}) {
    if (!array.is_none())
      refuse(name, "was given, and there are no gradients of caches: give keys and values dense or ragged");
  }
  for (const auto& [array, name, view] :
       {std::tuple{given.cu_seqlens_q, "cu_seqlens_q", &arguments.cu_seqlens_q},
        {given.cu_seqlens_k, "cu_seqlens_k", &arguments.cu_seqlens_k},
        {given.seqused_q, "seqused_q", &arguments.seqused_q},
        {given.seqused_k, "seqused_k", &arguments.seqused_k}})
    call.read(array, name, *view);
}

/// A gradient that is written: to the caller's array, or to a new one of the shape and type of what it is of.
struct Result {
  nb::handle given;
  std::string name;
  const TensorView* of;
  std::optional<dlpack::DataType> type;  ///< as the framework has the elements of `of`
  TensorView* view;
  std::optional<std::size_t> made = {};

  void bind(OperationCall& call) {
    if (given.is_none()) {
      made = call.make(of->dtype, {of->shape, static_cast<std::size_t>(of->rank)}, *view, type);
    } else {
      call.write(given, name.c_str(), *view);
    }
  }
  nb::object returned(const OperationCall& call) const {
    return made ? call.result(*made) : nb::borrow(given);
  }
};

/// What the caller says of gradients of tensors, by name: a dict of arrays, None for new ones, or names.
nb::object wanted_gradients(nb::handle d_tensors) {
  if (d_tensors.is_none() || PyDict_Check(d_tensors.ptr())) return nb::borrow(d_tensors);
  nb::dict wanted;
  if (PyUnicode_Check(d_tensors.ptr()) || !PySequence_Check(d_tensors.ptr()))
    throw nb::type_error("d_tensors must be a list of names, or a dict of names and arrays or None");
  for (const nb::handle name : nb::list(nb::borrow(d_tensors))) wanted[name] = nb::none();
  return wanted;
}

/// None where the gradient of sinks is not wanted, True for a new array, or an array.
bool is_wanted(nb::handle d_sinks) { return !d_sinks.is_none() && d_sinks.ptr() != Py_False; }

nb::object compute(nb::handle d_o, nb::handle q, nb::handle k, nb::handle v, nb::handle o, nb::handle lse,
                   nb::handle mask, nb::handle score, nb::handle softmax_scale, nb::handle dq, nb::handle dk,
                   nb::handle dv, nb::handle dtype, nb::handle layout_name, nb::handle tensors,
                   nb::handle stream, bool deterministic, double dropout_p, nb::handle rng_state,
                   const SequenceHandles& sequences, nb::handle dlse, nb::handle sinks, nb::handle d_sinks,
                   nb::handle d_tensors, nb::handle block_mask, nb::handle tuning) {
  const GivenBlockMask over(block_mask, mask, tensors);
  const Layout layout = parse_layout(layout_name);
  const std::optional<DType> sixteen_bits = dtype_of(dtype, "dtype");
  OperationCall call(q, "q", stream, sixteen_bits);
  BackwardArguments arguments;
  arguments.deterministic = deterministic;
  const bool ragged_q = !sequences.cu_seqlens_q.is_none(), ragged_kv = !sequences.cu_seqlens_k.is_none();
  std::optional<dlpack::DataType> q_type;  // as q's framework has its elements
  for (const auto& [array, name, view] : {std::tuple{q, "q", &arguments.q},
                                          {k, "k", &arguments.k},
                                          {v, "v", &arguments.v},
                                          {o, "o", &arguments.o},
                                          {d_o, "do", &arguments.d_o}}) {
    if (array.is_none()) refuse(name, "is None; it must be an array");
    const std::optional<dlpack::DataType> type = call.read(array, name, *view);
    if (view == &arguments.q) q_type = type;
    check_operand(*view, name, view == &arguments.k || view == &arguments.v ? ragged_kv : ragged_q);
  }
  if (sixteen_bits && arguments.q.dtype != *sixteen_bits)
    refuse("dtype",
           fmt::format("is {}, but q holds {}", to_string(*sixteen_bits), to_string(arguments.q.dtype)));
  call.read(lse, "lse", arguments.lse);
  arguments.dropout_p = static_cast<float>(dropout_p);
  if (!rng_state.is_none()) call.read(rng_state, "rng_state", arguments.rng_state);
  read_sequences(call, sequences, arguments);

  call.read(dlse, "dlse", arguments.d_lse);
  call.read(sinks, "sinks", arguments.sinks);

  const auto type_of = [&](const TensorView& of) {
    return of.dtype == arguments.q.dtype ? q_type : std::nullopt;
  };
  std::vector<Result> results = {{dq, "dq", &arguments.q, type_of(arguments.q), &arguments.dq},
                                 {dk, "dk", &arguments.k, type_of(arguments.k), &arguments.dk},
                                 {dv, "dv", &arguments.v, type_of(arguments.v), &arguments.dv}};
  for (Result& result : results) {
    result.bind(call);
    check_operand(*result.view, result.name.c_str(), result.of->rank == 3);
  }
  const NamedArrays named(over.tensors());
  std::vector<TensorView> functor_views(named.size());
  std::vector<std::optional<dlpack::DataType>> functor_types(named.size());
  std::size_t at = 0;
  for (const NamedArray& array : named) {
    functor_types[at] = call.read(array.object, array.name, functor_views[at]);
    ++at;
  }
  const NamedArrays wanted(wanted_gradients(d_tensors));
  std::vector<TensorView> gradient_views(wanted.size());
  at = 0;
  for (const NamedArray& array : wanted) {
    std::size_t of = 0;
    for (const NamedArray& tensor : named) {
      if (std::string_view(tensor.name) == array.name) break;
      ++of;
    }
    const std::string name = fmt::format("d_tensors.{}", array.name);
    if (of == named.size()) refuse(name.c_str(), "there is no gradient: `tensors` has no array of that name");
    results.push_back({array.object, name, &functor_views[of], functor_types[of], &gradient_views[at++]});
    results.back().bind(call);
  }
  if (is_wanted(d_sinks)) {
    if (!arguments.sinks.is_present()) refuse("d_sinks", "is wanted, but there are no sinks");
    const bool is_new = d_sinks.ptr() == Py_True;
    results.push_back(
        {is_new ? nb::none() : d_sinks, "d_sinks", &arguments.sinks, std::nullopt, &arguments.d_sinks});
    results.back().bind(call);
  }
  const auto name_tensors = [&] {
    arguments.tensors = {};
    arguments.d_tensors = {};
    at = 0;
    for (const NamedArray& array : named) arguments.tensors.add({array.name, functor_views[at++]});
    at = 0;
    for (const NamedArray& array : wanted) arguments.d_tensors.add({array.name, gradient_views[at++]});
  };
  name_tensors();

  for (TensorView* view : {&arguments.d_o, &arguments.q, &arguments.k, &arguments.v, &arguments.o,
                           &arguments.dq, &arguments.dk, &arguments.dv})
    apply_layout(*view, layout);
  over.check({arguments.q, arguments.k, arguments.cu_seqlens_q, arguments.cu_seqlens_k, {}});
  AttentionSpec spec;
  spec.dtype = arguments.q.dtype;
  spec.head_dim = small_size(arguments.q, arguments.q.rank - 1, "q");
  spec.head_dim_v = small_size(arguments.v, arguments.v.rank - 1, "v");
  if (spec.head_dim_v == 0) refuse("v", "has head_dim 0");
  spec.gqa_ratio = gqa_ratio(arguments.q, arguments.k);
  spec.alignment = std::max(2, common_alignment({&arguments.d_o, &arguments.q, &arguments.k, &arguments.v,
                                                 &arguments.o, &arguments.dq, &arguments.dk, &arguments.dv}));
  spec.dropout = dropout_p != 0 || arguments.rng_state.is_present();
  spec.sinks = arguments.sinks.is_present();
  if (ragged_q) spec.sequences_q = SequenceKind::ragged;
  if (ragged_kv) spec.sequences_kv = SequenceKind::ragged;
  check_dropout(spec);
  spec.mask = mask_of(over.mask());
  spec.score = score_of(score);
  spec.softmax_scale = scale_of(softmax_scale);
  call.stage([&] {
    validate(spec);
    check_backward_arguments(spec, arguments);
  });
  name_tensors();
  const Context& context = context_for(parse_tuning(tuning));
  without_lock([&] {
    const CurrentDevice scope(call.device());
    attention_when_called(spec, context).backward(arguments, call.stream());
    call.complete();
  });
  nb::list returned;
  for (std::size_t i = 0; i < 3; ++i) returned.append(results[i].returned(call));
  if (!d_tensors.is_none()) {
    nb::dict by_name;
    at = 3;
    for (const NamedArray& array : wanted) by_name[array.key] = results[at++].returned(call);
    returned.append(by_name);
  }
  if (is_wanted(d_sinks)) returned.append(results.back().returned(call));
  return nb::tuple(returned);
}

constexpr const char* backward_doc =
    R"(Gradients of attention with respect to q, k and v, and to what scores read.

Two kernels or more, compiled for this problem, and chosen for its sizes, at their first use.

Args:
    do: the gradient of o, of o's shape; bf16 or fp16 as all arrays but lse, any strides whose last is 1.
    q, k, v, mask, score, softmax_scale, tensors, block_mask: as `attention` had them. Texts of scores are differentiated by the
        library, unless they give their derivative: they are compiled with a number type that carries its derivative,
        so that variables that depend on `score`, or on tensors in `d_tensors`, are declared with `auto`.
    o, lse: what `attention` returned with return_lse.
    dq, dk, dv: arrays to write to, which are then returned; they share no memory with each other or the inputs.
    dtype: "bf16" or "fp16", for arrays of 16-bit integers, which cannot say what they hold.
    layout: "BSHD", or "BHSD": seqlen and heads swapped in all arrays but lse and ragged ones.
    stream: a number or an object with __cuda_stream__; None: the current stream of q's framework.
    dropout_p, rng_state: as `attention` had them.
    deterministic: whether equal inputs must give equal bits. Otherwise dq may be a sum in any order, which is faster
        on some GPUs.
    cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k: as `attention` had them, read on the device.
    page_table, cache_leftpad: None; there are no gradients of caches.
    dlse: the gradient of lse, if the loss depends on it: fp32, of lse's shape.
    sinks: as `attention` had them.
    d_sinks: True to get the gradient of the sinks, or an array to write it to.
    d_tensors: names of arrays in `tensors` that the score reads, to get their gradients, which always have equal bits
        for equal inputs; or a dict of these names with arrays to write to, None for new ones. fp32, bf16 and fp16.
    tuning: how the kernels of dq, dk and dv are chosen, as `attention` has it; tuning writes to no array of the caller.

Returns:
    (dq, dk, dv), of the shapes and types of q, k and v; dk and dv are sums over the query heads that share a KV head.
    A query that sees no key gets dq = 0 and adds nothing to dk and dv. Rows that are no query's or no key's are not
    written: they stay as they are in given arrays, and hold anything elsewhere. With `d_tensors` a dict of names and
    arrays comes next, with `d_sinks` another array.

Raises:
    InvalidArgumentError: an array is wrong; names the argument, before anything is launched.
    InvalidSpecError: the problem is none that can be served, with what would work.
    CompileFailedError: the text of a score turns what depends on `score` into a float, or calls what has no derivative.
    Error: of another kind, see jit_attention.errors.
)";

}  // namespace

void bind_backward(nb::module_& module) {
  const auto call = [](nb::handle d_o, nb::handle q, nb::handle k, nb::handle v, nb::handle o, nb::handle lse,
                       nb::handle mask, nb::handle score, nb::handle softmax_scale, nb::handle dq,
                       nb::handle dk, nb::handle dv, nb::handle dtype, nb::handle layout, nb::handle tensors,
                       nb::handle stream, bool deterministic, double dropout_p, nb::handle rng_state,
                       nb::handle cu_seqlens_q, nb::handle cu_seqlens_k, nb::handle seqused_q,
                       nb::handle seqused_k, nb::handle page_table, nb::handle cache_leftpad, nb::handle dlse,
                       nb::handle sinks, nb::handle d_sinks, nb::handle d_tensors, nb::handle block_mask,
                       nb::handle tuning) {
    return compute(d_o, q, k, v, o, lse, mask, score, softmax_scale, dq, dk, dv, dtype, layout, tensors,
                   stream, deterministic, dropout_p, rng_state,
                   {cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, page_table, cache_leftpad}, dlse, sinks,
                   d_sinks, d_tensors, block_mask, tuning);
  };
  module.def(
      "attention_backward", call, "do"_a.none(), "q"_a.none(), "k"_a.none(), "v"_a.none(), "o"_a.none(),
      "lse"_a.none(), nb::kw_only(), "mask"_a = nb::none(), "score"_a = nb::none(),
      "softmax_scale"_a = nb::none(), "dq"_a = nb::none(), "dk"_a = nb::none(), "dv"_a = nb::none(),
      "dtype"_a = nb::none(), "layout"_a = "BSHD", "tensors"_a = nb::none(), "stream"_a = nb::none(),
      "deterministic"_a = false, "dropout_p"_a = 0.0, "rng_state"_a = nb::none(),
      "cu_seqlens_q"_a = nb::none(), "cu_seqlens_k"_a = nb::none(), "seqused_q"_a = nb::none(),
      "seqused_k"_a = nb::none(), "page_table"_a = nb::none(), "cache_leftpad"_a = nb::none(),
      "dlse"_a = nb::none(), "sinks"_a = nb::none(), "d_sinks"_a = nb::none(), "d_tensors"_a = nb::none(),
      "block_mask"_a = nb::none(), "tuning"_a = nb::none(), backward_doc,
      nb::sig("def attention_backward(do: typing.Any, q: typing.Any, k: typing.Any, v: typing.Any, "
              "o: typing.Any, lse: typing.Any, *, mask: jit_attention.Mask | None = None, "
              "score: jit_attention.Score | None = None, softmax_scale: float | None = None, "
              "dq: typing.Any = None, dk: typing.Any = None, dv: typing.Any = None, "
              "dtype: typing.Any = None, layout: str = 'BSHD', "
              "tensors: dict[str, typing.Any] | None = None, stream: typing.Any = None, "
              "deterministic: bool = False, dropout_p: float = 0.0, rng_state: typing.Any = None, "
              "cu_seqlens_q: typing.Any = None, cu_seqlens_k: typing.Any = None, "
              "seqused_q: typing.Any = None, seqused_k: typing.Any = None, page_table: typing.Any = None, "
              "cache_leftpad: typing.Any = None, dlse: typing.Any = None, sinks: typing.Any = None, "
              "d_sinks: typing.Any = None, d_tensors: typing.Any = None, "
              "block_mask: jit_attention.BlockMask | None = None, tuning: str | None = None) -> "
              "tuple[typing.Any, ...]"));
}

}  // namespace jit::python
