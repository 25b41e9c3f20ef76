// Converts the tensors of a call of list gradients to the parameters of its kernels.
#pragma once

#include <cstddef>
#include <cstdint>

#include <jit/list_gradients.h>

#include "templates/list_gradients/params.cuh"
#include "templates/transpose_lists/params.cuh"

namespace jit {

/// The workspace of a call, and how many of its lists a launch processes.
struct ListGradientsWork {
  std::int64_t lists = 0;    ///< in the call
  std::int64_t at_once = 0;  ///< per launch
  std::int64_t entries = 0;
  std::int64_t block_limit = 0;
  std::size_t bytes = 0;
};

/// Checks `arguments` against `spec` and fills `params`, except for workspace. Throws Error invalid_argument,
/// whose field is the argument's name.
ListGradientsWork fill_params(const ListGradientsSpec& spec, const BackwardArguments& arguments,
                              ListGradientsParams& params);

/// Distributes `work.bytes` of memory to `params` and `transpose`, which also gets the blocks of lists.
void place_memory(const ListGradientsSpec& spec, const ListGradientsWork& work, std::byte* memory,
                  ListGradientsParams& params, TransposeListsParams& transpose);

}  // namespace jit
