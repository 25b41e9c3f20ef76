#include "generator/functors/tile_classes.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include <fmt/format.h>
#include <jit/error.h>

#include "generator/functors/functor_node.h"
#include "generator/functors/interval_meaning.h"
#include "generator/functors/score_mask.h"

namespace jit {
namespace {

/// The problem, batch entry and head of a tile.
struct Scene {
  const HostProblem& problem;
  std::int64_t batch;
  std::int64_t head;
};

TileClass class_of(bool is_certain, bool is_possible) {
  return is_certain ? TileClass::full : is_possible ? TileClass::partial : TileClass::empty;
}

// Exact classes of a mask with a host reference: evaluates scores until both outcomes occur.
ClassOfTile exact_classes(HostKeep keep, const Scene& scene) {
  return [keep = std::move(keep), b = scene.batch, h = scene.head](const TileBounds& tile) {
    bool all = true, some = false;
    for (std::int64_t q = tile.q_begin; q < tile.q_end; ++q) {
      for (std::int64_t k = tile.k_begin; k < tile.k_end; ++k) {
        const bool kept = keep({.b = b, .h = h, .q = q, .k = k});
        all &= kept, some |= kept;
        if (some && !all) return TileClass::partial;
      }
    }
    return class_of(all, some);
  };
}

// Element `index` of a tensor as a text reads it by a pointer; unknown outside of the tensor.
double element(const HostTensor& tensor, std::int64_t index) {
  std::int64_t count = 1;
  for (const std::int64_t size : tensor.shape) count *= size;
  if (index < 0 || index >= count) return std::numeric_limits<double>::quiet_NaN();
  return HostTensor{.dtype = tensor.dtype, .shape = {&count, 1}, .data = tensor.data}.at({index});
}

// Classes by a condition on positions and tensors; `whose` names the text.
ClassOfTile classes_of(const TextMeaning& meaning, const std::vector<FunctorTensorSpec>& read,
                       const std::string& whose, const Scene& scene) {
  std::vector<HostTensor> tensors;
  for (const FunctorTensorSpec& tensor : read) {
    const auto given = scene.problem.tensors.find(tensor.name);
    if (given == scene.problem.tensors.end())
      throw Error(ErrorCode::invalid_argument, "validate", tensor.name,
                  fmt::format("tensor {} is not given, and the {} reads it", tensor.name, whose));
    tensors.push_back(given->second);
  }
  const auto exact = [](std::int64_t number) { return Interval<int>(static_cast<int>(number)); };
  const auto between = [](std::int64_t begin, std::int64_t end) {
    return Interval<int>(static_cast<int>(begin), static_cast<int>(end - 1));
  };
  const Extents& sizes = scene.problem.sizes;
  const TextInputs inputs = {exact(0),
                             exact(0),
                             exact(scene.batch),
                             exact(scene.head),
                             exact(sizes.heads_q),
                             exact(sizes.seqlen_q),
                             exact(sizes.seqlen_kv)};
  return [meaning, tensors = std::move(tensors), inputs, between](const TileBounds& tile) {
    TextInputs bounds = inputs;
    bounds[static_cast<std::size_t>(TextInput::q)] = between(tile.q_begin, tile.q_end);
    bounds[static_cast<std::size_t>(TextInput::k)] = between(tile.k_begin, tile.k_end);
    const Interval<bool> known = kept(meaning, bounds, [&](int tensor, std::int64_t index) {
      return element(tensors[static_cast<std::size_t>(tensor)], index);
    });
    return class_of(known.low, known.high);
  };
}

ClassOfTile classes_of(const MaskNode& node, const Scene& scene);

ClassOfTile block_classes(const MaskNode& node, const Scene& scene) {
  const auto given = scene.problem.tensors.find("block_mask");
  if (given == scene.problem.tensors.end())
    throw Error(ErrorCode::invalid_argument, "validate", "block_mask",
                "tensor block_mask is not given, and the mask reads it");
  const TileClass of_blocks = node.row->knows_scores ? TileClass::partial : TileClass::full;
  const ClassOfTile within = node.a && !node.row->knows_scores ? classes_of(*node.a, scene)
                                                               : [=](const TileBounds&) { return of_blocks; };
  return
      [=, table = given->second, b = scene.batch, h = scene.head, block_q = std::get<int>(node.arguments[0]),
       block_kv = std::get<int>(node.arguments[1])](const TileBounds& tile) {
        bool is_seen = false, is_covered = true, is_full = true;
        for (std::int64_t q = tile.q_begin / block_q; q <= (tile.q_end - 1) / block_q; ++q) {
          for (std::int64_t k = tile.k_begin / block_kv; k <= (tile.k_end - 1) / block_kv; ++k) {
            const bool seen = block_bit(table, {b, h, q, k}, 0);
            is_seen |= seen;
            is_covered &= seen;
            is_full &= seen && block_bit(table, {b, h, q, k}, 1);
          }
        }
        if (!is_seen) return TileClass::empty;
        if (is_full) return TileClass::full;
        const TileClass kind = within(tile);
        return kind == TileClass::full && !is_covered ? TileClass::partial : kind;
      };
}

ClassOfTile text_classes(const FunctorText& text, const Scene& scene) {
  const auto meaning = mask_meaning(text);
  if (!text.classify.empty() || std::holds_alternative<NotFollowed>(meaning))
    return [](const TileBounds&) { return TileClass::partial; };
  return classes_of(std::get<TextMeaning>(meaning), text.tensors, fmt::format("mask '{}'", text.name), scene);
}

ClassOfTile both(ClassOfTile a, ClassOfTile b) {
  return [a = std::move(a), b = std::move(b)](const TileBounds& tile) {
    // Enumerators are ordered by how much is kept.
    return std::min(a(tile), b(tile));
  };
}

ClassOfTile classes_of(const MaskNode& node, const Scene& scene) {
  if (node.text) return text_classes(*node.text, scene);
  if (node.row && node.row->functor.has_within) return block_classes(node, scene);
  if (node.row) {
    const Mask mask = MaskAccess::make(std::make_shared<const MaskNode>(node));
    return exact_classes(host_keep(mask, scene.problem), scene);
  }
  ClassOfTile a = classes_of(*node.a, scene);
  if (node.combination == MaskOperator::negation) {
    return [a = std::move(a)](const TileBounds& tile) {
      const TileClass kind = a(tile);
      return class_of(kind == TileClass::empty, kind != TileClass::full);
    };
  }
  ClassOfTile b = classes_of(*node.b, scene);
  if (node.combination == MaskOperator::conjunction) return both(std::move(a), std::move(b));
  return [a = std::move(a), b = std::move(b)](const TileBounds& tile) { return std::max(a(tile), b(tile)); };
}

}  // namespace

ClassOfTile class_of_tiles(const AttentionSpec& spec, const HostProblem& problem, std::int64_t batch,
                           std::int64_t head) {
  const Scene scene{problem, batch, head};
  ClassOfTile by_mask = classes_of(node_of(spec.mask), scene);
  const ScoreMask* const score = score_mask(spec.score);
  if (score == nullptr) return by_mask;
  return both(std::move(by_mask), classes_of(score->kept, score->tensors, "score", scene));
}

}  // namespace jit
