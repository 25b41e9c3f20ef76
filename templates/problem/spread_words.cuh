// A value of a warp, spread over its lanes: a register for each lane, however many words the value has.
#pragma once

#include "base/prelude.cuh"
#include "ptx/math.cuh"

namespace jit {

/// Holds a value that all lanes of a warp have, word i in lane i. By whole warps.
template <class Value>
class SpreadWords {
  static constexpr int count = sizeof(Value) / sizeof(int);
  static_assert(sizeof(Value) % sizeof(int) == 0 && count <= warp_size);
  struct Words {
    int of[count];
  };

 public:
  SpreadWords() = default;
  JIT_DEVICE explicit SpreadWords(const Value& value) : own_(0) {
    const Words words = __builtin_bit_cast(Words, value);
#pragma unroll
    for (int i = 0; i < count; ++i) own_ = lane_id() == i ? words.of[i] : own_;
  }
  JIT_DEVICE Value gathered() const {
    Words words;
#pragma unroll
    for (int i = 0; i < count; ++i)
      words.of[i] = __shfl_sync(full_warp, own_, i);  // mutate: WordsOfOtherLanes
    return __builtin_bit_cast(Value, words);
  }

 private:
  int own_;
};

}  // namespace jit
