// What the kernel that makes a block mask is told at run time. Compiled by the host and by NVRTC.
#pragma once

#include "base/params.cuh"

namespace jit {

/// For each row of blocks, of which blocks of keys it has some: `counts` (batch, heads, rows), `indices` (batch, heads,
/// rows, capacity). Strides in elements; 0 where one stands for all.
struct BlockLists {
  const int* counts;  ///< null: there are none
  const int* indices;
  long long count_strides[3];
  long long index_strides[3];
  int capacity;
};

struct BlockMaskParams {
  unsigned* words;  ///< (batch, heads, block_rows, block_words), the last two dense
  long long batch_stride;
  long long head_stride;
  long long row_stride;
  int heads;    ///< of the table
  int heads_q;  ///< of the problem
  int block_rows;
  int block_words;
  int seqlen_q;  ///< the most that a sequence has
  int seqlen_kv;
  SequenceParams sequences;
  FunctorTensor tensors[max_functor_tensors];
  const unsigned char*
      map;  ///< (batch, heads, rows, columns): whether anything of a block may be seen; null: all may
  long long map_strides[4];
  BlockLists partial;
  BlockLists full;
};

}  // namespace jit
