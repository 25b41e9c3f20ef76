#include "generator/functors/host_functor.h"

#include <fmt/format.h>
#include <jit/error.h>

#include "generator/functors/functor_node.h"

namespace jit {
namespace {

const HostTensor& tensor_of(const HostProblem& problem, std::string_view name) {
  const auto found = problem.tensors.find(name);
  if (found != problem.tensors.end()) return found->second;
  throw Error(ErrorCode::invalid_argument, "validate", std::string(name),
              fmt::format("tensor {} is not given, and the spec reads it", name));
}

template <class Node>
HostFunctor functor_of(const Node& node, const HostProblem& problem) {
  HostFunctor functor{.sizes = problem.sizes, .arguments = node.arguments, .tensors = {}};
  for (const FunctorTensorRow& row : node.row->functor.tensors)
    functor.tensors.push_back(tensor_of(problem, row.name));
  return functor;
}

HostKeep keep_of(const MaskNode& node, const HostProblem& problem, const TextKeep& of_text) {
  if (node.text) return of_text(*node.text);
  if (node.row) {
    HostKeep of_row = [functor = functor_of(node, problem), keep = node.row->keep](const Place& at) {
      return keep(functor, at);
    };
    if (!node.a) return of_row;
    const auto decides = [functor = functor_of(node, problem), decides = node.row->decides](const Place& at) {
      return decides != nullptr && decides(functor, at);
    };
    return [of_row, decides, within = keep_of(*node.a, problem, of_text)](const Place& at) {
      return of_row(at) && (decides(at) || within(at));
    };
  }
  HostKeep a = keep_of(*node.a, problem, of_text);
  if (node.combination == MaskOperator::negation)
    return [a = std::move(a)](const Place& at) { return !a(at); };
  HostKeep b = keep_of(*node.b, problem, of_text);
  if (node.combination == MaskOperator::conjunction)
    return [a = std::move(a), b = std::move(b)](const Place& at) { return a(at) && b(at); };
  return [a = std::move(a), b = std::move(b)](const Place& at) { return a(at) || b(at); };
}

HostApply apply_of(const ScoreNode& node, const HostProblem& problem, const TextApply& of_text) {
  if (node.text) return of_text(*node.text);
  if (node.row) {
    return [functor = functor_of(node, problem), apply = node.row->apply](double score, const Place& at) {
      return apply(functor, score, at);
    };
  }
  return [first = apply_of(*node.a, problem, of_text), then = apply_of(*node.b, problem, of_text)](
             double score, const Place& at) { return then(first(score, at), at); };
}

bool has_text(const MaskNode& node) {
  return node.text || (node.a && has_text(*node.a)) || (node.b && has_text(*node.b));
}

}  // namespace

HostKeep host_keep(const Mask& mask, const HostProblem& problem, const TextKeep& of_text) {
  return keep_of(node_of(mask), problem, of_text);
}

HostApply host_apply(const Score& score, const HostProblem& problem, const TextApply& of_text) {
  return apply_of(node_of(score), problem, of_text);
}

bool has_host_meaning(const Mask& mask) { return !has_text(node_of(mask)); }

}  // namespace jit
