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

// Returns what `work` does; errors name what the call was given, where there is one.
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

// How many leading columns of k are the values, where there is no v.
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

nb::object attend_arrays(CallInputs inputs, nb::handle mask, nb::handle score, nb::handle softmax_scale,
                         int split_keys, nb::handle descale_per, nb::handle block_mask,
                         std::optional<int> head_dim_v, bool exact_exponentials, const Context& context) {
  inputs.values_in_keys = value_columns(inputs.v, head_dim_v).has_value();
  try {
    const GivenBlockMask given(block_mask, mask, score, inputs.tensors);
    inputs.tensors = given.tensors();
    Call call(inputs);
    check_sizes(given, call, inputs.sequences);
    const AttentionSpec spec = spec_of_arrays(call, given.mask(), score, softmax_scale, split_keys,
                                              descale_per, inputs.out_dtype, head_dim_v, exact_exponentials);
    return run(call, spec, [&](const AttentionArguments& arguments, Stream on) {
      attention_when_called(spec, context)(arguments, on);
    });
  } catch (const Error& error) {
    throw by_arguments(error, inputs, !descale_per.is_none(), head_dim_v.has_value());
  }
}

// A call of which only sizes, and what mask and score read, matter: `inputs` without a result, a stream or LSE.
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
  call->make_outputs(spec);
}

// A spec's kernels on one device.
struct Prepared {
  Attention attention;
  nb::object spec;  ///< as the caller gave it
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
    const Attention fresh = attention(spec, given, context);
    if (call) {
      fresh.prepare(call->arguments());
    } else {
      fresh.kernel();  // loads it on this device, too
    }
    return fresh;
  });
  return {prepared, nb::borrow(spec_object), ordinal};
}

constexpr const char* attention_doc =
    R"(softmax(mask(score(softmax_scale · q kᵀ))) v, per batch entry and head.

Writes, compiles, caches and tunes a kernel for exactly this problem at its first use; later calls only launch.

Args:
    q: (batch, seqlen_q, heads_q, head_dim), bf16 or fp16, or as k and v fp8; any strides whose last is 1.
    k: (batch, seqlen_kv, heads_kv, head_dim), of q's type or, as v, fp8; heads_q is a multiple of heads_kv.
    v: (batch, seqlen_kv, heads_kv, head_dim_v). Head dims are multiples of 8 from 8 to 256. None with head_dim_v.
    mask: a jit_attention.Mask, which keys a query sees; None: all.
    score: a jit_attention.Score, what happens to scores; None: nothing.
    softmax_scale: positive; None: 1/sqrt(head_dim).
    return_lse: also return log Σ exp(score), fp32 (batch, heads_q, seqlen_q) or (heads_q, total_q), natural logarithm;
        True, or an array to write it to.
    out: an array to write the result to, which is then returned; it shares no memory with the inputs.
    dtype: "bf16" or "fp16", for arrays of 16-bit integers, which cannot say what they hold; "fp8_e4m3" or "fp8_e5m2",
        for q, k and v that are held as bytes (uint8).
    layout: "BSHD", or "BHSD": seqlen and heads swapped in q, k, v and the result.
    tensors: names and arrays that mask and score read. An array without dimensions, such as a learned temperature, is
        one of one element; one without elements is refused where a text would read it.
    stream: a number or an object with __cuda_stream__; None: the current stream of q's framework.
    tuning: "off", "recorded", "first_run" or "exhaustive"; None: as JIT_ATTENTION_TUNING says.
    cu_seqlens_q: int32 (batch + 1), first rows of varlen sequences: q, the result and out are (total_q, heads, head_dim).
    cu_seqlens_k: the same for k and v.
    seqused_q: int32 (batch), how many queries each sequence has, where it has room for more.
    seqused_k: the same for keys, those just appended included.
    page_table: int32 (batch, max_pages): k and v are pages (pages, page_size, heads_kv, head_dim), any strides.
    cache_leftpad: int32 (batch), rows of each sequence before its first key.
    sinks: fp32 (heads_q), a score of each head without a value.
    q_descale: fp32, what the elements of q are multiplied by where it is of fp8: (1), (heads_kv) or (batch, heads_kv), any
        of which may be 1; heads that share keys share a scale. Or one for each row, as q without head_dim, or for each 64
        rows: (batch, ceil(seqlen_q / 64), heads_q), of varlen rows (ceil(total_q / 64), heads_q).
    k_descale: fp32, what the elements of k are multiplied by where k and v are of fp8: (1), (heads_kv) or (batch,
        heads_kv), any of which may be 1; or one for each key and KV head, as k without head_dim; or, beside q of fp8, for
        each 64 rows: (batch, ceil(seqlen_kv / 64), heads_kv), (ceil(total_k / 64), heads_kv) or (pages, ceil(page_size /
        64), heads_kv). Any strides.
    v_descale: the same for v; where q is of fp8, too, of each head, or of each column (batch, heads_kv, head_dim_v), of
        which the first two may be 1, and the first be missing.
    v_mean: fp32 (batch, heads_kv, head_dim_v), of which the first two may be 1 and the first be missing, where q is of fp8:
        what v has lost, which is added to o. Rows that see no key keep o = 0.
    lse_shift: fp32, as lse, where q is of fp8: q times the mean that k has lost. softmax_scale times it is added to LSE,
        before sinks are.
    num_splits: blocks that may share the keys of some queries, at most; 0: as many as pay.
    zero_padding: write o = 0 and lse = −inf to rows that are no query's: behind those in use (seqused_q), before,
        between and behind varlen sequences. Otherwise such rows stay as they are in out, and hold anything elsewhere.
    dropout_p: the rate at which probabilities are dropped at random, at least 0 and less than 1; the others are divided
        by what is kept. lse is that of all keys. Without page_table and split_keys.
    rng_state: int64 (2), with dropout: seed and offset of the random numbers, those of flash-attention. Equal ones drop
        equal probabilities; the backward wants the same.
    block_mask: a BlockMask of calls of these sizes and lengths, which says what the mask is and has the arrays that it
        reads.
    split_keys: a multiple of 64: keys are summed in spans of so many, and the bits that a request comes out with depend
        on the request alone, not on the batch around it. 0: they depend on it.
    kv_dtype: "fp8_e4m3" or "fp8_e5m2", for k and v that are held as bytes (uint8).
    descale_per: "head", "token" or "block", what k_descale and v_descale are for, where their shapes do not say.
    head_dim_v: in place of v: the values are so many leading columns of k, as in the latent cache of multi-head latent
        attention, 512 of 576. Head dims may then be up to 576 and 512.
    out_dtype: of the result, where q is of fp8: "bf16", "fp16" or "fp32"; None: that of out, or "bf16".
    exact_exponentials: of q, k and v of fp8: compute all probabilities. Else half of them, which are rounded to e4m3 anyway,
        are interpolated on sm_90a where that loses nothing else, without return_lse. The error of o is some 2 % smaller.

