// Masks and scores of random problems, and texts whose meaning on the host is known.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <jit/host_tensor.h>
#include <jit/spec.h>

#include "generator/tensors/dims.h"
#include "tests/support/attention_problem.h"

namespace jit::reference {

/// A dense tensor that a functor reads. Dimensions of size 1 broadcast.
struct FunctorData {
  DType dtype = DType::fp32;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;

  jit::HostTensor view() const { return {.dtype = dtype, .shape = shape, .data = bytes.data()}; }
  double at(std::initializer_list<std::int64_t> index) const { return view().at(index); }
};

/// The problem as functors see it: lengths are those of whole sequences.
struct FunctorProblem {
  int batch = 1;
  int heads_q = 1;
  int seqlen_q = 1;
  int seqlen_kv = 1;
  std::map<std::string, FunctorData> tensors = {};
  /// Where the rows of each batch entry stand, with spec.q_positions and spec.k_positions; else empty.
  std::vector<std::vector<int>> query_positions = {}, key_positions = {};

  int query(int b, int q) const { return position(query_positions, b, q); }
  int key(int b, int k) const { return position(key_positions, b, k); }

  Extents extents() const;

 private:
  static int position(const std::vector<std::vector<int>>& positions, int b, int row) {
    return positions.empty() ? row : positions[static_cast<std::size_t>(b)][static_cast<std::size_t>(row)];
  }
};

/// A text functor with its meaning on the host.
struct TextMask {
  FunctorText text;
  std::function<bool(const FunctorProblem&, int b, int h, int q, int k)> keep;
};
struct TextScore {
  FunctorText text;
  std::function<double(const FunctorProblem&, double score, int b, int h, int q, int k)> apply;
};
const std::vector<TextMask>& text_masks();
const std::vector<TextScore>& text_scores();

/// The functors of all entries above, as parse_mask and parse_score want them.
std::vector<FunctorText> mask_texts();
std::vector<FunctorText> score_texts();

/// Text functors must be among those above. Empty for "none".
Keep host_mask(const Mask& mask, std::shared_ptr<const FunctorProblem> problem);
ScoreFunction host_score(const Score& score, std::shared_ptr<const FunctorProblem> problem);

using Random = std::mt19937_64;
/// A whole number from `low` to `high`.
int draw(Random& random, int low, int high);

/// Random contents for every tensor that `spec` reads, among them broadcast shapes. Those that texts read have the
/// shape that `shapes` gives them, or (seqlen_kv).
FunctorProblem random_functor_problem(const AttentionSpec& spec, int batch, int heads_q, int seqlen_q,
                                      int seqlen_kv, Random& random,
                                      const std::map<std::string, std::vector<std::int64_t>>& shapes = {});

/// A random expression over all kinds of masks, or scores, none included.
Mask random_mask(Random& random, int depth = 2);
Score random_score(Random& random);

}  // namespace jit::reference
