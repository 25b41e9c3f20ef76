#include "backward_binding.h"

#include <string>
#include <vector>

#include <jit/attention.h>
#include <jit/device.h>

#include "argument_names.h"
#include "backward_call.h"
#include "given.h"
#include "process.h"

namespace jit::python {
namespace {

using namespace nb::literals;

// Returns what `work` does; errors name what the caller gave.
template <class Work>
auto by_arguments(const Work& work) {
  try {
    return work();
  } catch (const Error& error) {
    throw renamed_field(renamed_argument(error, {{"d_o", "do"}, {"d_lse", "dlse"}}),
                        {{"dtype", "q"},
                         {"head_dim", "q"},
                         {"head_dim_v", "v"},
                         {"gqa_ratio", "k"},
                         {"alignment", "q"},
                         {"sequences_q", "cu_seqlens_q"},
                         {"sequences_kv", "cu_seqlens_k"},
                         {"kv_dtype", "k"},
                         {"dropout", "dropout_p"}});
  }
}

nb::tuple compute_gradients(const BackwardInputs& inputs, const Context& context) {
  return by_arguments([&] {
    const BackwardCall call(inputs);
    try {
      without_lock([&] {
        const CurrentDevice scope(call.device());
        attention_when_called(call.spec(), context).backward(call.arguments(), call.stream());
        call.complete();
      });
    } catch (const Error& error) {
      throw call.renamed(error);
    }
    return call.results();
  });
}

std::vector<CompiledKernel> prepare_gradients(const BackwardInputs& inputs, const Context& context) {
  return by_arguments([&] {
    const BackwardCall call(inputs);
    try {
      return without_lock([&] {
        const CurrentDevice scope(call.device());
        return attention_when_called(call.spec(), context).backward_kernels(call.arguments());
      });
    } catch (const Error& error) {
      throw call.renamed(error);
    }
  });
}

constexpr const char* backward_doc =
    R"(Gradients of attention with respect to q, k and v, and to what scores read.

Two kernels or more, compiled for this problem, and chosen for its sizes, at their first use.

Args:
    do: the gradient of o, of o's shape; bf16 or fp16 as all arrays but lse, any strides whose last is 1.
    q, k, v, mask, score, softmax_scale, tensors, block_mask: as `attention` had them. Texts of scores are
        differentiated by the library, unless they give their derivative: they are compiled with a number type that
        carries its derivative, so that variables that depend on `score`, or on tensors in `d_tensors`, are declared
        with `auto`. Of a block_mask with mask bits the mask is asked, with the arrays that it was made with, and
        bits are looked up where these are not there.
    o, lse: what `attention` returned with return_lse.
    dq, dk, dv: arrays to write to, which are then returned; they share no memory with each other or the inputs.
    dtype: "bf16" or "fp16", for arrays of 16-bit integers, which cannot say what they hold.
    layout: "BSHD", or "BHSD": seqlen and heads swapped in all arrays but lse and varlen ones.
    stream: a number or an object with __cuda_stream__; None: the current stream of q's framework.
    dropout_p, rng_state: as `attention` had them.
    deterministic: whether equal inputs must give bitwise identical results. Otherwise dq may be a sum in any order, which is faster
        on some GPUs.
    cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k: as `attention` had them, read on the device.
    page_table, cache_leftpad: None; there are no gradients of caches.
    dlse: the gradient of lse, if the loss depends on it: fp32, of lse's shape.
    sinks: as `attention` had them.
    d_sinks: True to get the gradient of the sinks, or an array to write it to.
    d_tensors: names of arrays in `tensors` that the score reads, to get their gradients, which always are bitwise identical
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

constexpr const char* prepare_gradients_doc =
    R"(The kernels that `attention_backward` of these arguments launches, in their order, made ready for it.

Chooses, compiles, loads and, as `tuning` says, tunes them for calls of these sizes, which only launch then: also while
a CUDA graph is captured. The arguments are those of `attention_backward`; what q, k, v, o, do and lse hold does not
matter, nothing is written, and of gradients only places matter.

Returns:
    A list of Kernel, each with its source, PTX, resources and why it was chosen.

Raises:
    As `attention_backward`.
)";

constexpr const char* parameters =
    "do: typing.Any, q: typing.Any, k: typing.Any, v: typing.Any, o: typing.Any, lse: typing.Any, *, "
    "mask: jit_attention.Mask | None = None, score: jit_attention.Score | None = None, "
    "softmax_scale: float | None = None, dq: typing.Any = None, dk: typing.Any = None, dv: typing.Any = "
    "None, "
    "dtype: typing.Any = None, layout: str = 'BSHD', tensors: dict[str, typing.Any] | None = None, "
    "stream: typing.Any = None, deterministic: bool = False, dropout_p: float = 0.0, "
    "rng_state: typing.Any = None, cu_seqlens_q: typing.Any = None, cu_seqlens_k: typing.Any = None, "
    "seqused_q: typing.Any = None, seqused_k: typing.Any = None, page_table: typing.Any = None, "
    "cache_leftpad: typing.Any = None, dlse: typing.Any = None, sinks: typing.Any = None, "
    "d_sinks: typing.Any = None, d_tensors: typing.Any = None, "
    "block_mask: jit_attention.BlockMask | None = None, tuning: str | None = None";

// A function of these parameters, which `f` computes of what is given.
template <class F>
void define_gradients(nb::module_& module, const char* name, const char* result, const char* doc, F f) {
  const auto call = [f](nb::handle d_o, nb::handle q, nb::handle k, nb::handle v, nb::handle o,
                        nb::handle lse, nb::handle mask, nb::handle score, nb::handle softmax_scale,
                        nb::handle dq, nb::handle dk, nb::handle dv, nb::handle dtype, nb::handle layout,
                        nb::handle tensors, nb::handle stream, bool deterministic, double dropout_p,
                        nb::handle rng_state, nb::handle cu_seqlens_q, nb::handle cu_seqlens_k,
                        nb::handle seqused_q, nb::handle seqused_k, nb::handle page_table,
                        nb::handle cache_leftpad, nb::handle d_lse, nb::handle sinks, nb::handle d_sinks,
                        nb::handle d_tensors, nb::handle block_mask, nb::handle tuning) {
    return f(BackwardInputs{.d_o = d_o,
                            .q = q,
                            .k = k,
                            .v = v,
                            .o = o,
                            .lse = lse,
                            .mask = mask,
                            .score = score,
                            .softmax_scale = softmax_scale,
                            .dq = dq,
                            .dk = dk,
                            .dv = dv,
                            .dtype = dtype,
                            .layout = layout,
                            .tensors = tensors,
                            .stream = stream,
                            .deterministic = deterministic,
                            .dropout_p = dropout_p,
                            .rng_state = rng_state,
                            .cu_seqlens_q = cu_seqlens_q,
                            .cu_seqlens_k = cu_seqlens_k,
                            .seqused_q = seqused_q,
                            .seqused_k = seqused_k,
                            .page_table = page_table,
                            .cache_leftpad = cache_leftpad,
                            .d_lse = d_lse,
                            .sinks = sinks,
                            .d_sinks = d_sinks,
                            .d_tensors = d_tensors,
                            .block_mask = block_mask},
             context_for(parse_tuning(tuning)));
  };
  const std::string signature = std::string("def ") + name + "(" + parameters + ") -> " + result;
  define(module, name, call, "do"_a.none(), "q"_a.none(), "k"_a.none(), "v"_a.none(), "o"_a.none(),
         "lse"_a.none(), nb::kw_only(), "mask"_a = nb::none(), "score"_a = nb::none(),
         "softmax_scale"_a = nb::none(), "dq"_a = nb::none(), "dk"_a = nb::none(), "dv"_a = nb::none(),
         "dtype"_a = nb::none(), "layout"_a = "BSHD", "tensors"_a = nb::none(), "stream"_a = nb::none(),
         "deterministic"_a = false, "dropout_p"_a = 0.0, "rng_state"_a = nb::none(),
         "cu_seqlens_q"_a = nb::none(), "cu_seqlens_k"_a = nb::none(), "seqused_q"_a = nb::none(),
         "seqused_k"_a = nb::none(), "page_table"_a = nb::none(), "cache_leftpad"_a = nb::none(),
         "dlse"_a = nb::none(), "sinks"_a = nb::none(), "d_sinks"_a = nb::none(), "d_tensors"_a = nb::none(),
         "block_mask"_a = nb::none(), "tuning"_a = nb::none(), doc, nb::sig(signature.c_str()));
}

}  // namespace

void bind_backward(nb::module_& module) {
  define_gradients(module, "attention_backward", "tuple[typing.Any, ...]", backward_doc, compute_gradients);
  define_gradients(module, "prepare_backward", "list[jit_attention.Kernel]", prepare_gradients_doc,
                   prepare_gradients);
}

}  // namespace jit::python
