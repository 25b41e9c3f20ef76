#include <jit/workload.h>

#include "generator/functors/functor_tensors.h"
#include "generator/problem/arguments.h"

namespace jit {
namespace {

Extents extents_of(const AttentionSpec& spec, const AttentionShape& shape) {
  return extents_of(spec, ProblemShape{.batch = shape.batch,
                                       .heads_q = shape.heads_q,
                                       .seqlen_q = shape.seqlen_q,
                                       .seqlen_kv = shape.seqlen_kv});
}

TypicalTensor typical_of(const FunctorTensorUse& use, Extents sizes) {
  const FunctorTensorRow& row = *use.row;
  if (row.sizes != nullptr) sizes = row.sizes(sizes, use.arguments);
  TypicalTensor tensor;
  std::int64_t count = 1;
  for (const Dim& dim : row.dims) {
    if (dim.may_be_missing) continue;
    tensor.shape.push_back(dim.may_broadcast ? 1 : sizes.*dim.extent->size);
    count *= tensor.shape.back();
  }
  for (std::int64_t i = 0; i < count; ++i)
    tensor.elements.push_back(row.typical(sizes, i % tensor.shape.back()));
  return tensor;
}

}  // namespace

std::optional<TypicalTensor> typical_tensor(const AttentionSpec& spec, const AttentionShape& shape,
                                            std::string_view name) {
  for (const FunctorTensorUse& use : functor_tensor_uses(spec)) {
    if (use.tensor.name == name && use.row != nullptr) return typical_of(use, extents_of(spec, shape));
  }
  return {};
}

}  // namespace jit
