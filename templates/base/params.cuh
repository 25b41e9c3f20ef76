// The kernel's run-time arguments: one struct, passed by value, which host and NVRTC compile. Kernels by TMA have a
// second parameter (mainloop/tensor_maps.cuh). Everything known when the kernel was generated is in Config instead.
#pragma once

#include "base/dropout_params.cuh"
#include "base/tensor_strides.cuh"

namespace jit {

/// The arrays that say where sequences lie.
enum class SequenceArrayId : int {
  none,
  cu_seqlens_q,
  cu_seqlens_k,
  seqused_q,
  seqused_k,
  cache_leftpad,
  page_table,
  q_positions,
  k_positions,
  global_seqlens,
  tree_ends
};

/// The first invalid array element. All 0: none was found.
struct ArrayFault {
  SequenceArrayId array;
  int request;
  int index;  ///< index of the element: in cu_seqlens, or in the request's row of a table; else the request
  int value;
  int least;  ///< least valid value
  int most;
};

/// Dequantization scales of q, k and v, read only on the device. Strides: `batch` is from batch entry to batch entry,
/// or from page to page if each key has a scale; `head` from KV head to KV head; `seq` from key to key, else 0. Scales
/// of columns of values are contiguous.
struct DescaleParams {
  const float* q;  ///< null: 1; only for 8-bit q
  const float* k;  ///< null: 1
  const float* v;  ///< null: 1
  TensorStrides q_strides;
  TensorStrides k_strides;
  TensorStrides v_strides;
  // Kernels with FP8 q use the first member of each union, kernels with block scales of k and v the second.
  union {
    const float* v_mean;            ///< subtracted mean of each column of values; if Config::v_mean
    const unsigned char* k_blocks;  ///< a byte for each block of columns of a key, side by side
  };
  union {
    const float* lse_shift;         ///< loss of LSE per query by the mean of keys; if Config::lse_shift
    const unsigned char* v_blocks;  ///< a byte for each block of columns of a value, side by side
  };
  union {
    TensorStrides v_mean_strides;
    TensorStrides k_blocks_strides;  ///< `batch` from page to page
  };
  union {
    TensorStrides lse_shift_strides;
    TensorStrides v_blocks_strides;
  };
};

/// Further outputs: maxima that a call raises (epilogue/row_maxima.cuh), o before an output functor
/// (epilogue/output_functor.cuh), scales of o (epilogue/quantized_output.cuh), means of scores
/// (epilogue/mean_scores.cuh), and LSE over several calls (epilogue/running_results.cuh).
struct OutputParams {
  float* max_logit;  ///< (heads_q); if Config::max_logit
  float* row_max;    ///< of each query, as lse; if Config::row_max
  TensorStrides row_max_strides;
  void* o_raw;  ///< as o, null: not requested; if the Config has an output functor
  TensorStrides o_raw_strides;
  union {
    float* o_descale;           ///< scales of rows of 8-bit O: written if Config::o_descale, else read
    const float* d_mean_score;  ///< of a backward call: the gradient of mean_score, as lse
    float* running_lse;         ///< of each query, as lse, null: begins; if Config::running_lse
  };
  union {
    TensorStrides o_descale_strides;
    TensorStrides d_mean_score_strides;
    TensorStrides running_lse_strides;
  };
  float* mean_score;  ///< of each query, as lse; if Config::mean_score. Backward reads it
  TensorStrides mean_score_strides;
};

/// A tensor that a functor reads: up to three leading strides in elements; the last one is 1. Output functors' tensors
/// have strides of batch entry, row and head, followed by o's columns, if any. If a tensor has a row per row of varlen
/// k, its second stride is the address of cu_seqlens_k.
struct FunctorTensor {
  const void* data;
  long long strides[3];
  int last_size;  ///< elements along the last dimension; at most 2^31 − 1, as `rows`
  int rows;       ///< along the one before it, else 1
};

inline constexpr int max_functor_tensors = 8;

/// Begins and lengths of sequences, known only on the device; names and meaning are flash-attention's. Arrays that a
/// call does not have are null; kernels of dense sequences read none of this.
struct SequenceParams {
  const int* cu_seqlens_q;   ///< (batch + 1), first row of each sequence in varlen q and o
  const int* cu_seqlens_k;   ///< (batch + 1), the same in varlen k and v
  const int* seqused_q;      ///< (batch), queries of each sequence, where it has room for more
  const int* seqused_k;      ///< (batch), the same for keys
  const int* cache_leftpad;  ///< (batch), rows before the first key of each sequence
  const int* page_table;     ///< (batch, max_pages), pages of each sequence in the order of its keys
  long long page_table_stride;
  const float* sinks;  ///< (heads_q), natural units
  int total_q;         ///< rows of varlen q
  int total_k;         ///< rows of varlen k
  int pages;           ///< of paged k and v
  int max_pages;
  int num_splits;     ///< the most blocks that may share a work tile; 0: any number
  int zero_padding;   ///< whether padding rows of o and LSE are zeroed
  ArrayFault* fault;  ///< where checked kernels record what is wrong with these arrays; else null
};

struct AttentionParams {
  const void* q;  ///< (batch, seqlen_q, heads_q, head_dim); varlen: (total_q, heads_q, head_dim)
  const void*
      k;  ///< (batch, seqlen_kv, heads_q / gqa_ratio, head_dim); varlen as q; paged: (pages, page_size, …)
  const void* v;  ///< as k, with head_dim_v
  void* o;        ///< as q, with head_dim_v
  float* lse;     ///< (batch, heads_q, seqlen_q); varlen: (heads_q, total_q); natural log; may be null
  TensorStrides q_strides;
  TensorStrides k_strides;
  TensorStrides v_strides;
  TensorStrides o_strides;
  TensorStrides lse_strides;
  int batch;
  int batch_begin;   ///< first batch entry of this launch, as the grid size is limited
  int q_tile_begin;  ///< first query tile of this launch, for the same reason
  int heads_q;
  int heads_kv;
  int seqlen_q;   ///< length of dense sequences; else the largest one allowed
  int seqlen_kv;  ///< the same for keys
  float softmax_scale;
  FunctorTensor tensors[max_functor_tensors];
  SequenceParams sequences;
  DropoutParams dropout;  ///< of a spec with dropout
  union {
    DescaleParams descale;  ///< of a spec with narrow keys
    OutputParams outputs;   ///< of a spec with further outputs, which has no narrow keys
  };
};

}  // namespace jit
