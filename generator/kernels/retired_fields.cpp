#include "generator/kernels/retired_fields.h"

#include <algorithm>
#include <array>

namespace jit {
namespace {

constexpr std::string_view mma_sync = "forward_mma_sync", wgmma = "forward_wgmma",
                           split_kv = "forward_split_kv", split_wgmma = "forward_split_wgmma",
                           cluster = "forward_split_cluster", mla = "forward_mla_wgmma",
                           backward = "backward_wgmma";
// Current behavior of families that sum keys in spans of split_keys.
constexpr std::string_view rescaled_now =
    "the output is rescaled at each new maximum with split_keys, and else where one makes that necessary";

constexpr std::array rows = {
    RetiredField{mma_sync, "swizzle", "chunks of tiles are always XORed with their row"},
    RetiredField{mma_sync, "ldmatrix_matrices", "an ldmatrix always loads 4 matrices of K and V"},
    RetiredField{cluster, "rescale", "the output is rescaled only where a new maximum makes that necessary"},
    RetiredField{split_kv, "rescale", rescaled_now},
    RetiredField{split_wgmma, "rescale", rescaled_now},
    RetiredField{mla, "rescale", rescaled_now},
    RetiredField{mla, "tile_kv", "a step always has 64 keys"},
    RetiredField{split_wgmma, "order", "consumer warpgroups always take turns"},
    RetiredField{backward, "tile_q", "a step always has 64 queries"},
    RetiredField{wgmma, "q_in_registers", "Q K always reads Q from shared memory"},
    RetiredField{wgmma, "p_in_registers", "P V always reads P from registers"},
    RetiredField{wgmma, "separate_o", "output=separate has its meaning"},
    RetiredField{wgmma, "direct_o", "output=direct has its meaning"},
    RetiredField{wgmma, "overlap", "softmax always runs under the P V of the tile before"},
    RetiredField{wgmma, "persistent", "a block always computes one tile of queries after another"},
    RetiredField{wgmma, "dependent_launch",
                 "the kernel always starts while the one before it on the stream ends"},
    RetiredField{wgmma, "polynomial_exp2", "the instruction ex2 computes all exponentials"},
    RetiredField{wgmma, "descending", "the order of keys follows from the spec's mask and types"},
    RetiredField{wgmma, "sums_by_products", "P V sums P wherever the spec and the tile allow it"},
    RetiredField{wgmma, "interpolated_exp2", "the spec's interpolated_exponentials asks for it"},
    RetiredField{wgmma, "widen_ahead", "it is called upcast_ahead", "give it by that name"},
    RetiredField{wgmma, "draw_ahead", "it is called dropout_mask_ahead", "give it by that name"},
    RetiredField{backward, "draw_ahead", "it is called dropout_mask_ahead", "give it by that name"},
};

template <class Predicate>
const RetiredField* find(const Predicate& matches) {
  const auto* const row = std::find_if(rows.begin(), rows.end(), matches);
  return row == rows.end() ? nullptr : row;
}

}  // namespace

std::span<const RetiredField> retired_fields() { return rows; }

const RetiredField* find_retired(std::string_view family, std::string_view name) {
  return find([&](const RetiredField& row) { return row.family == family && row.name == name; });
}

const RetiredField* find_retired(std::string_view name) {
  return find([&](const RetiredField& row) { return row.name == name; });
}

}  // namespace jit
