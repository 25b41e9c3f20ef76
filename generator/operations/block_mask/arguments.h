// From the arguments of a block mask to the parameters of its kernel.
#pragma once

#include <array>

#include <jit/block_mask.h>

#include "templates/block_mask/params.cuh"

namespace jit {

/// Thread blocks of the two launches; 0: there is nothing to write.
struct BlockMaskGrids {
  unsigned bits;
  unsigned order;  ///< of rows

  bool operator==(const BlockMaskGrids&) const = default;
};

/// Checks `arguments` against `spec` and fills `params`, of the launch for bits. Throws Error invalid_argument, whose
/// field is the argument's name.
BlockMaskGrids fill_params(const BlockMaskSpec& spec, const BlockMaskArguments& arguments,
                           BlockMaskParams& params);

}  // namespace jit
