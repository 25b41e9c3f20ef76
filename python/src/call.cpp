#include "call.h"

#include <algorithm>
#include <limits>
#include <span>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <jit/device.h>
#include <jit/dtype.h>
#include <jit/spec_table.h>
#include <nanobind/stl/string.h>

#include "argument_names.h"
#include "array.h"
#include "process.h"

namespace jit::python {
namespace {

// (batch, heads, seqlen, head_dim) and (batch, seqlen, heads, head_dim) differ in the order of the middle
// dimensions. `rank`: that of such a tensor, or of one without head_dim.
TensorView in_layout(TensorView view, Layout layout, int rank = 4) {
  return layout == Layout::bhsd && view.rank == rank ? with_middle_swapped(view) : view;
}

// The meaning of 16-bit integers: the wanted type, if any.
std::optional<DType> sixteen_bits(std::optional<DType> wanted) {
  return wanted && size_of(*wanted) == 2 ? wanted : std::nullopt;
}

}  // namespace

Layout parse_layout(nb::handle layout) {
  if (PyUnicode_Check(layout.ptr())) {
    if (PyUnicode_CompareWithASCIIString(layout.ptr(), "BSHD") == 0) return Layout::bshd;
    if (PyUnicode_CompareWithASCIIString(layout.ptr(), "BHSD") == 0) return Layout::bhsd;
  }
  refuse("layout", fmt::format("is {}; it must be \"BSHD\" (batch, seqlen, heads, head_dim) or \"BHSD\"",
                               nb::repr(layout).c_str()));
}

Call::Call(const CallInputs& inputs)
    : inputs_(inputs),
      arrays_(inputs.q, "q", inputs.stream, inputs.device.value_or(0)),
      tensors_(inputs.tensors) {
  const bool varlen_q = inputs.sequences.has(&AttentionArguments::cu_seqlens_q);
  const bool varlen_kv = inputs.sequences.has(&AttentionArguments::cu_seqlens_k);
  arguments_.q = read_queries(inputs.q, varlen_q);
  if (inputs.rows && varlen_q) keep_first(arguments_.q, *inputs.rows);
  if (inputs.dtype && arguments_.q.dtype != *inputs.dtype)
    refuse("dtype",
           fmt::format("is {}, but q holds {}", to_string(*inputs.dtype), to_string(arguments_.q.dtype)));
  arguments_.k = read_keys(inputs.k, "k", varlen_kv);
  if (!inputs.values_in_keys || !inputs.v.is_none()) arguments_.v = read_keys(inputs.v, "v", varlen_kv);
  for (const NamedArray& given : tensors_)
    arguments_.tensors.add(
        {given.name, arrays_.read(given.object, given.name, sixteen_bits(inputs.dtype)).view});
  read_sequences();
  if (!inputs.out.is_none()) {
    out_ = arrays_.write(inputs.out, "out", sixteen_bits(inputs.out_dtype.value_or(q().dtype)));
    TensorView& view = out_.array.view;
    if (view.dtype == DType::uint8 && inputs.out_dtype && size_of(*inputs.out_dtype) == 1)
      view.dtype = *inputs.out_dtype;
    arguments_.o = in_layout(view, inputs.layout);
    if (inputs.rows && varlen_q) keep_first(arguments_.o, *inputs.rows);
  }
  read_aux();
  if (arguments_.running_lse.is_present() && !out_.given)
    refuse("out", "is missing; running_lse belongs to the results of earlier calls: give their out, too");
  if (PyBool_Check(inputs.return_lse.ptr())) return;
  lse_ = arrays_.write(inputs.return_lse, "return_lse", std::nullopt);
  arguments_.lse = lse_.array.view;
}

// Reads names, or a mapping with arrays to accumulate into; entries of None are new.
void Call::read_aux() {
  const nb::handle given = inputs_.return_aux;
  if (given.is_none()) return;
  nb::dict held;
  const bool has_arrays = PyMapping_Check(given.ptr()) != 0 && nb::hasattr(given, "keys");
  if (nb::isinstance<nb::str>(given) || (!has_arrays && !PySequence_Check(given.ptr())))
    throw nb::type_error("return_aux must be names, as (\"max_logit\",), or a mapping of names to arrays");
  if (has_arrays && PyDict_Update(held.ptr(), given.ptr()) != 0) throw nb::python_error();
  for (const nb::handle key : has_arrays ? nb::handle(held) : given) {
    const std::string name =
        nb::isinstance<nb::str>(key) ? nb::cast<std::string>(key) : nb::repr(key).c_str();
    if (name == "o_raw") {
      if (std::exchange(wants_raw_, true)) refuse("return_aux", "names o_raw twice");
      if (const nb::object array = has_arrays ? nb::object(held[key]) : nb::none(); !array.is_none()) {
        raw_ = arrays_.write(array, "o_raw", sixteen_bits(q().dtype));
        arguments_.o_raw = in_layout(raw_.array.view, inputs_.layout);
      }
      continue;
    }
    const auto is_it = [&](const OutputField& row) { return row.name == name; };
    const auto field = std::find_if(output_fields.begin(), output_fields.end(), is_it);
    if (field == output_fields.end()) {
      std::string names;
      for (const OutputField& row : output_fields)
        names += fmt::format("{}{}", names.empty() ? "" : ", ", row.name);
      refuse("return_aux", fmt::format("names '{}', which is no output; there are {}", name, names));
    }
    if (field->view == &AttentionArguments::o_descale && arguments_.o_descale.is_present())
      refuse("o_descale", "is given, and return_aux names it: scales are given or found");
    if ((arguments_.*field->view).is_present() ||
        std::any_of(aux_.begin(), aux_.end(), [&](const Aux& other) { return other.field == &*field; }))
      refuse("return_aux", fmt::format("names {} twice", name));
    Aux& aux = aux_.emplace_back();
    aux.field = &*field;
    const nb::object array = has_arrays ? nb::object(held[key]) : nb::none();
    if (array.is_none()) continue;
    aux.output = arrays_.write(array, field->name.data(), std::nullopt);
    arguments_.*field->view = aux.output.array.view;
  }
}

// Tensors that an output functor reads per element of o have o's layout.
void Call::place_output_tensors(const AttentionSpec& spec) {
  if (inputs_.layout == Layout::bshd || spec.output.is_none()) return;
  const std::vector<FunctorTensorSpec> read = spec.output.tensors();
  NamedTensors tensors;
  for (NamedTensor tensor : arguments_.tensors) {
    const auto use = std::find_if(read.begin(), read.end(), [&](const FunctorTensorSpec& one) {
      return one.name == tensor.name && one.access != TensorAccess::pointer;
    });
    if (use != read.end())
      tensor.tensor = in_layout(tensor.tensor, inputs_.layout, use->access == TensorAccess::as_o ? 4 : 3);
    tensors.add(tensor);
  }
  arguments_.tensors = tensors;
}

void Call::add_outputs(const AttentionSpec& spec) {
  for (const OutputField& field : output_fields) {
    if (spec.*field.asked) aux_.emplace_back().field = &field;
  }
}

void Call::ask_for_outputs(AttentionSpec& spec) const {
  for (const Aux& aux : aux_) spec.*aux.field->asked = true;
}

void Call::read_sequences() {
  for (std::size_t i = 0; i < sequence_arrays.size(); ++i) {
    const nb::handle array = inputs_.sequences.arrays[i];
    if (array.is_valid() && !array.is_none())
      arguments_.*sequence_arrays[i].view = arrays_.read(array, sequence_arrays[i].name, std::nullopt).view;
  }
  for (TensorView* scales : {&arguments_.k_block_scales, &arguments_.v_block_scales}) {
    *scales = in_layout(*scales, inputs_.layout);
    if (scales->dtype == DType::fp8_e4m3) scales->dtype = DType::uint8;  // they are bytes in any case
  }
  for (TensorView* scales : {&arguments_.q_descale, &arguments_.k_descale})
    *scales = in_layout(*scales, inputs_.layout, 3);
  if (has_value_rows()) arguments_.v_descale = in_layout(arguments_.v_descale, inputs_.layout, 3);
  place_output_scales();
  arguments_.num_splits = inputs_.sequences.num_splits;
  arguments_.zero_padding = inputs_.sequences.zero_padding;
  arguments_.dropout_p = static_cast<float>(inputs_.sequences.dropout_p);
}

// Scales per head apply to all rows of the head.
void Call::place_output_scales() {
  TensorView& scales = arguments_.o_descale;
  if (!scales.is_present() || scales.rank != 1) return;
  const bool is_varlen = arguments_.q.rank == 3;
  TensorView rows = scales;
  rows.rank = is_varlen ? 2 : 3;
  for (int i = 0; i < rows.rank; ++i) {
    const bool is_head = i == rows.rank - 2;
    rows.shape[i] = is_head ? scales.shape[0] : 1;
    rows.strides[i] = is_head ? scales.strides[0] : 1;
  }
  scales = rows;
}

// Values with fp8 queries have at most one scale per column.
bool Call::has_value_rows() const { return !facts(arguments_.q.dtype).is_fp8(); }

TensorView Call::read_operand(nb::handle object, const char* name, bool is_varlen) {
  const Array array = arrays_.read(object, name, sixteen_bits(dtype_of_inputs()));
  const TensorView& view = array.view;
  if (object.is(inputs_.q)) q_type_ = array.type;
  if (view.rank != (is_varlen ? 3 : 4)) {
    refuse(name, fmt::format("has {} dimensions; it must have {}", array.is_number ? 0 : view.rank,
                             is_varlen                        ? "3 beside cu_seqlens: (rows, heads, head_dim)"
                             : inputs_.layout == Layout::bshd ? "4: (batch, seqlen, heads, head_dim)"
                                                              : "4: (batch, heads, seqlen, head_dim)"));
  }
  return in_layout(view, inputs_.layout);
}

// Reads q, with 16-bit elements, or 8-bit ones that may be given as bytes.
TensorView Call::read_queries(nb::handle object, bool is_varlen) {
  TensorView view = read_operand(object, "q", is_varlen);
  const std::optional<DType> wanted = dtype_of_inputs();
  if (wanted && facts(*wanted).is_fp8() && view.dtype == DType::uint8) view.dtype = *wanted;
  if (view.dtype == DType::uint8)
    refuse("q", "holds bytes; say with dtype=\"fp8_e4m3\" or \"fp8_e5m2\" what they stand for");
  if (!facts(view.dtype).is_operand && !facts(view.dtype).is_fp8())
    refuse("q", fmt::format("is {}; attention takes bf16, fp16 and fp8", to_string(view.dtype)));
  return view;
}

// Reads k or v: of q's type, or 8-bit elements that may be given as bytes.
TensorView Call::read_keys(nb::handle object, const char* name, bool is_varlen) {
  TensorView view = read_operand(object, name, is_varlen);
  const bool as_q = !inputs_.kv_dtype && facts(q().dtype).is_fp8() && view.dtype == DType::uint8;
  const std::optional<DType> wanted = as_q ? std::optional(q().dtype) : inputs_.kv_dtype;
  if (wanted && facts(*wanted).is_stored() && view.dtype == DType::uint8) view.dtype = *wanted;
  if (view.dtype == DType::uint8) {
    refuse(name,
           "holds bytes; say with kv_dtype=\"fp8_e4m3\", \"fp8_e5m2\", \"int8\", \"int4\", \"nvfp4\", "
           "\"mxfp4\", \"latent_656\", \"latent_584\" or \"latent_528\" what they stand for");
  }
  if (!facts(view.dtype).is_operand && !facts(view.dtype).is_stored())
    refuse(name,
           fmt::format("is {}; attention takes bf16, fp16, fp8, and caches of int8, int4, nvfp4 and mxfp4",
                       to_string(view.dtype)));
  if (facts(view.dtype).is_operand && view.dtype != q().dtype)
    refuse(name, fmt::format("is {}; it must be {}", to_string(view.dtype), to_string(q().dtype)));
  if (wanted && view.dtype != *wanted)
    refuse(name, fmt::format("is {}, but kv_dtype is {}", to_string(view.dtype), to_string(*wanted)));
  return view;
}

std::optional<DType> Call::dtype_of_inputs() const {
  return inputs_.dtype ? inputs_.dtype : inputs_.spec_dtype;
}

int Call::alignment() const {
  for (const auto& [name, view] :
       {std::pair{"q", &arguments_.q}, {"k", &arguments_.k}, {"v", &arguments_.v}}) {
    if (reinterpret_cast<std::uintptr_t>(view->data) % 2 != 0)
      refuse(name, facts(view->dtype).is_fp8()
                       ? "starts at an odd address; rows must lie at even ones"
                       : "starts at an odd address; elements of 16 bits must lie at even ones");
  }
  // Rows of latents have their format's alignment.
  if (facts(k().dtype).row_bytes != 0) return std::max(2, common_alignment({&q(), &arguments_.o}));
  const int inputs = common_alignment({&q(), &k(), &v()}),
            all = common_alignment({&q(), &k(), &v(), &arguments_.o});
  // Rows of an 8-bit o may be multiples of 8 bytes, whatever the alignment.
  const bool is_odd = size_of(arguments_.o.dtype) == 1 && !facts(q().dtype).is_fp8() && v().is_present() &&
                      v().shape[v().rank - 1] % 16 != 0;
  return std::max(2, is_odd && all >= 8 ? inputs : all);
}

void Call::make_outputs(const AttentionSpec& spec) {
  place_output_tensors(spec);
  // The launch checks all arguments; sizes from which no output can be made are checked here.
  if (const int rank = q().rank; rank != 3 && rank != 4) check_inputs(spec, arguments_);
  try {
    make_missing_outputs(spec);
  } catch (...) {
    check_inputs(spec, arguments_);
    throw;
  }
  if (arrays_.emulated()) stage(spec);
}

void Call::make_missing_outputs(const AttentionSpec& spec) {
  const TensorView& queries = q();
  const bool is_varlen = queries.rank == 3;
  if (!out_.given) {
    std::int64_t shape[max_rank] = {};
    std::copy_n(queries.shape, queries.rank, shape);
    if (inputs_.layout == Layout::bhsd && !is_varlen) std::swap(shape[1], shape[2]);
    shape[queries.rank - 1] = spec.value_head_dim();
    const DType dtype = output_dtype(spec);
    const bool as_q = dtype == q().dtype;  // then, as q's framework has it
    out_ = arrays_.make(dtype, std::span(shape, static_cast<std::size_t>(queries.rank)),
                        as_q ? std::optional(q_type_) : std::nullopt);
    arguments_.o = in_layout(out_.array.view, inputs_.layout);
  }
  if (wants_raw_ && !raw_.given) {
    std::int64_t shape[max_rank] = {};
    std::copy_n(out_.array.view.shape, queries.rank, shape);
    raw_ = arrays_.make(out_.array.view.dtype, std::span(shape, static_cast<std::size_t>(queries.rank)),
                        out_.array.view.dtype == q().dtype ? std::optional(q_type_) : std::nullopt);
    arguments_.o_raw = in_layout(raw_.array.view, inputs_.layout);
  }
  const std::int64_t dense[] = {queries.shape[0], queries.shape[2], queries.shape[1]};
  const std::int64_t varlen[] = {queries.shape[1], queries.shape[0]};
  const std::span<const std::int64_t> of_rows =
      is_varlen ? std::span<const std::int64_t>(varlen) : std::span<const std::int64_t>(dense);
  if (wants_lse() && !lse_.given) {
    lse_ = arrays_.make(DType::fp32, of_rows);
    arguments_.lse = lse_.array.view;
  }
  for (Aux& aux : aux_) {
    if (aux.output.given) continue;
    aux.output =
        arrays_.make(DType::fp32, aux.field->is_of_rows ? of_rows : of_rows.subspan(is_varlen ? 0 : 1, 1));
    const TensorView& view = aux.output.array.view;
    arguments_.*aux.field->view = view;
    if (!aux.field->is_raised) continue;
    if (!arrays_.emulated()) {
      const CurrentDevice scope(device());
      clear_output(view, stream());
    } else {
      std::int64_t count = 1;
      for (int i = 0; i < view.rank; ++i) count *= view.shape[i];
      std::fill_n(static_cast<float*>(view.data), count, -std::numeric_limits<float>::infinity());
    }
  }
}

void Call::stage(const AttentionSpec& spec) {
  validate(spec);                     // before copies, like without copies
  check_arguments(spec, arguments_);  // the call cannot detect shared memory in copies
  // Copies wait for launches of other threads, which need the lock at times.
  const Unlocked unlocked;
  const auto copy = [&](const TensorView& host) {
    return staged_inputs_.emplace_back(device(), host, true).view();
  };
  arguments_.q = copy(arguments_.q);
  arguments_.k = copy(arguments_.k);
  if (arguments_.v.is_present()) arguments_.v = copy(arguments_.v);
  NamedTensors tensors;
  for (const NamedTensor& tensor : arguments_.tensors) tensors.add({tensor.name, copy(tensor.tensor)});
  arguments_.tensors = tensors;
  for (const SequenceArray& array : sequence_arrays) {
    TensorView& view = arguments_.*array.view;
    const auto is_output = [&](const Aux& aux) { return aux.field->view == array.view; };
    if (view.is_present() && std::none_of(aux_.begin(), aux_.end(), is_output)) view = copy(view);
  }
  staged_out_ = Staged(device(), arguments_.o, out_.given);
  arguments_.o = staged_out_.view();
  for (Aux& aux : aux_) {
    TensorView& view = arguments_.*aux.field->view;
    aux.staged = Staged(device(), view, true);
    view = aux.staged.view();
  }
  if (wants_raw_) {
    staged_raw_ = Staged(device(), arguments_.o_raw, raw_.given);
    arguments_.o_raw = staged_raw_.view();
  }
  if (!wants_lse()) return;
  staged_lse_ = Staged(device(), arguments_.lse, lse_.given);
  arguments_.lse = staged_lse_.view();
}

void Call::complete() const {
  arrays_.complete();
  staged_out_.download();
  staged_lse_.download();
  staged_raw_.download();
  for (const Aux& aux : aux_) aux.staged.download();
}

nb::object Call::result() const {
  if (aux_.empty() && inputs_.return_aux.is_none())
    return wants_lse() ? nb::object(nb::make_tuple(out_.result(), lse_.result())) : out_.result();
  nb::dict outputs;
  for (const Aux& aux : aux_) outputs[aux.field->name.data()] = aux.output.result();
  if (wants_raw_) outputs["o_raw"] = raw_.result();
  if (wants_lse()) return nb::make_tuple(out_.result(), lse_.result(), outputs);
  return nb::make_tuple(out_.result(), outputs);
}

Error Call::renamed(const Error& error) const {
  Error by_name = renamed_argument(error, {{"o", "out"}, {"lse", "return_lse"}});
  if (inputs_.layout == Layout::bshd) return by_name;
  const AttentionArguments& a = arguments_;
  std::vector<const TensorView*> scales = {&a.q_descale, &a.k_descale};
  if (has_value_rows()) scales.push_back(&a.v_descale);
  return with_heads_first(by_name, {&a.q, &a.k, &a.v, &a.o, &a.o_raw}, scales);
}

}  // namespace jit::python
