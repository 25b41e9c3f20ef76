#include "backward_call.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <jit/dtype.h>

#include "argument_names.h"
#include "array.h"
#include "call.h"
#include "call_spec.h"
#include "spec_conversion.h"

namespace jit::python {
namespace {

// Converts (batch, heads, seqlen, head_dim) to (batch, seqlen, heads, head_dim); varlen tensors have one
// layout.
void apply_layout(TensorView& view, Layout layout) {
  if (layout == Layout::bhsd && view.rank == 4) view = with_middle_swapped(view);
}

void check_operand(const TensorView& view, const char* name, bool is_varlen, bool may_be_wide = false) {
  if (!facts(view.dtype).is_operand && !(may_be_wide && view.dtype == DType::fp32))
    refuse(name, fmt::format("is {}; gradients are those of bf16 and fp16", to_string(view.dtype)));
  if (view.rank != (is_varlen ? 3 : 4)) {
    refuse(name, fmt::format("has {} dimensions; it must have {}", view.rank,
                             is_varlen ? "3 beside cu_seqlens: (rows, heads, head_dim)" : "4"));
  }
}

// Whether an array has no dimension, which its view hides.
bool is_number(nb::handle array) {
  return nb::hasattr(array, "shape") && nb::len(nb::object(array.attr("shape"))) == 0;
}

/// The requested gradients of tensors, by name: a dict of arrays (None for a new one), or names.
nb::object wanted_gradients(nb::handle d_tensors) {
  if (d_tensors.is_none() || PyDict_Check(d_tensors.ptr())) return nb::borrow(d_tensors);
  nb::dict wanted;
  if (PyUnicode_Check(d_tensors.ptr()) || !PySequence_Check(d_tensors.ptr()))
    throw nb::type_error("d_tensors must be a list of names, or a dict of names and arrays or None");
  for (const nb::handle name : nb::list(nb::borrow(d_tensors))) wanted[name] = nb::none();
  return wanted;
}

/// d_sinks: None for no gradient of sinks, True for a new array, or an array.
bool is_wanted(nb::handle d_sinks) { return !d_sinks.is_none() && d_sinks.ptr() != Py_False; }

}  // namespace

BackwardCall::BackwardCall(const BackwardInputs& inputs)
    : inputs_(inputs),
      over_(GivenBlockMask::for_gradients(inputs.block_mask, inputs.mask, inputs.score, inputs.tensors)),
      sixteen_bits_(dtype_of(inputs.dtype, "dtype")),
      call_(inputs.q, "q", inputs.stream, sixteen_bits_),
      named_(over_.tensors()),
      named_views_(named_.size()),
      named_types_(named_.size()),
      wanted_(wanted_gradients(inputs.d_tensors), "d_tensors", /*may_be_none=*/true),
      wanted_views_(wanted_.size()) {
  const Layout layout = parse_layout(inputs.layout);
  arguments_.deterministic = inputs.deterministic;
  read_operands();
  read_sequences();
  call_.read(inputs.d_lse, "dlse", arguments_.d_lse);
  call_.read(inputs.mean_score, "mean_score", arguments_.mean_score);
  call_.read(inputs.d_mean_score, "d_mean_score", arguments_.d_mean_score);
  call_.read(inputs.sinks, "sinks", arguments_.sinks);
  bind_gradients();
  read_tensors();
  bind_gradients_of_tensors();
  bind_gradient_of_sinks();
  name_tensors();
  for (TensorView* view : {&arguments_.d_o, &arguments_.q, &arguments_.k, &arguments_.v, &arguments_.o,
                           &arguments_.dq, &arguments_.dk, &arguments_.dv})
    apply_layout(*view, layout);
  check_block_mask();
  spec_ = spec_of_arrays();
  place_output_tensors(layout);
  call_.stage([&] {
    try {
      validate(spec_);
      check_backward_arguments(spec_, arguments_);
    } catch (const Error& error) {
      throw renamed(error);
    }
  });
  name_tensors();
}

void BackwardCall::read_operands() {
  const bool varlen_q = !inputs_.cu_seqlens_q.is_none(), varlen_kv = !inputs_.cu_seqlens_k.is_none();
  for (const auto& [array, name, view] : {std::tuple{inputs_.q, "q", &arguments_.q},
                                          {inputs_.k, "k", &arguments_.k},
                                          {inputs_.v, "v", &arguments_.v},
                                          {inputs_.o, "o", &arguments_.o},
                                          {inputs_.d_o, "do", &arguments_.d_o}}) {
    if (array.is_none()) refuse(name, "is None; it must be an array");
    const std::optional<dlpack::DataType> type = call_.read(array, name, *view);
    if (view == &arguments_.q) q_type_ = type;
    check_operand(*view, name, view == &arguments_.k || view == &arguments_.v ? varlen_kv : varlen_q,
                  view == &arguments_.o);
  }
  if (sixteen_bits_ && arguments_.q.dtype != *sixteen_bits_)
    refuse("dtype",
           fmt::format("is {}, but q holds {}", to_string(*sixteen_bits_), to_string(arguments_.q.dtype)));
  call_.read(inputs_.lse, "lse", arguments_.lse);
  arguments_.dropout_p = static_cast<float>(inputs_.dropout_p);
  if (!inputs_.rng_state.is_none()) call_.read(inputs_.rng_state, "rng_state", arguments_.rng_state);
}

void BackwardCall::read_sequences() {
  for (const auto& [array, name] :
       {std::pair{inputs_.page_table, "page_table"}, {inputs_.cache_leftpad, "cache_leftpad"}}) {
    if (!array.is_none())
      refuse(name, "was given, and there are no gradients of caches: give keys and values dense or varlen");
  }
  for (const auto& [array, name, view] :
       {std::tuple{inputs_.cu_seqlens_q, "cu_seqlens_q", &arguments_.cu_seqlens_q},
        {inputs_.cu_seqlens_k, "cu_seqlens_k", &arguments_.cu_seqlens_k},
        {inputs_.seqused_q, "seqused_q", &arguments_.seqused_q},
        {inputs_.seqused_k, "seqused_k", &arguments_.seqused_k}})
    call_.read(array, name, *view);
}

void BackwardCall::check_block_mask() const {
  if (!over_.is_given()) return;
  nb::dict lengths;
  for (const auto& [array, name] : {std::pair{inputs_.cu_seqlens_q, "cu_seqlens_q"},
                                    {inputs_.cu_seqlens_k, "cu_seqlens_k"},
                                    {inputs_.seqused_q, "seqused_q"},
                                    {inputs_.seqused_k, "seqused_k"}}) {
    if (!array.is_none()) lengths[name] = array;
  }
  over_.check({arguments_.q, arguments_.k, arguments_.cu_seqlens_q, arguments_.cu_seqlens_k, {}, lengths});
}

void BackwardCall::bind_gradients() {
  const auto type_of = [&](const TensorView& of) {
    return of.dtype == arguments_.q.dtype ? q_type_ : std::nullopt;
  };
  results_ = {{inputs_.dq, "dq", &arguments_.q, type_of(arguments_.q), &arguments_.dq},
              {inputs_.dk, "dk", &arguments_.k, type_of(arguments_.k), &arguments_.dk},
              {inputs_.dv, "dv", &arguments_.v, type_of(arguments_.v), &arguments_.dv}};
  for (Result& result : results_) {
    result.bind(call_);
    check_operand(*result.view, result.name.c_str(), result.of->rank == 3, true);
  }
}

void BackwardCall::read_tensors() {
  std::size_t at = 0;
  for (const NamedArray& array : named_) {
    named_types_[at] = call_.read(array.object, array.name, named_views_[at]);
    ++at;
  }
}

void BackwardCall::bind_gradients_of_tensors() {
  std::size_t at = 0;
  for (const NamedArray& array : wanted_) {
    std::size_t of = 0;
    for (const NamedArray& tensor : named_) {
      if (std::string_view(tensor.name) == array.name) break;
      ++of;
    }
    const std::string name = fmt::format("d_tensors.{}", array.name);
    if (of == named_.size())
      refuse(name.c_str(), "there is no gradient: `tensors` has no array of that name");
    results_.push_back({array.object, name, &named_views_[of], named_types_[of], &wanted_views_[at++]});
    results_.back().bind(call_);
    results_.back().is_number = is_number(std::next(named_.begin(), static_cast<std::ptrdiff_t>(of))->object);
  }
}

void BackwardCall::bind_gradient_of_sinks() {
  if (!is_wanted(inputs_.d_sinks)) return;
  if (!arguments_.sinks.is_present()) refuse("d_sinks", "is wanted, but there are no sinks");
  const bool is_new = inputs_.d_sinks.ptr() == Py_True;
  results_.push_back({is_new ? nb::handle(Py_None) : inputs_.d_sinks, "d_sinks", &arguments_.sinks,
                      std::nullopt, &arguments_.d_sinks});
  results_.back().bind(call_);
}

// Also needed after views became copies on an emulated device: arguments hold the views themselves.
void BackwardCall::name_tensors() {
  arguments_.tensors = {};
  arguments_.d_tensors = {};
  std::size_t at = 0;
  for (const NamedArray& array : named_) arguments_.tensors.add({array.name, named_views_[at++]});
  at = 0;
  for (const NamedArray& array : wanted_) arguments_.d_tensors.add({array.name, wanted_views_[at++]});
}

// Tensors that an output functor reads per element of o have o's layout, and so have their gradients.
void BackwardCall::place_output_tensors(Layout layout) {
  if (layout == Layout::bshd) return;
  for (const FunctorTensorSpec& read : spec_.output.tensors()) {
    if (read.access == TensorAccess::pointer) continue;
    const int rank = read.access == TensorAccess::as_o ? 4 : 3;
    for (const auto& [names, views] : {std::pair{&named_, &named_views_}, {&wanted_, &wanted_views_}}) {
      std::size_t at = 0;
      for (const NamedArray& array : *names) {
        TensorView& view = (*views)[at++];
        if (std::string_view(array.name) == read.name && view.rank == rank) view = with_middle_swapped(view);
      }
    }
  }
  name_tensors();
}

AttentionSpec BackwardCall::spec_of_arrays() const {
  AttentionSpec spec;
  spec.dtype = arguments_.q.dtype;
  if (arguments_.dk.dtype == DType::fp32) spec.out_dtype = DType::fp32;
  spec.head_dim = small_size(arguments_.q, arguments_.q.rank - 1, "q");
  spec.head_dim_v = small_size(arguments_.v, arguments_.v.rank - 1, "v");
  if (spec.head_dim_v == 0) refuse("v", "has head_dim 0");
  spec.gqa_ratio = gqa_ratio(arguments_.q, arguments_.k);
  spec.alignment =
      std::max(2, common_alignment({&arguments_.d_o, &arguments_.q, &arguments_.k, &arguments_.v,
                                    &arguments_.o, &arguments_.dq, &arguments_.dk, &arguments_.dv}));
  spec.dropout = inputs_.dropout_p != 0;
  check_has_effect(inputs_.dropout_p, arguments_.rng_state);
  spec.sinks = arguments_.sinks.is_present();
  spec.mean_score = arguments_.d_mean_score.is_present() || arguments_.mean_score.is_present();
  if (!inputs_.cu_seqlens_q.is_none()) spec.sequences_q = SequenceKind::varlen;
  if (!inputs_.cu_seqlens_k.is_none()) spec.sequences_kv = SequenceKind::varlen;
  check_dropout(spec);
  spec.q_positions = named_.has("q_positions");
  spec.k_positions = named_.has("k_positions");
  spec.key_arrivals = named_.has("key_arrivals");
  spec.mask = mask_of(over_.mask());
  spec.score = score_of(inputs_.score);
  spec.output = output_of(inputs_.output);
  spec.softmax_scale = scale_of(inputs_.softmax_scale);
  return spec;
}

Error BackwardCall::renamed(const Error& error) const {
  if (parse_layout(inputs_.layout) == Layout::bshd) return error;
  const BackwardArguments& a = arguments_;
  return with_heads_first(error, {&a.d_o, &a.q, &a.k, &a.v, &a.o, &a.dq, &a.dk, &a.dv});
}

nb::tuple BackwardCall::results() const {
  nb::list returned;
  for (std::size_t i = 0; i < 3; ++i) returned.append(results_[i].returned(call_));
  if (!inputs_.d_tensors.is_none()) {
    nb::dict by_name;
    std::size_t at = 3;
    for (const NamedArray& array : wanted_) by_name[array.key] = results_[at++].returned(call_);
    returned.append(by_name);
  }
  if (is_wanted(inputs_.d_sinks)) returned.append(results_.back().returned(call_));
  return nb::tuple(returned);
}

void BackwardCall::Result::bind(OperationCall& call) {
  if (given.is_none()) {
    made = call.make(of->dtype, {of->shape, static_cast<std::size_t>(of->rank)}, *view, type);
  } else {
    call.write(given, name.c_str(), *view);
  }
}

nb::object BackwardCall::Result::returned(const OperationCall& call) const {
  if (!made) return nb::borrow(given);
  const nb::object array = call.result(*made);
  return is_number ? array.attr("reshape")(nb::make_tuple()) : array;
}

}  // namespace jit::python
