// The cost model of backward_wgmma.
#include <cmath>

#include "generator/functors/score_mask.h"
#include "generator/kernels/backward_wgmma/family.h"
#include "generator/kernels/one_pass.h"
#include "templates/base/element.cuh"

namespace jit {
namespace {

// Dense 16-bit flops per SM and clock (NVIDIA, "H100 Tensor Core GPU Architecture").
constexpr double flops_per_clock = 4096;
constexpr double step_clocks = 2000;        // of a step, in which no product runs (docs/records/notebook.md)
constexpr double step_clocks_beside = 900;  // likewise, with a consumer of dQ
constexpr double step_clocks_of_pair = 1200;  // likewise, in pairs of blocks that exchange dS
constexpr double block_clocks = 6000;         // loading keys, storing gradients
// Slowdown of steps by turns on an H200 (docs/records/notebook.md): with head dims above 64, and with smaller
// ones with and without a mask.
constexpr double with_turns = 1.07, with_turns_of_small = 1.10, with_more_turns_of_small = 1.15;
// Slowdown of a step by dropout: drawn by consumers (docs/records/notebook.md), or precomputed, an estimate.
constexpr double drawn_by_consumers = 1.25, dropped_by_bits = 1.08;
// Bytes per clock that the kernels around read and write, on the whole GPU.
constexpr double bytes_per_clock = 2000;

// Bytes of all kernels around, per query and head: rows of dO and O for delta, zeros, and rounding of sums.
// Savings of zeros are ignored where turns cost more (docs/records/notebook.md, varlen sequences), so that
// nondeterministic calls take no turns.
double bytes_around(const AttentionSpec& spec, const BackwardWgmma& config) {
  const double element = size_of(spec.dtype), sums = sizeof(float) * spec.head_dim;
  const double zeros = config.deterministic && is_plain(spec) ? 0 : sums,
               rounding = sums + element * spec.head_dim;
  return 2 * element * spec.value_head_dim() + zeros + rounding;
}

}  // namespace

double Family<BackwardWgmma>::cycles(const Case& problem, const ProblemShape& shape,
                                     const BackwardWgmma& config) {
  const auto& [spec, limits] = problem;
  const double d = padded_head_dim(spec.head_dim), dv = padded_head_dim(spec.value_head_dim());
  const double q = backward_wgmma::step_queries, own = backward_wgmma::own_keys(spec),
               kv = backward_wgmma::tile_kv(spec, config);
  const bool beside = backward_wgmma::has_query_consumer(spec) && !backward_wgmma::has_roles(spec);
  double step = 2 * q * own * (3 * d + 2 * dv) / flops_per_clock + (beside        ? step_clocks_beside
                                                                    : config.pair ? step_clocks_of_pair
                                                                                  : step_clocks);
  if (config.deterministic)
    step *= !beside ? with_turns : drops_keys(spec) ? with_turns_of_small : with_more_turns_of_small;
  if (spec.dropout) step *= config.dropout_mask_ahead ? dropped_by_bits : drawn_by_consumers;
  const double steps = std::ceil(static_cast<double>(shape.seqlen_q) / q) * spec.gqa_ratio;
  const int heads = shape.batch * shape.heads_q / spec.gqa_ratio;
  const int takers = limits.sm_count / backward_wgmma::blocks_per_tile(config);
  const int key_tiles = static_cast<int>(std::ceil(static_cast<double>(shape.seqlen_kv) / kv));
  const double tiles_of_block = config.deterministic && one_pass::shares_heads(spec)
                                    ? one_pass::head_shares(heads, key_tiles, takers, 1).rounds
                                    : std::ceil(static_cast<double>(heads) * key_tiles / takers);
  const double around = bytes_around(spec, config) * shape.batch * shape.heads_q * shape.seqlen_q;
  // Steps include fully masked tiles.
  const double drawing = config.dropout_mask_ahead ? drawing_clocks(shape, 1, limits.sm_count) : 0;
  return tiles_of_block * (steps * step + block_clocks) + around / bytes_per_clock + drawing;
}

}  // namespace jit
