// What TMA is told of the tensors of a call.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include <jit/kernel_config.h>
#include <jit/spec.h>

#include "templates/base/params.cuh"
#include "templates/forward_wgmma/tensor_maps.cuh"

namespace jit {

/// Work tiles of one launch: positions in the list are 32-bit, and run past its end by up to two turns of the
/// grid.
inline constexpr std::int64_t max_work_tiles = std::numeric_limits<std::int32_t>::max() / 4;

/// Whether a kernel with TMA can serve the call: rows aligned to 16 bytes, every stride positive and below
/// 2^40 bytes where a dimension has more than one element, and no more than max_work_tiles heads · tiles of
/// queries. Otherwise mma_sync kernels compute it.
bool can_map(const AttentionParams& params);

/// The maps of q, k, v and o for a kernel of this config (CUDA driver API, "cuTensorMapEncodeTiled"). Throws
/// Error invalid_argument, naming the tensor, when can_map(params) is false; driver_error when the driver
/// refuses.
forward_wgmma::TensorMaps encode_tensor_maps(const AttentionSpec& spec, const KernelConfig& config,
                                             const AttentionParams& params);

}  // namespace jit
