/// @file
/// Attention as custom calls of XLA: handlers of its foreign function interface (xla/ffi/api/c_api.h), to be registered
/// with XLA or JAX under any name, for all stages:
///
///      XLA_FFI_REGISTER_HANDLER(api, "jit_attention_forward", "CUDA",
///                               (XLA_FFI_Handler_Bundle{.instantiate = jit_xla_attention_forward,
///                                                       .initialize = jit_xla_attention_forward,
///                                                       .execute = jit_xla_attention_forward}));
///
/// Kernels are chosen and compiled in the stage "initialize"; then calls only launch, so that they can be recorded into
/// command buffers. The handlers are thread safe. Errors are XLA's INVALID_ARGUMENT, with the sentence of the
/// library, for what the caller gave, and INTERNAL for the rest.
///
/// Attributes:
///
///      operands       "q k v": names of the operands in their order. Those of forward are the members of
///                     jit::AttentionArguments; those of backward the members of jit::BackwardArguments, with `do` and
///                     `dlse`. A tensor of a mask or score is "tensors.NAME". `rng_state` may be U32[4] for S64[2]. An
///                     operand with the name of a result is what this holds at first, and is aliased with it.
///      results        "o lse"; of backward "dq dk dv", d_sinks, and "d_tensors.NAME" for gradients of tensors; with
///                     list_block those of jit::ListGradients
///      spec           dictionary of the fields of jit::AttentionSpec that are not the default: types and kinds as text
///                     ("bf16"), mask and score as text that jit::parse_mask and jit::parse_score read
///      mask_text_N    dictionary of strings for each jit::FunctorText that the mask calls: name, body, classify,
///                     derivative, constants ("window = 128, on = true") and tensors ("ids int32, table fp32")
///      score_text_N   the same of the score
///      layout         optional, "BSHD" or "BHSD"
///      dropout_p, num_splits, zero_padding, deterministic    optional: the arguments of this name
#pragma once

struct XLA_FFI_CallFrame;
struct XLA_FFI_Error;

extern "C" {

/// Computes attention, on XLA's platform "CUDA".
///
/// @code
/// XLA_FFI_Error* (*const handler)(XLA_FFI_CallFrame*) = jit_xla_attention_forward;
/// // XLA calls jit_xla_attention_forward(frame) in each stage.
/// @endcode
XLA_FFI_Error* jit_xla_attention_forward(XLA_FFI_CallFrame* call_frame);

/// Computes gradients, on "CUDA".
///
/// @code
/// XLA_FFI_Error* (*const handler)(XLA_FFI_CallFrame*) = jit_xla_attention_backward;
/// // XLA calls jit_xla_attention_backward(frame) in each stage.
/// @endcode
XLA_FFI_Error* jit_xla_attention_backward(XLA_FFI_CallFrame* call_frame);

/// Computes attention in host memory on an emulated device, on XLA's platform "cpu".
///
/// @code
/// XLA_FFI_Error* (*const handler)(XLA_FFI_CallFrame*) = jit_xla_attention_forward_cpu;
/// // XLA calls jit_xla_attention_forward_cpu(frame) in each stage.
/// @endcode
XLA_FFI_Error* jit_xla_attention_forward_cpu(XLA_FFI_CallFrame* call_frame);

/// Computes gradients in host memory on an emulated device, on "cpu".
///
/// @code
/// XLA_FFI_Error* (*const handler)(XLA_FFI_CallFrame*) = jit_xla_attention_backward_cpu;
/// // XLA calls jit_xla_attention_backward_cpu(frame) in each stage.
/// @endcode
XLA_FFI_Error* jit_xla_attention_backward_cpu(XLA_FFI_CallFrame* call_frame);
}
