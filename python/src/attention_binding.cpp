#include "attention_binding.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <jit/attention.h>
#include <jit/device.h>
#include <jit/spec_table.h>

#include "block_mask_binding.h"
#include "call.h"
#include "call_spec.h"
#include "given.h"
#include "process.h"
#include "spec_conversion.h"

namespace jit::python {
namespace {

using namespace nb::literals;

// Calls `launch` on the call's device without the interpreter lock.
template <class Launch>
nb::object run(Call& call, const AttentionSpec& spec, const Launch& launch) {
  try {
    call.make_outputs(spec);
    without_lock([&] {
      const CurrentDevice scope(call.device());
      launch(call.arguments(), call.stream());
      call.complete();
    });
  } catch (const Error& error) {
    throw call.renamed(error);
  }
  return call.result();
}

// Runs `work`; errors name the call's arguments, if there is a call.
template <class Work>
auto by_names_of(const std::optional<Call>& call, const Work& work) {
  try {
    return without_lock(work);
  } catch (const Error& error) {
    if (!call) throw;
    throw call->renamed(error);
  }
}

void check_sizes(const GivenBlockMask& block_mask, const Call& call, const SequenceInputs& sequences) {
  if (!block_mask.is_given()) return;
  const AttentionArguments& given = call.arguments();
  const nb::dict lengths = sequences.given();
  block_mask.check({given.q, given.k, given.cu_seqlens_q, given.cu_seqlens_k, given.page_table, lengths});
}

// Number of leading columns of k that are the values when v is absent.
std::optional<int> value_columns(nb::handle v, std::optional<int> head_dim_v) {
  if (v.is_none()) {
    if (!head_dim_v)
      refuse("v", "is None; give values, or say with head_dim_v how many leading columns of k they are");
    if (*head_dim_v < 1) refuse("head_dim_v", fmt::format("is {}; it must be at least 1", *head_dim_v));
  } else if (head_dim_v) {
    refuse("head_dim_v",
           "was given beside v, whose last dimension it is; give None for v where values are "
           "columns of k");
  }
  return head_dim_v;
}

nb::object attend_arrays(CallInputs inputs, nb::handle mask, nb::handle score, nb::handle output,
                         nb::handle softmax_scale, int split_keys, nb::handle descale_per,
                         nb::handle block_mask, std::optional<int> head_dim_v, bool interpolated_exponentials,
                         const Context& context) {
  inputs.values_in_keys = value_columns(inputs.v, head_dim_v).has_value();
  try {
    const GivenBlockMask given(block_mask, mask, score, inputs.tensors);
    inputs.tensors = given.tensors();
    Call call(inputs);
    check_sizes(given, call, inputs.sequences);
    const AttentionSpec spec =
        spec_of_arrays(call, given.mask(), score, output, softmax_scale, split_keys, descale_per,
                       inputs.out_dtype, head_dim_v, interpolated_exponentials);
    return run(call, spec, [&](const AttentionArguments& arguments, Stream on) {
      attention_when_called(spec, context)(arguments, on);
    });
  } catch (const Error& error) {
    throw by_arguments(error, inputs, !descale_per.is_none(), head_dim_v.has_value());
  }
}

// Reads a call for its sizes and functor tensors only: `inputs` need no result, stream or LSE.
void read_sizes(const CallInputs& inputs, const AttentionSpec& spec, std::optional<Call>& call) {
  const bool has_v = !inputs.v.is_none() || (spec.values_in_keys && !inputs.q.is_none());
  if (inputs.q.is_none() != inputs.k.is_none() || inputs.q.is_none() != !has_v)
    throw nb::type_error("q, k and v are given all or none");
  if (inputs.q.is_none()) {
    if (!inputs.tensors.is_none()) refuse("tensors", "are given without q, k and v");
    for (const SequenceArray& array : sequence_arrays) {
      if (inputs.sequences.has(array.view)) refuse(array.name, "is given without q, k and v");
    }
    return;
  }
  call.emplace(inputs);
  call->add_outputs(spec);
  call->make_outputs(spec);
}

// A spec's kernels on one device.
struct Prepared {
  Attention attention;
  nb::object spec;  ///< the caller's object
  int device = 0;

