// Words in shared memory.
#pragma once

#include "base/prelude.cuh"

namespace jit {

JIT_DEVICE void store_shared(unsigned address, int value) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}
JIT_DEVICE int load_shared(unsigned address) {
  int value;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
  return value;
}
/// Loads a word if `condition`, else returns `other`. Branch-free, so that other code can be interleaved.
JIT_DEVICE int load_shared_if(bool condition, unsigned address, int other) {
  int value;
  asm volatile(
      "{.reg .pred is_read;\n"
      "setp.ne.u32 is_read, %2, 0;\n"
      "mov.b32 %0, %3;\n"
      "@is_read ld.shared.b32 %0, [%1];\n"
      "}"
      : "=&r"(value)
      : "r"(address), "r"(static_cast<unsigned>(condition)), "r"(other)
      : "memory");
  return value;
}
/// `address` is a multiple of 8.
JIT_DEVICE void load_shared(int (&values)[2], unsigned address) {
  asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];"
               : "=r"(values[0]), "=r"(values[1])
               : "r"(address)
               : "memory");
}
JIT_DEVICE void store_shared(unsigned address, unsigned first, unsigned second) {
  asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(address), "r"(first), "r"(second) : "memory");
}

/// Stores four words; `address` is a multiple of 16.
template <class Word>
JIT_DEVICE void store_shared(unsigned address, const Word (&values)[4]) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(values[0]), "r"(values[1]),
               "r"(values[2]), "r"(values[3])
               : "memory");
}
template <class Word>
JIT_DEVICE void load_shared(Word (&values)[4], unsigned address) {
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(values[0]), "=r"(values[1]), "=r"(values[2]), "=r"(values[3])
               : "r"(address)
               : "memory");
}

/// Stores four floats; `address` is a multiple of 16.
JIT_DEVICE void store_shared(unsigned address, const float (&values)[4]) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(values[0]), "f"(values[1]),
               "f"(values[2]), "f"(values[3])
               : "memory");
}

/// Loads four floats; `address` is a multiple of 16.
JIT_DEVICE void load_shared(float (&values)[4], unsigned address) {
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(values[0]), "=f"(values[1]), "=f"(values[2]), "=f"(values[3])
               : "r"(address)
               : "memory");
}

/// Sets 16 bytes to 0.
JIT_DEVICE void clear_shared_chunk(unsigned address) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(address), "r"(0) : "memory");
}

/// Clears the first `chunks` chunks of rows of a tile of values from row `first` on, which are not the sequence's: 0 ·
/// NaN would be NaN. By `threads` threads, of which this is `thread`; a barrier must follow.
template <class Tile, int chunks, int threads>
JIT_DEVICE void clear_rows(unsigned tile, int first, int thread) {
#pragma unroll 1
  for (int i = first * chunks + thread; i < Tile::rows * chunks; i += threads)
    clear_shared_chunk(Tile::chunk_address(tile, i / chunks, i % chunks));
}

/// Returns the value of lane 0, so that the compiler knows that it is uniform in the warp.
JIT_DEVICE unsigned uniform(unsigned value) { return __shfl_sync(full_warp, value, 0); }
JIT_DEVICE int uniform(int value) { return __shfl_sync(full_warp, value, 0); }

/// Loads a word that is overwritten after the warp has arrived at a barrier. Lane 0, which also arrives, reads for all
/// lanes, so that its program order suffices.
JIT_DEVICE int load_shared_by_warp(unsigned address) {
  int value = 0;
  if (lane_id() == 0) value = load_shared(address);
  return uniform(value);
}

}  // namespace jit
