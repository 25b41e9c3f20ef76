// Parameters of an append to a cache. Compiled by the host and by NVRTC.
#pragma once

#include "base/params.cuh"

namespace jit {

struct AppendParams {
  const void* k;                  ///< (batch, seqlen, heads_kv, head_dim); varlen ones are one batch entry
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
  float* k_scale;                 ///< of all heads, of each, or of each place in the cache; null: 1
  float* v_scale;
  TensorStrides k_strides;
  TensorStrides v_strides;
  TensorStrides q_strides;
  TensorStrides q_out_strides;
  TensorStrides k_cache_strides;  ///< batch: from page to page
  TensorStrides v_cache_strides;
  TensorStrides k_scale_strides;  ///< likewise; 0 along what has no scales of its own
  TensorStrides v_scale_strides;
  long long page_table_stride;
  long long positions_stride;  ///< from axis to axis
  long long cos_stride;
  long long sin_stride;
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

/// With caches whose blocks of columns have scales. The host fills one for all kernels, others take what it inherits.
struct BlockAppendParams : AppendParams {
  unsigned char* k_blocks;  ///< scales of blocks of columns of each place in the cache
  unsigned char* v_blocks;
  TensorStrides k_blocks_strides;
  TensorStrides v_blocks_strides;
};

}  // namespace jit
