// The second parameter of the kernel that upcasts keys and values, beside AttentionParams. Host and NVRTC compile this file.
#pragma once

#include "base/params.cuh"

namespace jit {

/// Where keys and values of 16 bits go: (entries, rows, heads_kv, head_dim) by their strides. An entry is a batch entry,
/// whose rows in pages come side by side; all varlen rows are one.
struct UpcastKeys {
  void* k;
  void* v;
  TensorStrides k_strides;
  TensorStrides v_strides;
  int chunks;  ///< of rows that an entry may have at most
  int rows;    ///< that an entry may have
};

/// Rows of one head that a block upcasts, of k and of v, and the threads that do.
inline constexpr int rows_at_once = 128, upcasting_threads = 256;

}  // namespace jit
