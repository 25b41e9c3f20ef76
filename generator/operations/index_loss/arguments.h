// Converts the tensors of a call of an indexer's loss to the parameters of its kernel.
#pragma once

#include <cstddef>
#include <cstdint>

#include <jit/index_loss.h>

#include "templates/index_loss/params.cuh"
#include "templates/transpose_lists/params.cuh"

namespace jit {

/// The work of a call, whose tokens take turns with the workspace.
struct IndexLossWork {
  std::int64_t tokens = 0;
  std::int64_t at_once = 0;  ///< per launch
  bool has_loss = false;
  bool has_gradients = false;
  std::size_t bytes = 0;  ///< of workspace
};

/// Checks `arguments` against `spec` and fills `params`, except for workspace. Throws Error invalid_argument,
/// whose field is the argument's name.
IndexLossWork fill_params(const IndexLossSpec& spec, const IndexLossArguments& arguments,
                          IndexLossParams& params);

/// Distributes `work.bytes` of memory to `params` and `transpose`, which also gets the lists' sizes.
void place_memory(const IndexLossSpec& spec, const IndexLossWork& work, std::byte* memory,
                  IndexLossParams& params, TransposeListsParams& transpose);

}  // namespace jit
