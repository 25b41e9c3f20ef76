/// @file
/// The mass of each key, through the C interface (jit/c.h).
#pragma once

#include <jit/c.h>

#ifdef __cplusplus
extern "C" {
#endif

/// Tensors of key masses: those of jit::KeyMassArguments (jit/key_mass.h).
typedef struct jit_key_mass_arguments {
  size_t size;            ///< sizeof(jit_key_mass_arguments)
  const jit_tensor* q;    ///< as in jit_forward_arguments
  const jit_tensor* k;    ///< the same
  const jit_tensor* lse;  ///< LSE of all keys: fp32 (batch, heads_q, seqlen_q) or (heads_q, total_q)
  const jit_tensor*
      mass;  ///< written: fp32 (batch, heads, seqlen_kv) or (heads, total_k); paged: jit/key_mass.h
  const jit_named_tensor* tensors;  ///< the tensors that mask and score read
  size_t tensor_count;              ///< number of these
  const jit_tensor* cu_seqlens_q;   ///< with --sequences-q varlen: int32 (batch + 1)
  const jit_tensor* cu_seqlens_k;   ///< with --sequences-kv varlen: int32 (batch + 1)
  int32_t only_check;               ///< 1: nothing is computed
  int32_t reserved;                 ///< 0
  const jit_tensor* page_table;     ///< with --sequences-kv paged: int32 (batch, max_pages)
  const jit_tensor* seqused_k;      ///< beside page_table, may be null: int32 (batch)
} jit_key_mass_arguments;

/// Sums the probabilities of each key over the queries that see it. The spec has attention's options, those of mask, score and
/// shape, and --per-query-head.
///
/// @code
/// jit_spec spec = {.size = sizeof(spec), .text = "--mask causal --gqa-ratio 4"};
/// jit_operation_create(context, JIT_KEY_MASS, &spec, &key_mass, &error);
/// jit_key_mass_arguments call = {.size = sizeof(call), .q = &q, .k = &k, .lse = &lse, .mass = &mass};
/// jit_key_mass(key_mass, &call, stream, &error);
/// @endcode
jit_code jit_key_mass(const jit_operation* key_mass, const jit_key_mass_arguments* arguments, void* stream,
                      jit_error** error);

#ifdef __cplusplus
}
#endif