These arrays are read on the device, never by the host. Query i of a sequence stands at key seqlen_k − seqlen_q + i.

Arrays are PyTorch's, CuPy's, JAX's or others that speak DLPack or the CUDA array interface; all on one GPU. NumPy's and
other arrays in CPU memory are computed on an emulated device, where the process uses one. The result is of q's framework.

Returns:
    o (batch, seqlen_q, heads_q, head_dim_v) of q's type or out_dtype, or (o, lse). A query that sees no key gets
    o = 0, and lse = −inf or its sink.
    The work is on the stream; for frameworks without streams of their own, such as JAX, it is complete.

Raises:
    InvalidArgumentError: an array is wrong; names the argument, before anything is launched.
    InvalidSpecError: the problem is none that can be served, with what would work.
    Error: of another kind, see jit_attention.errors.
)";

constexpr const char* prepare_doc = R"(Compile the kernel for a spec, or take it from the cache, and load it.

Args:
    spec: an AttentionSpec.
    q, k, v: with them, also choose the config for calls of their sizes, by tuning if need be; contents do not matter.
    tensors: what mask and score read, with q, k and v.
    cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, page_table, cache_leftpad, sinks, q_descale, k_descale,
        v_descale, v_mean, lse_shift, rng_state: as `attention` has them, with q, k and v.
    block_mask: a BlockMask for calls of the kernel: the spec's mask becomes that over its table.
    layout: of q, k and v: "BSHD" or "BHSD".
    device: ordinal; None: that of q, else the current one. Calls on other GPUs compile at their first use there.
    config: use this config for all sizes, and never tune: a dict of fields, or text.
    tuning: "off", "recorded", "first_run" or "exhaustive"; None: as JIT_ATTENTION_TUNING says.

Returns an Attention. Raises InvalidSpecError, InvalidArgumentError, UnsupportedDeviceError, NoValidConfigError,
CompileFailedError, NvrtcUnavailableError, OfflineError and others of jit_attention.errors.
)";