  nb::object call(CallInputs inputs, nb::handle block_mask) const {
    const GivenBlockMask given = GivenBlockMask::for_prepared(block_mask, spec, inputs.tensors);
    inputs.tensors = given.tensors();
    inputs.spec_dtype = attention.spec().dtype;
    inputs.kv_dtype = attention.spec().kv_dtype;
    inputs.values_in_keys = attention.spec().values_in_keys;
    inputs.out_dtype = output_dtype(attention.spec());
    inputs.device = device;
    Call call(inputs);
    check_sizes(given, call, inputs.sequences);
    return run(call, attention.spec(), attention);
  }

  CompiledKernel kernel(CallInputs inputs) const {
    inputs.spec_dtype = attention.spec().dtype;
    inputs.kv_dtype = attention.spec().kv_dtype;
    inputs.values_in_keys = attention.spec().values_in_keys;
    inputs.out_dtype = output_dtype(attention.spec());
    inputs.device = device;
    std::optional<Call> call;
    read_sizes(inputs, attention.spec(), call);
    return by_names_of(call, [&] {
      const CurrentDevice scope(call ? call->device() : device);
      return call ? attention.kernel(call->arguments()) : attention.kernel();
    });
  }
};

Prepared prepare(nb::handle spec_object, CallInputs inputs, nb::handle config, nb::handle tuning,
                 const GivenBlockMask& block_mask) {
  if (!inputs.q.is_none()) inputs.tensors = block_mask.tensors();
  const AttentionSpec spec = spec_of(spec_object);
  const std::optional<KernelConfig> given = config_of(config);
  if (given && !tuning.is_none())
    refuse("tuning", "was given beside config, by which nothing is chosen: leave one of the two out");
  const Context& context = context_for(parse_tuning(tuning));
  use_device_here();
  inputs.spec_dtype = spec.dtype;
  inputs.kv_dtype = spec.kv_dtype;
  inputs.values_in_keys = spec.values_in_keys;
  const std::optional<int> device = inputs.device;
  std::optional<Call> call;
  read_sizes(inputs, spec, call);
  if (call) check_sizes(block_mask, *call, inputs.sequences);
  if (call && device && *device != call->device())
    refuse("device", fmt::format("is {}, but q is on device {}", *device, call->device()));
  int ordinal = 0;
  const Attention prepared = by_names_of(call, [&] {
    ordinal = call ? call->device() : device_info(device.value_or(current_device())).ordinal;
    const CurrentDevice scope(ordinal);
    Attention fresh = attention(spec, given, context);
    if (call) {
      fresh.prepare(call->arguments());
    } else {
      fresh.kernel();  // also loads it on this device
    }
    return fresh;
  });
  return {prepared, nb::borrow(spec_object), ordinal};
}

// Hot path: engines' backends call this for each layer and step. Positional, since for many keywords Python
// would build a dict in each call and look each one up among all of `attention`'s.
nb::object attend_to_pages(nb::handle q, nb::handle k, nb::handle v, nb::handle out, std::int64_t rows,
                           nb::handle mask, nb::handle score, nb::handle softmax_scale, nb::handle tensors,
                           nb::handle sinks, int split_keys, nb::handle cu_seqlens_q, nb::handle page_table,
                           nb::handle seqused_k, nb::handle kv_dtype, nb::handle k_descale,
                           nb::handle v_descale, std::optional<int> head_dim_v, nb::handle k_block_scales,
                           nb::handle v_block_scales) {
  SequenceInputs sequences{.zero_padding = true};
  const auto give = [&](TensorView AttentionArguments::*view, nb::handle array) {
    sequences.arrays[sequence_array(view)] = array;
  };
  give(&AttentionArguments::cu_seqlens_q, cu_seqlens_q);
  give(&AttentionArguments::page_table, page_table);
  give(&AttentionArguments::seqused_k, seqused_k);
  give(&AttentionArguments::sinks, sinks);
  give(&AttentionArguments::k_descale, k_descale);
  give(&AttentionArguments::v_descale, v_descale);
  give(&AttentionArguments::k_block_scales, k_block_scales);
  give(&AttentionArguments::v_block_scales, v_block_scales);
  return attend_arrays({.q = q,
                        .k = k,
                        .v = v,
                        .tensors = tensors,
                        .out = out,
                        .kv_dtype = stored_dtype_of(kv_dtype, "kv_dtype"),
                        .rows = rows,
                        .sequences = sequences},
                       mask, score, Py_None, softmax_scale, split_keys, Py_None, Py_None, head_dim_v,
                       /*interpolated_exponentials=*/false, context_for(std::nullopt));
}

// The sequence_arrays entry with this index, as a parameter.
template <std::size_t>
using SequenceHandle = nb::handle;

// Keyword parameters for sequence_arrays, shared by all functions that take sequences.
template <std::size_t... rows>
void bind_calls(nb::module_& module, std::index_sequence<rows...>) {
  define(
      module, "attention",
      [](nb::handle q, nb::handle k, nb::handle v, nb::handle mask, nb::handle score,
         nb::handle softmax_scale, nb::handle return_lse, nb::handle out, nb::handle dtype, nb::handle layout,
         nb::handle tensors, nb::handle stream, nb::handle tuning, SequenceHandle<rows>... arrays,
         int num_splits, bool zero_padding, int split_keys, double dropout_p, nb::handle block_mask,
         nb::handle kv_dtype, nb::handle descale_per, std::optional<int> head_dim_v, nb::handle out_dtype,
         bool interpolated_exponentials, nb::handle q_positions, nb::handle k_positions,
         nb::handle global_seqlens, nb::handle return_aux, nb::handle output) {
        const Context& context = context_for(parse_tuning(tuning));
        const nb::object read = with_positions(tensors, {q_positions, k_positions, global_seqlens});
        return attend_arrays({.q = q,
                              .k = k,
                              .v = v,
                              .tensors = read,
                              .out = out,
                              .stream = stream,
                              .layout = parse_layout(layout),
                              .dtype = input_dtype_of(dtype, "dtype"),
                              .kv_dtype = stored_dtype_of(kv_dtype, "kv_dtype"),
                              .out_dtype = result_dtype_of(out_dtype, "out_dtype"),
                              .return_lse = return_lse,
                              .return_aux = return_aux,
                              .sequences = {{arrays...}, num_splits, zero_padding, dropout_p}},
                             mask, score, output, softmax_scale, split_keys, descale_per, block_mask,
                             head_dim_v, interpolated_exponentials, context);
      },
      "q"_a.none(), "k"_a.none(), "v"_a = nb::none(), nb::kw_only(), "mask"_a = nb::none(),
      "score"_a = nb::none(), "softmax_scale"_a = nb::none(), "return_lse"_a = nb::bool_(false),
      "out"_a = nb::none(), "dtype"_a = nb::none(), "layout"_a = "BSHD", "tensors"_a = nb::none(),
      "stream"_a = nb::none(), "tuning"_a = nb::none(), (nb::arg(sequence_arrays[rows].name) = nb::none())...,
      "num_splits"_a = 0, "zero_padding"_a = false, "split_keys"_a = 0, "dropout_p"_a = 0.0,
      "block_mask"_a = nb::none(), "kv_dtype"_a = nb::none(), "descale_per"_a = nb::none(),
      "head_dim_v"_a = nb::none(), "out_dtype"_a = nb::none(), "interpolated_exponentials"_a = false,
      "q_positions"_a = nb::none(), "k_positions"_a = nb::none(), "global_seqlens"_a = nb::none(),
      "return_aux"_a = nb::none(), "output"_a = nb::none());
  nb::class_<Prepared> prepared(module, "Attention", documented("Attention"));
  define(
      prepared, "__call__",
      [](const Prepared& self, nb::handle q, nb::handle k, nb::handle v, nb::handle return_lse,
         nb::handle out, nb::handle layout, nb::handle tensors, nb::handle stream,
         SequenceHandle<rows>... arrays, int num_splits, bool zero_padding, double dropout_p,
         nb::handle block_mask, nb::handle q_positions, nb::handle k_positions, nb::handle global_seqlens,
         nb::handle return_aux) {
        const nb::object read = with_positions(tensors, {q_positions, k_positions, global_seqlens});
        return self.call({.q = q,
                          .k = k,
                          .v = v,
                          .tensors = read,
                          .out = out,
                          .stream = stream,
                          .layout = parse_layout(layout),
                          .return_lse = return_lse,
                          .return_aux = return_aux,
                          .sequences = {{arrays...}, num_splits, zero_padding, dropout_p}},
                         block_mask);
      },
      "q"_a.none(), "k"_a.none(), "v"_a = nb::none(), nb::kw_only(), "return_lse"_a = nb::bool_(false),
      "out"_a = nb::none(), "layout"_a = "BSHD", "tensors"_a = nb::none(), "stream"_a = nb::none(),
      (nb::arg(sequence_arrays[rows].name) = nb::none())..., "num_splits"_a = 0, "zero_padding"_a = false,
      "dropout_p"_a = 0.0, "block_mask"_a = nb::none(), "q_positions"_a = nb::none(),
      "k_positions"_a = nb::none(), "global_seqlens"_a = nb::none(), "return_aux"_a = nb::none());
  define(
      prepared, "kernel",
      [](const Prepared& self, nb::handle q, nb::handle k, nb::handle v, nb::handle layout,
         nb::handle tensors, SequenceHandle<rows>... arrays) {
        return self.kernel({.q = q,
                            .k = k,
                            .v = v,
                            .tensors = tensors,
                            .layout = parse_layout(layout),
                            .sequences = {{arrays...}, 0}});
      },
      "q"_a = nb::none(), "k"_a = nb::none(), "v"_a = nb::none(), nb::kw_only(), "layout"_a = "BSHD",
      "tensors"_a = nb::none(), (nb::arg(sequence_arrays[rows].name) = nb::none())...);
  prepared.def_ro("spec", &Prepared::spec, documented("Attention.spec"))
      .def("__repr__", [](const Prepared& self) {
        return fmt::format("<jit_attention.Attention {}>", to_string(self.attention.spec()));
      });
  define(
      module, "prepare",
      [](nb::handle spec, nb::handle q, nb::handle k, nb::handle v, nb::handle tensors, nb::handle layout,
         std::optional<int> device, nb::handle config, nb::handle tuning, SequenceHandle<rows>... arrays,
         nb::handle block_mask) {
        const nb::object over = block_mask.is_none() ? nb::borrow(spec) : spec_over(block_mask, spec);
        return prepare(over,
                       {.q = q,
                        .k = k,
                        .v = v,
                        .tensors = tensors,
                        .layout = parse_layout(layout),
                        .device = device,
                        .sequences = {{arrays...}, 0}},
                       config, tuning, GivenBlockMask::for_prepared(block_mask, over, tensors));
      },
      "spec"_a, "q"_a = nb::none(), "k"_a = nb::none(), "v"_a = nb::none(), nb::kw_only(),
      "tensors"_a = nb::none(), "layout"_a = "BSHD", "device"_a = nb::none(), "config"_a = nb::none(),
      "tuning"_a = nb::none(), (nb::arg(sequence_arrays[rows].name) = nb::none())...,
      "block_mask"_a = nb::none());
}

}  // namespace

void bind_attention(nb::module_& module) {
  bind_calls(module, std::make_index_sequence<sequence_arrays.size()>());
  define(module, "_attend_to_pages", attend_to_pages, "q"_a, "k"_a, "v"_a.none(), "out"_a, "rows"_a,
         "mask"_a.none(), "score"_a.none(), "softmax_scale"_a.none(), "tensors"_a.none(), "sinks"_a.none(),
         "split_keys"_a, "cu_seqlens_q"_a, "page_table"_a, "seqused_k"_a, "kv_dtype"_a.none(),
         "k_descale"_a.none(), "v_descale"_a.none(), "head_dim_v"_a.none(), "k_block_scales"_a = nb::none(),
         "v_block_scales"_a = nb::none(),
         "`attention` with zero_padding over pages, of the first rows of q and out.");
}

}  // namespace jit::python
