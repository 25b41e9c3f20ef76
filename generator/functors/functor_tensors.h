// The tensors that the masks, scores and outputs of a spec read.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <jit/spec.h>

#include "generator/functors/functor_table.h"

namespace jit {

/// A tensor argument of each call.
struct FunctorTensorUse {
  FunctorTensorSpec tensor;
  const FunctorTensorRow* row = nullptr;  ///< requirements of a built-in functor; null: any shape
  FunctorArguments arguments = {};        ///< of the built-in functor
  bool is_dense = false;                  ///< a text reads it by a pointer, without strides
  bool has_gradient = false;              ///< a score reads it, and has a derivative with respect to it
  std::string left_out_by = {};  ///< the text that reads it and whose derivative does not cover its elements
  bool is_of_output = false;     ///< an output functor reads it, by rows as in tensor.access
};

/// Whether calls give positions of queries or keys.
constexpr bool has_positions(const AttentionSpec& spec) { return spec.q_positions || spec.k_positions; }

/// Whether each query has a list of visible keys.
constexpr bool has_lists(const AttentionSpec& spec) { return spec.list_block != 0; }

/// Whether a tensor of this name is a list of keys, or its length.
bool is_of_lists(std::string_view name);

/// Whether a mask uses position tables, which takes registers as tensors of masks do.
bool asks_by_positions(const AttentionSpec& spec);

/// Whether a tensor of this name has positions, or lengths of whole sequences.
bool is_of_positions(std::string_view name);

/// The tensors of a spec, each name once, in the order of kernel parameters: position tables, lists of keys,
/// tensors of the mask, the score and the output, then key_arrivals. Throws Error invalid_spec if equal names
/// differ in dtype or in sizes that depend on parameters, or one is the output's.
std::vector<FunctorTensorUse> functor_tensor_uses(const AttentionSpec& spec);
std::vector<FunctorTensorUse> functor_tensor_uses(const Mask& mask);
std::vector<FunctorTensorUse> functor_tensor_uses(const Score& score);

}  // namespace jit