// What a backend of an engine calls for each layer of each step. Of so many keywords Python would make a dict for each
// call, and look for each of them among all that `attention` has.
nb::object attend_to_pages(nb::handle q, nb::handle k, nb::handle v, nb::handle out, std::int64_t rows,
                           nb::handle mask, nb::handle score, nb::handle softmax_scale, nb::handle tensors,
                           nb::handle sinks, int split_keys, nb::handle cu_seqlens_q, nb::handle page_table,
                           nb::handle seqused_k, nb::handle kv_dtype, nb::handle k_descale,
                           nb::handle v_descale, std::optional<int> head_dim_v) {
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
  return attend_arrays({.q = q,
                        .k = k,
                        .v = v,
                        .tensors = tensors,
                        .out = out,
                        .kv_dtype = fp8_dtype_of(kv_dtype, "kv_dtype"),
                        .rows = rows,
                        .sequences = sequences},
                       mask, score, softmax_scale, split_keys, Py_None, Py_None, head_dim_v,
                       /*exact_exponentials=*/false, context_for(std::nullopt));
}

// The array of sequence_arrays with this number in a list of parameters.
template <std::size_t>
using SequenceHandle = nb::handle;

// Keywords of the sequence arrays in a signature.
std::string array_keywords() {
  std::string keywords;
  for (const SequenceArray& array : sequence_arrays)
    keywords += fmt::format("{}{}: typing.Any = None", keywords.empty() ? "" : ", ", array.name);
  return keywords;
}

