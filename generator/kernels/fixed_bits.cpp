#include "generator/kernels/fixed_bits.h"

#include <algorithm>

#include <fmt/format.h>
#include <jit/dtype.h>
#include <jit/spec_table.h>

#include "generator/kernels/tma_rules.h"

namespace jit {
namespace {

constexpr int large_tile = 128, small_tile = split_keys_step;
constexpr int most_columns = 256;  // of kernels whose scores are not exchanged between warpgroups

int most_head_dim(const AttentionSpec& spec) { return std::max(spec.head_dim, spec.value_head_dim()); }

}  // namespace

std::string unfixed_bits(const AttentionSpec& spec, Arch arch) {
  if (has_fp8_queries(spec)) return fmt::format("dtype = {}: products are cut off", to_string(spec.dtype));
  if (has_narrow_keys(spec))
    return fmt::format("kv_dtype = {}: families convert keys to different types",
                       to_string(spec.key_dtype()));
  if (spec.values_in_keys) return "values_in_keys = true: one family has all its calls";
  if (most_head_dim(spec) > most_columns)
    return fmt::format("head_dim = {}: one family has all its calls; {} is the most that several have",
                       most_head_dim(spec), most_columns);
  if (arch != arch_of_tma)
    return fmt::format("device = {}: one config serves all calls there; {} has several families",
                       to_string(arch), to_string(arch_of_tma));
  return "";
}

bool has_fixed_bits(const AttentionSpec& spec, Arch arch) {
  return spec.split_keys != 0 && unfixed_bits(spec, arch).empty();
}

int fixed_bits_tile(const AttentionSpec& spec) {
  return most_head_dim(spec) <= 128 && spec.split_keys % large_tile == 0 ? large_tile : small_tile;
}

std::string span_rejection(const AttentionSpec& spec, Arch arch, int tile_kv) {
  if (spec.split_keys == 0) return "";
  if (has_fixed_bits(spec, arch) && tile_kv != fixed_bits_tile(spec)) {
    return fmt::format(
        "tile_kv = {} must be {} with split_keys = {}: all kernels of the spec compute the same bits",
        tile_kv, fixed_bits_tile(spec), spec.split_keys);
  }
  if (spec.split_keys % tile_kv != 0) {
    return fmt::format("split_keys = {} must be a multiple of tile_kv = {}: no tile lies in two spans",
                       spec.split_keys, tile_kv);
  }
  return "";
}

}  // namespace jit
