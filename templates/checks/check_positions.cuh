// Checks tables of positions, a batch entry a thread: attention kernels clamp what they read and report nothing.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "problem/entry_sequences.cuh"
#include "problem/positions.cuh"
#include "problem/variable_sequences.cuh"

namespace jit {

/// A table of one side.
struct CheckedTable {
  const FunctorTensor& tensor;
  SequenceArrayId id;
  int rows;    ///< of the entry
  int length;  ///< of the whole sequence
};

/// Records the first element that is none that it may be; index: element of the entry.
JIT_DEVICE void check_table(const CheckedTable& table, int batch, ArrayFault* fault) {
  constexpr int largest = 0x7fffffff;
  const int* const words = static_cast<const int*>(table.tensor.data) + batch * table.tensor.strides[0];
  long long behind = 0;  // the last position
  if (table.rows == 0) return;
#pragma unroll 1
  for (int i = 0; i < table.tensor.rows; ++i) {
    const int row = words[i * 4], position = words[i * 4 + 1], run = words[i * 4 + 2],
              stride = words[i * 4 + 3];
    const auto expect = [&](int word, int value, long long least, long long most) {
      if (value >= least && value <= most) return true;
      record_fault(
          fault, {table.id, batch, i * 4 + word, value, static_cast<int>(minimum<long long>(least, largest)),
                  static_cast<int>(minimum<long long>(most, largest))});
      return false;
    };
    // Pieces from the end of the rows on are not used.
    if (!expect(0, row, i == 0 ? 0 : words[i * 4 - 4] + 1ll, i == 0 ? 0 : largest)) return;
    if (row >= table.rows) return;
    if (!expect(1, position, behind, table.length - 1) || !expect(2, run, 1, largest) ||
        !expect(3, stride, run, largest))
      return;
    const int end = i + 1 < table.tensor.rows ? minimum(words[i * 4 + 4], table.rows) : table.rows;
    const long long last = end - 1ll - row;
    if (last < 0) continue;  // the next piece says so
    behind = position + last / run * stride + last % run + 1;
    if (behind > table.length) {
      record_fault(fault, {table.id, batch, i * 4 + 1, position, 0,
                           static_cast<int>(maximum<long long>(-1, table.length - (behind - position)))});
      return;
    }
  }
}

template <class Config, class Places>
struct PositionCheck;
template <class Config, int slot_q, int slot_k, int slot_lengths>
struct PositionCheck<Config, Positions<slot_q, slot_k, slot_lengths>> {
  static JIT_DEVICE void run(const AttentionParams& params, ArrayFault* fault) {
    const int batch = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (batch >= params.batch) return;
    const AllSequences<Config> sequences(params);
    const FunctorTensor& lengths = params.tensors[slot_lengths];
    const int* const of_entry = static_cast<const int*>(lengths.data) + batch * lengths.strides[0];
    const int most[2] = {lengths.last_size, lengths.rows};
    for (int i = 0; i < 2; ++i) {
      if (of_entry[i] < 0 || of_entry[i] > most[i])
        record_fault(fault, {SequenceArrayId::global_seqlens, batch, i, of_entry[i], 0, most[i]});
    }
    if constexpr (slot_q != no_table)
      check_table(
          {params.tensors[slot_q], SequenceArrayId::q_positions, sequences.q(batch).length, of_entry[0]},
          batch, fault);
    if constexpr (slot_k != no_table)
      check_table(
          {params.tensors[slot_k], SequenceArrayId::k_positions, sequences.kv(batch).length, of_entry[1]},
          batch, fault);
  }
};

/// By a grid with a thread for each batch entry.
template <class Config>
JIT_DEVICE void check_positions(const AttentionParams& params, ArrayFault* fault) {
  PositionCheck<Config, typename Config::Places>::run(params, fault);
}

}  // namespace jit
