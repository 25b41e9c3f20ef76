#include "useful_work.h"

#include <algorithm>

#include "generator/problem/host_functor.h"

namespace jit::tool {
namespace {

// Bounds the time to a fraction of a second.
constexpr std::int64_t max_pairs = 1 << 24;
constexpr std::int64_t min_queries = 8;

}  // namespace

std::optional<double> kept_share(const Problem& problem) {
  const Mask& mask = problem.spec.mask;
  if (!has_host_meaning(mask)) return std::nullopt;
  if (mask == Mask()) return 1.0;
  // Without tensors, batch entries are alike.
  const std::int64_t batches = mask.tensors().empty() ? 1 : problem.batch;
  const std::int64_t queries = std::min<std::int64_t>(
      problem.seqlen_q, std::max(min_queries, max_pairs / batches / problem.seqlen_kv));
  HostProblem on_host{.sizes = extents(problem)};
  for (const auto& [name, array] : problem.tensors)
    on_host.tensors[name] = {.dtype = array.dtype, .shape = array.shape, .data = array.bytes.data()};
  const HostKeep keep = host_keep(mask, on_host);
  std::int64_t kept = 0;
  for (std::int64_t b = 0; b < batches; ++b) {
    for (std::int64_t i = 0; i < queries; ++i) {
      const std::int64_t q = (2 * i + 1) * problem.seqlen_q / (2 * queries);
      for (std::int64_t k = 0; k < problem.seqlen_kv; ++k)
        kept += keep({.b = b, .h = 0, .q = q, .k = k}) ? 1 : 0;
    }
  }
  return static_cast<double>(kept) / (static_cast<double>(batches * queries) * problem.seqlen_kv);
}

double useful_flops(const Problem& problem, double share) {
  const double pairs = share * problem.batch * problem.heads * static_cast<double>(problem.seqlen_q) *
                       static_cast<double>(problem.seqlen_kv);
  return 2.0 * pairs * (problem.spec.head_dim + problem.spec.value_head_dim());
}

}  // namespace jit::tool
