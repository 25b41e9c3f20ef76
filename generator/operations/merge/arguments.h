// Converts the tensors of a merge to the parameters of its kernel.
#pragma once

#include <jit/merge.h>

#include "templates/merge/params.cuh"

namespace jit {

/// Checks `arguments` against `spec` and fills `params`. Returns false if there is nothing to write.
/// Allocates only to throw Error invalid_argument, whose field is the argument's name.
bool fill_params(const MergeSpec& spec, const MergeArguments& arguments,
                 MergeParams<max_merge_views>& params);

/// Fills the parameters of a kernel for two states from those of any; false where rows of o do not lie at equal
/// distances, or those of the states at different ones.
bool fill_pair(const MergeSpec& spec, const MergeParams<max_merge_views>& params, MergePairParams& pair);

}  // namespace jit
