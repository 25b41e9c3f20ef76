/// @file
/// Attention as functions of apache-tvm-ffi, for programs that call kernels by name, such as TileLang's and SGLang's.
#pragma once

#include <jit/c.h>

#ifdef __cplusplus
extern "C" {
#endif

/// Registers the global functions jit_attention.attention, jit_attention.attention_backward, jit_attention.append and
/// jit_attention.merge with apache-tvm-ffi. Each is called as `function(spec, names, value, …)`:
///
/// - `spec` is the text of a jit_spec: "--head-dim 128 --mask causal".
/// - `names` says which argument each value is: "q k v o lse". They are the members of jit_forward_arguments,
///   jit_backward_arguments (with do and dlse for d_o and d_lse) and jit_append_arguments. The tensors of masks and
///   scores are tensors.NAME, their gradients d_tensors.NAME. A merge has o, lse, and parts.o and parts.lse for each
///   part.
/// - Values are tensors, numbers and None. Outputs are among them; a function returns None.
///
/// A call runs on the device of its first tensor and on tvm-ffi's current stream there. It fails with tvm-ffi's
/// ValueError if an argument is wrong, otherwise with its RuntimeError. Functions may be called from any thread,
/// without Python's interpreter lock.
///
/// `library` is the path of libtvm_ffi.so; null: the one that the process has loaded. Register once, before calls.
/// Fails with JIT_INVALID_ARGUMENT, field "library", if that is not tvm-ffi.
///
/// @code
/// jit_tvm_ffi_register(NULL, &error);
/// @endcode
jit_code jit_tvm_ffi_register(const char* library, jit_error** error);

#ifdef __cplusplus
}
#endif
