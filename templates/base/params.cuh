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
  global_seqlens
};

/// The first element that was found to be none that it may be. All 0: none was.
struct ArrayFault {
  SequenceArrayId array;
  int request;
  int index;  ///< of the element: of cu_seqlens among all, of tables in the request's row; else the request
  int value;
  int least;  ///< that it may be
  int most;
};

/// Dequantization scales of q, k and v, read on the device alone. `batch` of the strides is that of a batch
/// entry, or of a page where each key has a scale of its own; `head` is from one KV head to the next; `seq`, from key to
/// key, is 0 otherwise. What there is one of for each column of values lies side by side.
struct DescaleParams {
  const float* q;  ///< null: 1; of q of 8 bits alone
  const float* k;  ///< null: 1
  const float* v;  ///< null: 1
  TensorStrides q_strides;
  TensorStrides k_strides;
  TensorStrides v_strides;
  // Kernels with FP8 q have the first of each two, those whose blocks of k and v have scales the second.
  union {
    const float* v_mean;            ///< of each column of a KV head, what values have lost; if Config::v_mean
    const unsigned char* k_blocks;  ///< a byte for each block of columns of a key, side by side
  };
  union {
    const float* lse_shift;         ///< of each query, what its scores have lost; if Config::lse_shift
    const unsigned char* v_blocks;  ///< the same of values
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

/// Outputs beside o and LSE: numbers that a call raises to its own maxima (epilogue/row_maxima.cuh), o before an output
/// functor (epilogue/output_functor.cuh), scales of o (epilogue/quantized_output.cuh), and means of scores
/// (epilogue/mean_scores.cuh).
struct OutputParams {
  float* max_logit;  ///< (heads_q); if Config::max_logit
  float* row_max;    ///< of each query, as lse; if Config::row_max
  TensorStrides row_max_strides;
  void* o_raw;  ///< as o, null: not asked for; if the Config has an output functor
  TensorStrides o_raw_strides;
  union {
    float* o_descale;           ///< scales of rows of 8-bit O: written if Config::o_descale, else read
    const float* d_mean_score;  ///< of a backward call: the gradient of mean_score, as lse
  };
  union {
    TensorStrides o_descale_strides;
    TensorStrides d_mean_score_strides;
  };
  float* mean_score;  ///< of each query, as lse; if Config::mean_score. Backward reads it
  TensorStrides mean_score_strides;
};

/// A tensor that a functor reads. Up to three leading strides in elements, the last one is 1. What an output functor reads at
/// places of o has those of batch entry, row and head, and behind them o's columns, if it has such. A tensor with a row for
/// each row of varlen k has the address of cu_seqlens_k as the second one.
struct FunctorTensor {
  const void* data;
  long long strides[3];
  int last_size;  ///< elements along the last dimension; at most 2^31 − 1, as `rows`
  int rows;       ///< along the one before it, else 1
};

inline constexpr int max_functor_tensors = 8;

/// Where sequences begin and end, known to the device alone; names and meaning are flash-attention's. Arrays are
/// null where a call has none; kernels of dense sequences read none of this.
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
  int num_splits;     ///< blocks that may share the keys of some queries, at most; 0: any number
  int zero_padding;   ///< whether rows of o and LSE that are no query's are written, too
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
  int batch_begin;   ///< first batch entry of this launch: a launch has room for so many
  int q_tile_begin;  ///< first query tile of this launch, for the same reason
  int heads_q;
  int heads_kv;
  int seqlen_q;   ///< of dense queries; else the most that a sequence may have
  int seqlen_kv;  ///< the same for keys
  float softmax_scale;
  FunctorTensor tensors[max_functor_tensors];
  SequenceParams sequences;
  DropoutParams dropout;  ///< of a spec with dropout
  union {
    DescaleParams descale;  ///< of a spec with narrow keys
    OutputParams outputs;   ///< of one whose calls write more than o and LSE, which has none
  };
};

}  // namespace jit
