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

/// Rows of the boxes in which tensors are copied.
struct MapBoxes {
  int rows_q = 0;    ///< of q and o
  int rows_kv = 0;   ///< of k and v
  int rows_dkv = 0;  ///< of dk and dv
};
struct MappedTensors {
  TensorMap q, k, v, o;
};

/// The maps of a call's tensors, in boxes as wide as a panel of the tiles (CUDA driver API,
/// "cuTensorMapEncodeTiled"). Without keys those of k and v are q's: nothing is read by them. Throws Error
/// invalid_argument, naming the tensor, when can_map(params) is false; driver_error when the driver refuses.
MappedTensors map_tensors(const AttentionSpec& spec, const MapBoxes& boxes, const AttentionParams& params);

struct MappedGradients {
  TensorMap q, k, v, d_o, dk, dv;
};

/// The maps of what a backward kernel reads, and of dk and dv; do has the boxes of q. As `map_tensors`, and without queries
/// the maps of q and do are k's. Requires: there are keys or queries.
MappedGradients map_gradients(const AttentionSpec& spec, const MapBoxes& boxes, const AttentionParams& params,
                              const GradientParams& gradients);

/// The maps of a backward kernel for boxes that end with their sequence (templates/tiles/bounded_box.cuh); those of what is
/// not there are others. Requires: there are keys or queries.
MappedGradients map_bounded_gradients(const AttentionSpec& spec, const MapBoxes& boxes,
                                      const AttentionParams& params, const GradientParams& gradients);

/// Rows that come whole, and lie one behind another in shared memory.
struct MappedRows {
  const char* name;
  const void* data;
  TensorStrides strides;
  std::int64_t batch, seqlen, heads;
  int columns;  ///< of a row, at most 256
  int box_rows;
  DType dtype;
};
/// Whether there are rows that TMA can read: at multiples of 16 bytes, strides as above.
bool can_map(const MappedRows& rows);
/// Their map. Requires: can_map(rows). Throws Error driver_error when the driver refuses.
TensorMap map_rows(const MappedRows& rows);
/// The map of panels of such rows, of any number of columns, in their swizzle (templates/tiles/panel_tile.cuh).
TensorMap map_panels(const MappedRows& rows);

struct MappedKeys {
  TensorMap k, v;
};

/// Maps of any sequences: pages are batch entries, and all varlen sequences are one. `part` has the maps for boxes
/// that end with their sequence (templates/tiles/bounded_box.cuh). Errors are those of map_tensors.
struct BoundedTensors {
  MappedTensors whole, part;
};
BoundedTensors map_bounded_tensors(const AttentionSpec& spec, const MapBoxes& boxes,
                                   const AttentionParams& params);

/// The maps of k and v alone, of any sequences, in boxes of so many rows: (head_dim, seqlen, heads, batch), where pages
/// are batch entries, and all varlen sequences are one. Errors are those of map_tensors.
MappedKeys map_keys(const AttentionSpec& spec, int box_rows, const AttentionParams& params);

}  // namespace jit
