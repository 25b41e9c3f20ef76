// What an append to a cache is told at run time. Compiled by the host and by NVRTC.
#pragma once

#include "base/params.cuh"

namespace jit {

struct AppendParams {
  const void* k;                  ///< (batch, seqlen, heads_kv, head_dim); ragged ones are one batch entry
  const void* v;                  ///< (batch, seqlen, heads_kv, head_dim_v)
  const void* q;                  ///< (batch, seqlen, heads_q, head_dim); null without heads_q
  void* q_out;                    ///< like q, may be q
  void* k_cache;                  ///< (pages, page_size, heads_kv, head_dim)
  void* v_cache;                  ///< (pages, page_size, heads_kv, head_dim_v)
  const long long* slot_mapping;  ///< (tokens); null: by request
  const int* page_table;          ///< (requests, max_pages); null: a request's page has its number
  const int* seqused_k;           ///< (requests)
  const int* cu_seqlens_q;        ///< (requests + 1); null: requests have `seqlen` tokens each
  const long long* positions;     ///< (tokens) or (3, tokens); null: those in the request
  const void* cos;                ///< (max_pos, rotary_dim / 2)
  const void* sin;                ///< the same, and a tensor's own or the right half of one with cos
  const void* q_norm_weight;      ///< (head_dim)
  const void* k_norm_weight;      ///< (head_dim)
  const float* k_scale;           ///< of all heads, or (heads_kv); null: 1
  const float* v_scale;
  TensorStrides k_strides;
  TensorStrides v_strides;
  TensorStrides q_strides;
  TensorStrides q_out_strides;
  TensorStrides k_cache_strides;  ///< batch: from page to page
  TensorStrides v_cache_strides;
  long long page_table_stride;
  long long positions_stride;  ///< from axis to axis
  long long cos_stride;
  long long sin_stride;
  int k_scale_stride;  ///< from head to head: 0 or 1
  int v_scale_stride;
  int tokens;
  int seqlen;  ///< tokens of a batch entry
  int requests;
  int heads_q;
  int heads_kv;
  int pages;
  int page_size;
  int max_pages;
  int max_pos;
  int rows_per_block;  ///< of the heads_q + 2 heads_kv rows of a token
  float norm_eps;
};

}  // namespace jit
