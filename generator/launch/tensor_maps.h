// Tensor maps of a call.
#pragma once

#include <array>
#include <cstdint>

#include <jit/spec.h>

#include "generator/problem/tma_operands.h"
#include "templates/base/gradient_params.cuh"
#include "templates/base/params.cuh"
#include "templates/base/tensor_strides.cuh"

namespace jit {

/// Rows of TMA boxes.
struct MapBoxes {
  int rows_q = 0;    ///< of q and o
  int rows_kv = 0;   ///< of k and v
  int rows_dkv = 0;  ///< of dk and dv
};
struct MappedTensors {
  TensorMap q, k, v, o;
};

/// The maps of a call's tensors, with boxes one panel wide (CUDA driver API, "cuTensorMapEncodeTiled").
/// Without keys, the unused maps of k and v are q's. Throws Error invalid_argument, naming the tensor, if
/// can_map(params) is false; driver_error if the driver rejects a map.
MappedTensors map_tensors(const AttentionSpec& spec, const MapBoxes& boxes, const AttentionParams& params);

struct MappedGradients {
  TensorMap q, k, v, d_o, dk, dv;
};

/// The maps of a backward kernel's inputs, and of dk and dv; do has the boxes of q. Like `map_tensors`;
/// without queries, the unused maps of q and do are k's. Requires: there are keys or queries.
MappedGradients map_gradients(const AttentionSpec& spec, const MapBoxes& boxes, const AttentionParams& params,
                              const GradientParams& gradients);

/// The maps of a backward kernel for boxes clipped to their sequence (templates/tiles/bounded_box.cuh); maps
/// of absent tensors are replaced by existing ones. Requires: there are keys or queries.
MappedGradients map_bounded_gradients(const AttentionSpec& spec, const MapBoxes& boxes,
                                      const AttentionParams& params, const GradientParams& gradients);

/// Rows that one box copies whole, contiguous in shared memory.
struct MappedRows {
  const char* name;
  const void* data;
  TensorStrides strides;
  std::int64_t batch, seqlen, heads;
  int columns;  ///< per row, at most 256
  int box_rows;
  DType dtype;
};
/// Whether TMA can read the rows, if any: 16-byte alignment, strides as above.
bool can_map(const MappedRows& rows);
/// The map of the rows. Requires: can_map(rows). Throws Error driver_error if the driver rejects it.
TensorMap map_rows(const MappedRows& rows);
/// The map of panels of such rows, with any number of columns and the swizzle of
/// templates/tiles/panel_tile.cuh.
TensorMap map_panels(const MappedRows& rows);

struct MappedKeys {
  TensorMap k, v;
};

/// Maps of any kind of sequences: pages are batch entries, and varlen sequences are one. `part` has the maps
/// for boxes clipped to their sequence (templates/tiles/bounded_box.cuh). Throws the errors of map_tensors.
struct BoundedTensors {
  MappedTensors whole, part;
};
BoundedTensors map_bounded_tensors(const AttentionSpec& spec, const MapBoxes& boxes,
                                   const AttentionParams& params);

/// The maps of k and v of any kind of sequences, in boxes of `box_rows`: (head_dim, seqlen, heads, batch);
/// pages are batch entries, and varlen sequences are one. Throws the errors of map_tensors.
MappedKeys map_keys(const AttentionSpec& spec, int box_rows, const AttentionParams& params);

}  // namespace jit
