#include <jit/workload.h>

#include <algorithm>

#include "generator/problem/arguments.h"
#include "generator/problem/functor_tensors.h"
#include "generator/problem/host_functor.h"

namespace jit {
namespace {

// Bounds the time to a fraction of a second.
constexpr std::int64_t max_pairs = 1 << 24;
constexpr std::int64_t min_queries = 8;

Extents extents_of(const AttentionSpec& spec, const AttentionShape& shape) {
  return extents_of(spec, ProblemShape{.batch = shape.batch,
                                       .heads_q = shape.heads_q,
                                       .seqlen_q = shape.seqlen_q,
                                       .seqlen_kv = shape.seqlen_kv});
}

TypicalTensor typical_of(const FunctorTensorRow& row, const Extents& sizes) {
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
    if (use.tensor.name == name && use.row != nullptr) return typical_of(*use.row, extents_of(spec, shape));
  }
  return {};
}

std::optional<double> kept_share(const AttentionSpec& spec, const AttentionShape& shape,
                                 const std::map<std::string, HostTensor, std::less<>>& tensors) {
  if (!has_host_meaning(spec.mask)) return {};
  if (spec.mask == Mask()) return 1.0;
  // Without tensors, batch entries are alike.
  const std::int64_t batches = spec.mask.tensors().empty() ? 1 : shape.batch;
  const std::int64_t queries =
      std::min(shape.seqlen_q, std::max(min_queries, max_pairs / batches / shape.seqlen_kv));
  const HostKeep keep = host_keep(spec.mask, {.sizes = extents_of(spec, shape), .tensors = tensors});
  std::int64_t kept = 0;
  for (std::int64_t b = 0; b < batches; ++b) {
    for (std::int64_t i = 0; i < queries; ++i) {
      const std::int64_t q = (2 * i + 1) * shape.seqlen_q / (2 * queries);
      for (std::int64_t k = 0; k < shape.seqlen_kv; ++k)
        kept += keep({.b = b, .h = 0, .q = q, .k = k}) ? 1 : 0;
    }
  }
  return static_cast<double>(kept) /
         (static_cast<double>(batches * queries) * static_cast<double>(shape.seqlen_kv));
}

}  // namespace jit
