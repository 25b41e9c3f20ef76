// Host references of masks and scores, in double precision and without tiles.
#pragma once

#include <functional>
#include <map>
#include <string>

#include <jit/mask.h>
#include <jit/score.h>

#include "generator/functors/functor_table.h"

namespace jit {

/// The problem for functors. Memory of the tensors must outlive derived functions.
struct HostProblem {
  Extents sizes;  ///< batch, heads and lengths
  std::map<std::string, HostTensor, std::less<>> tensors = {};
};

/// Whether a query sees a key.
using HostKeep = std::function<bool(const Place&)>;
/// The score that the softmax sees, from softmax_scale · q·k.
using HostApply = std::function<double(double score, const Place&)>;

/// The meaning of user texts, which the host cannot evaluate.
using TextKeep = std::function<HostKeep(const FunctorText&)>;
using TextApply = std::function<HostApply(const FunctorText&)>;

/// Throw Error invalid_argument if a tensor is missing. Require `of_text` if there are texts.
HostKeep host_keep(const Mask& mask, const HostProblem& problem, const TextKeep& of_text = nullptr);
HostApply host_apply(const Score& score, const HostProblem& problem, const TextApply& of_text = nullptr);

/// Whether the mask consists only of built-in ones.
bool has_host_meaning(const Mask& mask);

}  // namespace jit
