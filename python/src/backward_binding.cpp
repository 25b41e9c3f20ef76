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

// Runs `work`; errors name the caller's arguments.
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

// A function with these parameters, computed by `f`.
template <class F>
void define_gradients(nb::module_& module, const char* name, F f) {
  const auto call = [f](nb::handle d_o, nb::handle q, nb::handle k, nb::handle v, nb::handle o,
                        nb::handle lse, nb::handle mask, nb::handle score, nb::handle softmax_scale,
                        nb::handle dq, nb::handle dk, nb::handle dv, nb::handle dtype, nb::handle layout,
                        nb::handle tensors, nb::handle stream, bool deterministic, double dropout_p,
                        nb::handle rng_state, nb::handle cu_seqlens_q, nb::handle cu_seqlens_k,
                        nb::handle seqused_q, nb::handle seqused_k, nb::handle page_table,
                        nb::handle cache_leftpad, nb::handle d_lse, nb::handle mean_score,
                        nb::handle d_mean_score, nb::handle sinks, nb::handle d_sinks, nb::handle d_tensors,
                        nb::handle block_mask, nb::handle tuning, nb::handle q_positions,
                        nb::handle k_positions, nb::handle global_seqlens, nb::handle output) {
    const nb::object read = with_positions(tensors, {q_positions, k_positions, global_seqlens});
    return f(BackwardInputs{.d_o = d_o,
                            .q = q,
                            .k = k,
                            .v = v,
                            .o = o,
                            .lse = lse,
                            .mask = mask,
                            .score = score,
                            .output = output,
                            .softmax_scale = softmax_scale,
                            .dq = dq,
                            .dk = dk,
                            .dv = dv,
                            .dtype = dtype,
                            .layout = layout,
                            .tensors = read,
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
                            .mean_score = mean_score,
                            .d_mean_score = d_mean_score,
                            .sinks = sinks,
                            .d_sinks = d_sinks,
                            .d_tensors = d_tensors,
                            .block_mask = block_mask},
             context_for(parse_tuning(tuning)));
  };
  define(module, name, call, "do"_a.none(), "q"_a.none(), "k"_a.none(), "v"_a.none(), "o"_a.none(),
         "lse"_a.none(), nb::kw_only(), "mask"_a = nb::none(), "score"_a = nb::none(),
         "softmax_scale"_a = nb::none(), "dq"_a = nb::none(), "dk"_a = nb::none(), "dv"_a = nb::none(),
         "dtype"_a = nb::none(), "layout"_a = "BSHD", "tensors"_a = nb::none(), "stream"_a = nb::none(),
         "deterministic"_a = false, "dropout_p"_a = 0.0, "rng_state"_a = nb::none(),
         "cu_seqlens_q"_a = nb::none(), "cu_seqlens_k"_a = nb::none(), "seqused_q"_a = nb::none(),
         "seqused_k"_a = nb::none(), "page_table"_a = nb::none(), "cache_leftpad"_a = nb::none(),
         "dlse"_a = nb::none(), "mean_score"_a = nb::none(), "d_mean_score"_a = nb::none(),
         "sinks"_a = nb::none(), "d_sinks"_a = nb::none(), "d_tensors"_a = nb::none(),
         "block_mask"_a = nb::none(), "tuning"_a = nb::none(), "q_positions"_a = nb::none(),
         "k_positions"_a = nb::none(), "global_seqlens"_a = nb::none(), "output"_a = nb::none());
}

}  // namespace

void bind_backward(nb::module_& module) {
  define_gradients(module, "attention_backward", compute_gradients);
  define_gradients(module, "prepare_backward", prepare_gradients);
}

}  // namespace jit::python
