// Masks and scores on the host: what kernels compute, in double precision and without tiles.
#pragma once

#include <functional>
#include <map>
#include <string>

#include <jit/mask.h>
#include <jit/score.h>

#include "generator/functors/functor_table.h"

namespace jit {

/// The problem as functors see it. The tensors' memory must live as long as what is made of this.
struct HostProblem {
  Extents sizes;  ///< batch, heads and lengths
  std::map<std::string, HostTensor, std::less<>> tensors = {};
};

/// Whether a query sees a key.
using HostKeep = std::function<bool(const Place&)>;
/// The score that the softmax sees, from softmax_scale · q·k.
using HostApply = std::function<double(double score, const Place&)>;

/// The meaning of a user's texts, which the host cannot tell.
using TextKeep = std::function<HostKeep(const FunctorText&)>;
using TextApply = std::function<HostApply(const FunctorText&)>;

/// Throws Error invalid_argument when a tensor is missing. Requires: `of_text` where there are texts.
HostKeep host_keep(const Mask& mask, const HostProblem& problem, const TextKeep& of_text = nullptr);
HostApply host_apply(const Score& score, const HostProblem& problem, const TextApply& of_text = nullptr);

/// Whether the mask is made of built-in ones alone.
bool has_host_meaning(const Mask& mask);

}  // namespace jit
