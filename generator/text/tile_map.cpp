#include <jit/tile_map.h>

#include <algorithm>
#include <functional>
#include <limits>

#include <fmt/format.h>
#include <jit/error.h>

#include "generator/problem/arguments.h"
#include "generator/problem/functor_node.h"
#include "generator/problem/host_functor.h"
#include "generator/text/interval_meaning.h"
#include "generator/text/unfollowed.h"

namespace jit {
namespace {

struct Bounds {
  std::int64_t q_begin, q_end, k_begin, k_end;
};

/// What a mask, or a part of one, makes of tiles.
using Classify = std::function<TileClass(const Bounds&)>;

/// What all parts are asked about.
struct Scene {
  HostProblem problem;
  TilePlace place;
};

TileClass class_of(bool is_certain, bool is_possible) {
  return is_certain ? TileClass::full : is_possible ? TileClass::partial : TileClass::empty;
}

// Of a mask whose meaning the host knows: score by score, until both are found.
Classify exact_classes(HostKeep keep, const TilePlace& place) {
  return [keep = std::move(keep), place](const Bounds& tile) {
    bool all = true, some = false;
    for (std::int64_t q = tile.q_begin; q < tile.q_end; ++q) {
      for (std::int64_t k = tile.k_begin; k < tile.k_end; ++k) {
        const bool kept = keep({.b = place.batch, .h = place.head, .q = q, .k = k});
        all &= kept, some |= kept;
        if (some && !all) return TileClass::partial;
      }
    }
    return class_of(all, some);
  };
}

// Element `index` of a tensor as a text sees it, behind a pointer; nothing is known of what lies outside.
double element(const HostTensor& tensor, std::int64_t index) {
  std::int64_t count = 1;
  for (const std::int64_t size : tensor.shape) count *= size;
  if (index < 0 || index >= count) return std::numeric_limits<double>::quiet_NaN();
  return HostTensor{.dtype = tensor.dtype, .shape = {&count, 1}, .data = tensor.data}.at({index});
}

Classify text_classes(const FunctorText& text, const Scene& scene) {
  const auto meaning = mask_meaning(text);
  if (!text.classify.empty() || std::holds_alternative<NotFollowed>(meaning))
    return [](const Bounds&) { return TileClass::partial; };
  std::vector<HostTensor> tensors;
  for (const FunctorTensorSpec& tensor : text.tensors) {
    const auto given = scene.problem.tensors.find(tensor.name);
    if (given == scene.problem.tensors.end())
      throw Error(ErrorCode::invalid_argument, "validate", tensor.name,
                  fmt::format("tensor {} is not given, and the mask '{}' reads it", tensor.name, text.name));
    tensors.push_back(given->second);
  }
  const auto exact = [](std::int64_t number) { return Interval<int>(static_cast<int>(number)); };
  const auto between = [](std::int64_t begin, std::int64_t end) {
    return Interval<int>(static_cast<int>(begin), static_cast<int>(end - 1));
  };
  const Extents& sizes = scene.problem.sizes;
  const TextInputs inputs = {exact(0),
                             exact(0),
                             exact(scene.place.batch),
                             exact(scene.place.head),
                             exact(sizes.heads_q),
                             exact(sizes.seqlen_q),
                             exact(sizes.seqlen_kv)};
  return [meaning = std::get<TextMeaning>(meaning), tensors = std::move(tensors), inputs,
          between](const Bounds& tile) {
    TextInputs bounds = inputs;
    bounds[static_cast<std::size_t>(TextInput::q)] = between(tile.q_begin, tile.q_end);
    bounds[static_cast<std::size_t>(TextInput::k)] = between(tile.k_begin, tile.k_end);
    const Interval<bool> known = kept(meaning, bounds, [&](int tensor, std::int64_t index) {
      return element(tensors[static_cast<std::size_t>(tensor)], index);
    });
    return class_of(known.low, known.high);
  };
}

Classify classes_of(const MaskNode& node, const Scene& scene) {
  if (node.text) return text_classes(*node.text, scene);
  if (node.row) {
    const Mask mask = MaskAccess::make(std::make_shared<const MaskNode>(node));
    return exact_classes(host_keep(mask, scene.problem), scene.place);
  }
  Classify a = classes_of(*node.a, scene);
  if (node.combination == MaskOperator::negation) {
    return [a = std::move(a)](const Bounds& tile) {
      const TileClass kind = a(tile);
      return class_of(kind == TileClass::empty, kind != TileClass::full);
    };
  }
  const bool is_and = node.combination == MaskOperator::conjunction;
  return [a = std::move(a), b = classes_of(*node.b, scene), is_and](const Bounds& tile) {
    // The enumerators are in the order of what is left.
    const TileClass x = a(tile), y = b(tile);
    return is_and ? std::min(x, y) : std::max(x, y);
  };
}

void check(const char* name, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value >= least && value <= most) return;
  throw Error(ErrorCode::invalid_argument, "validate", name,
              fmt::format("{} = {}; it must be from {} to {}", name, value, least, most));
}

}  // namespace

std::int64_t TileMap::count(TileClass kind) const { return std::count(classes.begin(), classes.end(), kind); }

double TileMap::computed_share() const {
  return 1 - static_cast<double>(count(TileClass::empty)) / static_cast<double>(classes.size());
}

TileMap tile_map(const AttentionSpec& spec, const AttentionShape& shape, const TilePlace& place,
                 const std::map<std::string, HostTensor, std::less<>>& tensors) {
  validate(spec);
  constexpr std::int64_t most_scores = 1 << 28, most_tiles = 1 << 22, most = 1 << 24;
  check("batch", shape.batch, 1, most);
  check("heads_q", shape.heads_q, 1, most);
  check("seqlen_q", shape.seqlen_q, 1, most);
  check("seqlen_kv", shape.seqlen_kv, 1, std::min(most, most_scores / shape.seqlen_q));
  check("place.batch", place.batch, 0, shape.batch - 1);
  check("place.head", place.head, 0, shape.heads_q - 1);
  check("place.tile_q", place.tile_q, 1, most);
  check("place.tile_kv", place.tile_kv, 1, most);
  TileMap map{.shape = shape,
              .place = place,
              .rows = (shape.seqlen_q + place.tile_q - 1) / place.tile_q,
              .columns = (shape.seqlen_kv + place.tile_kv - 1) / place.tile_kv,
              .classes = {},
              .notes = unfollowed_texts(spec.mask)};
  check("tiles", map.rows * map.columns, 1, most_tiles);
  const Extents sizes = extents_of(spec, ProblemShape{.batch = shape.batch,
                                                      .heads_q = shape.heads_q,
                                                      .seqlen_q = shape.seqlen_q,
                                                      .seqlen_kv = shape.seqlen_kv});
  const Classify classify =
      classes_of(node_of(spec.mask), {.problem = {.sizes = sizes, .tensors = tensors}, .place = place});
  for (std::int64_t q = 0; q < shape.seqlen_q; q += place.tile_q)
    for (std::int64_t k = 0; k < shape.seqlen_kv; k += place.tile_kv)
      map.classes.push_back(classify(
          {q, std::min(q + place.tile_q, shape.seqlen_q), k, std::min(k + place.tile_kv, shape.seqlen_kv)}));
  return map;
}

}  // namespace jit
