// Dropout of a part of a sequence: a score is kept as in the whole sequence, on whichever device it is computed.
#pragma once

#include "base/params.cuh"
#include "base/philox.cuh"
#include "base/prelude.cuh"
#include "problem/functor.cuh"
#include "problem/positions.cuh"
#include "steps/dropout_counter.cuh"

namespace jit {

/// Random numbers by the positions of queries and keys.
template <class Places>
struct PositionedCounter : DropoutCounter {
  Places places;

  JIT_DEVICE PositionedCounter(const DropoutSeed& seed, int heads_q, int batch, int head,
                               const FunctorTensor* tensors)
      : DropoutCounter(seed, heads_q, batch, head),
        places(BlockContext{batch, head, heads_q, 0, 0, 0, tensors}) {}

  /// The 16 bytes of `lane` for a group. If its positions are those of one group of the whole sequence, one draw
  /// suffices; else each byte is drawn by itself, which takes 16 times as long.
  JIT_DEVICE PhiloxWords draw(int q, int k, int lane) const {
    const int query = q - q % dropout_group_queries, key = k - k % dropout_group_keys;
    const PositionRun queries = places.q.stretch_of(query), keys = places.k.stretch_of(key);
    const bool is_in_stretch =
        queries.end - query >= dropout_group_queries && keys.end - key >= dropout_group_keys;
    const bool has_aligned_keys = keys.shift % dropout_group_keys == 0;
    // mutate: GroupsThatAreNone
    const bool is_aligned = has_aligned_keys && queries.shift % dropout_group_queries == 0;
    if (is_in_stretch && is_aligned)
      return DropoutCounter::draw(query + queries.shift, key + keys.shift, lane);
    PhiloxWords result;
    LastStretches last;
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      unsigned word = 0;
#pragma unroll 1
      for (int i = 0; i < 4; ++i) {
        const int own_query = query + lane / 4 + i / 2 * 8, own_key = key + lane % 4 * 2 + i % 2 + w * 8;
        // mutate: DrawnForTheFirstRow
        word |= byte(places.query(own_query, last), places.key(own_key, last)) << (8 * i);
      }
      result.words[w] = word;
    }
    return result;
  }

 private:
  // The byte of one score of the whole.
  JIT_DEVICE unsigned byte(int query, int key) const {
    const PhiloxWords drawn = DropoutCounter::draw(query, key, query % 8 * 4 + key % 8 / 2);
    const int w = key % dropout_group_keys / 8;
    const unsigned word = w < 2    ? (w == 0 ? drawn.words[0] : drawn.words[1])
                          : w == 2 ? drawn.words[2]
                                   : drawn.words[3];
    return word >> (8 * (query % dropout_group_queries / 8 * 2 + key % 2)) & 0xff;
  }
};

}  // namespace jit
