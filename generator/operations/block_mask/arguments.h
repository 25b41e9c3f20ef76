// Converts the arguments of a block mask to the parameters of its kernels.
#pragma once

#include <array>

#include <jit/block_mask.h>

#include "templates/block_mask/params.cuh"

namespace jit {

/// Numbers of thread blocks of the launches; 0: nothing to write.
struct BlockMaskGrids {
  unsigned classes = 0;
  unsigned lists = 0;
  unsigned order = 0;
  unsigned scores = 0;

  bool operator==(const BlockMaskGrids&) const = default;
};

/// Checks `arguments` against `spec` and fills `params` for all launches. Throws Error invalid_argument,
/// whose field is the argument's name.
BlockMaskGrids fill_params(const BlockMaskSpec& spec, const BlockMaskArguments& arguments,
                           BlockMaskParams& params);

}  // namespace jit
