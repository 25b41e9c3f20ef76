// Parameters of the kernel that makes a block mask. Compiled by the host and by NVRTC.
#pragma once

#include "base/params.cuh"

namespace jit {

/// For each row of blocks, of which blocks of keys it has some: so many `counts` (batch, heads, rows) of `indices` (batch,
/// heads, rows, capacity), or, one row behind another, those from `begins` (batch, heads, rows + 1) of the row to that of
/// the next. Strides in elements; 0 where one stands for all.
struct BlockLists {
  const int* counts;  ///< null: there are none, or `begins`
  const int* begins;
  const int* indices;
  long long count_strides[3];  ///< of either
  long long index_strides[3];  ///< all 0 with `begins`
  int capacity;                ///< of a row; with `begins`, of all rows together
};

/// The output of a launch.
enum class BlockMaskStep {
  classes,  ///< the bits of blocks
  lists,    ///< likewise, of blocks that are listed
  order,    ///< of rows, by these
  scores,   ///< places and bits of the scores of partial blocks, by these
};

inline constexpr int block_mask_threads = 512;
/// Rows that a thread block puts in order.
inline constexpr int ordered_rows = block_mask_threads / 2;

struct BlockMaskParams {
  unsigned* words;  ///< (batch, heads, block_rows, block_words), the last two dense
  long long batch_stride;
  long long head_stride;
  long long row_stride;
  int heads;    ///< of the table
  int heads_q;  ///< of the problem
  int block_rows;
  unsigned rows;    ///< of all batch entries and heads
  int block_words;  ///< of bits
  int cut_row;      ///< the last row where it has fewer queries than the others; else -1
  BlockMaskStep step;
  int* places;  ///< (batch, heads, block_rows, block_columns), the last one dense
  long long place_strides[3];
  int block_columns;
  unsigned* scores;  ///< (batch, heads, room, words of a block), the last one dense
  long long score_strides[3];
  int room;
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
