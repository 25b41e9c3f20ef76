// The tensors that the masks, scores and outputs of a spec read.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <jit/spec.h>

#include "generator/functors/functor_table.h"

namespace jit {

/// A tensor that must be given to each call.
struct FunctorTensorUse {
  FunctorTensorSpec tensor;
  const FunctorTensorRow* row = nullptr;  ///< what a built-in functor wants of it; null: any shape
  FunctorArguments arguments = {};        ///< of that functor
  bool is_dense = false;                  ///< a text reads it, through a pointer that tells of no strides
  bool has_gradient = false;              ///< a score reads it, and can be differentiated with respect to it
  std::string left_out_by = {};  ///< the text that reads it and gives a derivative that says nothing of it
  bool is_of_output = false;     ///< an output functor reads it, in rows as tensor.access says
};

/// Whether calls say where their queries or keys stand.
constexpr bool has_positions(const AttentionSpec& spec) { return spec.q_positions || spec.k_positions; }

/// Whether each query has a list of the keys that it sees.
constexpr bool has_lists(const AttentionSpec& spec) { return spec.list_block != 0; }

/// Whether a tensor of this name has lists, or their lengths.
bool is_of_lists(std::string_view name);

/// Whether tables of positions are read for a mask: it takes registers as masks that read tensors do.
bool asks_by_positions(const AttentionSpec& spec);

/// Whether a tensor of this name says where rows stand, or how long whole sequences are.
bool is_of_positions(std::string_view name);

/// Each name once, in the order of the kernel's parameters: tables of positions, lists of keys, then what the mask, the score
/// and the output read, then key_arrivals. Throw Error invalid_spec when two of one name differ in dtype, or in the sizes that follow from
/// parameters, or when the output is one of the two.
std::vector<FunctorTensorUse> functor_tensor_uses(const AttentionSpec& spec);
std::vector<FunctorTensorUse> functor_tensor_uses(const Mask& mask);
std::vector<FunctorTensorUse> functor_tensor_uses(const Score& score);

}  // namespace jit
