// Parameters of the kernel that begins a call of an exchange of keys. Compiled by the host and by NVRTC.
#pragma once

#include "mainloop/arrival_table.cuh"

namespace jit {

inline constexpr int max_key_exchange_ranks = 128;
/// Rows of a shard that a block copies. Pieces of shards are multiples of it, but the last one.
inline constexpr int exchange_block_rows = 16;

/// Bytes are multiples of 16.
struct KeyExchangeParams {
  const char* k;      ///< the rank's rows (batch, rows, heads_kv, head_dim)
  const char* v;      ///< the same of values
  char* whole;        ///< the half of the rank's buffer: (batch, seqlen), a row of k, then that of v
  void* table;        ///< of the rank: the header, then pieces, its own rows first, then words
  long long k_batch;  ///< bytes from one batch entry to the next
  long long v_batch;
  long long whole_batch;
  unsigned long long timeout;  ///< nanoseconds that kernels of this call wait
  unsigned* fault;             ///< as ArrivalHeader has it
  int key_bytes;               ///< of a row of k
  int value_bytes;             ///< of a row of v
  int rows;                    ///< of the shard
  int own_pieces;
  unsigned half;  ///< that the call uses
  int peers;      ///< other ranks
  unsigned*
      begun[max_key_exchange_ranks - 1];  ///< the word at each of them that tells of this rank's even calls
};

}  // namespace jit
