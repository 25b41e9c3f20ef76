#include "useful_work.h"

#include <algorithm>

#include "generator/problem/functor_node.h"

namespace jit::tool {
namespace {

// Bounds the time to a fraction of a second.
constexpr std::int64_t max_pairs = 1 << 24;
constexpr std::int64_t min_queries = 8;

bool contains_text(const MaskNode& node) {
  return node.kind == MaskKind::text || (node.a && contains_text(*node.a)) ||
         (node.b && contains_text(*node.b));
}

// The masks' meaning, said once more on the host; see templates/problem/masks.cuh.
class HostMask {
 public:
  explicit HostMask(const Problem& problem) : problem_(problem) {}

  bool keep(const MaskNode& node, std::int64_t b, std::int64_t q, std::int64_t k) const {
    const std::int64_t position =
        node.alignment == Alignment::bottom_right ? q + problem_.seqlen_kv - problem_.seqlen_q : q;
    switch (node.kind) {
      case MaskKind::causal:
        return k <= position;
      case MaskKind::sliding_window:
        return (node.left < 0 || k >= position - node.left) && (node.right < 0 || k <= position + node.right);
      case MaskKind::prefix:
        return k < node.length;
      case MaskKind::prefix_lengths:
        return k < element(prefix_lengths_tensor, b, 0);
      case MaskKind::document:
        return element(document_ids_q_tensor, b, q) == element(document_ids_kv_tensor, b, k);
      case MaskKind::conjunction:
        return keep(*node.a, b, q, k) && keep(*node.b, b, q, k);
      case MaskKind::disjunction:
        return keep(*node.a, b, q, k) || keep(*node.b, b, q, k);
      case MaskKind::negation:
        return !keep(*node.a, b, q, k);
      default:
        return true;
    }
  }

 private:
  // Of an int32 tensor (batch) or (batch or 1, seqlen).
  std::int32_t element(std::string_view name, std::int64_t b, std::int64_t i) const {
    const Array& array = problem_.tensors.at(std::string(name));
    const std::int64_t row = array.shape[0] == 1 ? 0 : b;
    const std::int64_t length = array.shape.size() == 1 ? 1 : array.shape[1];
    return array.as<std::int32_t>()[row * length + i];
  }

  const Problem& problem_;
};

}  // namespace

std::optional<double> kept_share(const Problem& problem) {
  const MaskNode& node = problem.spec.mask.node();
  if (contains_text(node)) return std::nullopt;
  if (node.kind == MaskKind::none) return 1.0;
  // Without tensors, batch entries are alike.
  const std::int64_t batches = problem.spec.mask.tensors().empty() ? 1 : problem.batch;
  const std::int64_t queries = std::min<std::int64_t>(
      problem.seqlen_q, std::max(min_queries, max_pairs / batches / problem.seqlen_kv));
  const HostMask mask(problem);
  std::int64_t kept = 0;
  for (std::int64_t b = 0; b < batches; ++b) {
    for (std::int64_t i = 0; i < queries; ++i) {
      const std::int64_t q = (2 * i + 1) * problem.seqlen_q / (2 * queries);
      for (std::int64_t k = 0; k < problem.seqlen_kv; ++k) kept += mask.keep(node, b, q, k) ? 1 : 0;
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