// Keywords for sequences are rows of sequence_arrays, in every function that takes them.
template <std::size_t... rows>
void bind_calls(nb::module_& module, std::index_sequence<rows...>) {
  define(
      module, "attention",
      [](nb::handle q, nb::handle k, nb::handle v, nb::handle mask, nb::handle score,
         nb::handle softmax_scale, nb::handle return_lse, nb::handle out, nb::handle dtype, nb::handle layout,
         nb::handle tensors, nb::handle stream, nb::handle tuning, SequenceHandle<rows>... arrays,
         int num_splits, bool zero_padding, int split_keys, double dropout_p, nb::handle block_mask,
         nb::handle kv_dtype, nb::handle descale_per, std::optional<int> head_dim_v, nb::handle out_dtype,
         bool exact_exponentials) {
        const Context& context = context_for(parse_tuning(tuning));
        return attend_arrays({.q = q,
                              .k = k,
                              .v = v,
                              .tensors = tensors,
                              .out = out,
                              .stream = stream,
                              .layout = parse_layout(layout),
                              .dtype = input_dtype_of(dtype, "dtype"),
                              .kv_dtype = fp8_dtype_of(kv_dtype, "kv_dtype"),
                              .out_dtype = float_dtype_of(out_dtype, "out_dtype"),
                              .return_lse = return_lse,
                              .sequences = {{arrays...}, num_splits, zero_padding, dropout_p}},
                             mask, score, softmax_scale, split_keys, descale_per, block_mask, head_dim_v,
                             exact_exponentials, context);
      },
      "q"_a.none(), "k"_a.none(), "v"_a = nb::none(), nb::kw_only(), "mask"_a = nb::none(),
      "score"_a = nb::none(), "softmax_scale"_a = nb::none(), "return_lse"_a = nb::bool_(false),
      "out"_a = nb::none(), "dtype"_a = nb::none(), "layout"_a = "BSHD", "tensors"_a = nb::none(),
      "stream"_a = nb::none(), "tuning"_a = nb::none(), (nb::arg(sequence_arrays[rows].name) = nb::none())...,
      "num_splits"_a = 0, "zero_padding"_a = false, "split_keys"_a = 0, "dropout_p"_a = 0.0,
      "block_mask"_a = nb::none(), "kv_dtype"_a = nb::none(), "descale_per"_a = nb::none(),
      "head_dim_v"_a = nb::none(), "out_dtype"_a = nb::none(), "exact_exponentials"_a = false, attention_doc,
      nb::sig("def attention(q: typing.Any, k: typing.Any, v: typing.Any = None, *, "
              "mask: jit_attention.Mask | None = None, score: jit_attention.Score | None = None, "
              "softmax_scale: float | None = None, return_lse: typing.Any = False, out: typing.Any = None, "
              "dtype: typing.Any = None, layout: str = 'BSHD', tensors: dict[str, typing.Any] | None = None, "
              "stream: typing.Any = None, tuning: str | None = None, cu_seqlens_q: typing.Any = None, "
              "cu_seqlens_k: typing.Any = None, seqused_q: typing.Any = None, seqused_k: typing.Any = None, "
              "page_table: typing.Any = None, cache_leftpad: typing.Any = None, sinks: typing.Any = None, "
              "q_descale: typing.Any = None, k_descale: typing.Any = None, v_descale: typing.Any = None, "
              "v_mean: typing.Any = None, lse_shift: typing.Any = None, rng_state: typing.Any = None, "
              "num_splits: int = 0, zero_padding: bool = False, "
              "split_keys: int = 0, dropout_p: float = 0.0, "
              "block_mask: jit_attention.BlockMask | None = None, kv_dtype: typing.Any = None, "
              "descale_per: str | None = None, head_dim_v: int | None = None, "
              "out_dtype: typing.Any = None, exact_exponentials: bool = False) -> typing.Any"));
  nb::class_<Prepared> prepared(
      module, "Attention", "A spec's kernel for every size. Cheap to call, thread safe; made by `prepare`.");
  const std::string arrays = array_keywords();
  define(
      prepared, "__call__",
      [](const Prepared& self, nb::handle q, nb::handle k, nb::handle v, nb::handle return_lse,
         nb::handle out, nb::handle layout, nb::handle tensors, nb::handle stream,
         SequenceHandle<rows>... arrays, int num_splits, bool zero_padding, double dropout_p,
         nb::handle block_mask) {
        return self.call({.q = q,
                          .k = k,
                          .v = v,
                          .tensors = tensors,
                          .out = out,
                          .stream = stream,
                          .layout = parse_layout(layout),
                          .return_lse = return_lse,
                          .sequences = {{arrays...}, num_splits, zero_padding, dropout_p}},
                         block_mask);
      },
      "q"_a.none(), "k"_a.none(), "v"_a = nb::none(), nb::kw_only(), "return_lse"_a = nb::bool_(false),
      "out"_a = nb::none(), "layout"_a = "BSHD", "tensors"_a = nb::none(), "stream"_a = nb::none(),
      (nb::arg(sequence_arrays[rows].name) = nb::none())..., "num_splits"_a = 0, "zero_padding"_a = false,
      "dropout_p"_a = 0.0, "block_mask"_a = nb::none(),
      "As `attention`, for arrays of the spec's type, head dims, GQA ratio and alignment.",
      nb::sig(("def __call__(self, q: typing.Any, k: typing.Any, v: typing.Any = None, *, "
               "return_lse: typing.Any = False, out: typing.Any = None, layout: str = 'BSHD', "
               "tensors: dict[str, typing.Any] | None = None, stream: typing.Any = None, " +
               arrays +
               ", num_splits: int = 0, zero_padding: bool = False, dropout_p: float = 0.0, "
               "block_mask: jit_attention.BlockMask | None = None) -> typing.Any")
                  .c_str()));
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
      "tensors"_a = nb::none(), (nb::arg(sequence_arrays[rows].name) = nb::none())...,
      "The Kernel that a call with these arrays runs, prepared if need be; without arrays, the one for "
      "sizes that nothing was chosen for.",
      nb::sig(("def kernel(self, q: typing.Any = None, k: typing.Any = None, v: typing.Any = None, *, "
               "layout: str = 'BSHD', tensors: dict[str, typing.Any] | None = None, " +
               arrays + ") -> jit_attention.Kernel")
                  .c_str()));
  prepared.def_ro("spec", &Prepared::spec, "The AttentionSpec that it was prepared for.")
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
      "block_mask"_a = nb::none(), prepare_doc,
      nb::sig(("def prepare(spec: jit_attention.AttentionSpec, q: typing.Any = None, k: typing.Any = None, "
               "v: typing.Any = None, *, tensors: dict[str, typing.Any] | None = None, layout: str = 'BSHD', "
               "device: int | None = None, config: dict[str, typing.Any] | str | None = None, "
               "tuning: str | None = None, " +
               arrays + ", block_mask: jit_attention.BlockMask | None = None) -> jit_attention.Attention")
                  .c_str()));
}

}  // namespace

void bind_attention(nb::module_& module) {
  bind_calls(module, std::make_index_sequence<sequence_arrays.size()>());
  define(module, "_attend_to_pages", attend_to_pages, "q"_a, "k"_a, "v"_a.none(), "out"_a, "rows"_a,
         "mask"_a.none(), "score"_a.none(), "softmax_scale"_a.none(), "tensors"_a.none(), "sinks"_a.none(),
         "split_keys"_a, "cu_seqlens_q"_a, "page_table"_a, "seqused_k"_a, "kv_dtype"_a.none(),
         "k_descale"_a.none(), "v_descale"_a.none(), "head_dim_v"_a.none(),
         "`attention` with zero_padding over pages, of the first rows of q and out.");
}

}  // namespace jit::python
