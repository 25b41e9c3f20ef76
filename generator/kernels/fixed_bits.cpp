#include "generator/kernels/fixed_bits.h"

#include <algorithm>

#include <fmt/format.h>
#include <jit/arch.h>
#include <jit/dtype.h>
#include <jit/spec_table.h>

#include "generator/kernels/tma_rules.h"

namespace jit {
namespace {

constexpr int large_tile = 128, usual_tile = split_keys_step, small_tile = 32;
constexpr int narrow_columns = 128;  // two larger tiles of such rows fit shared memory
constexpr int most_columns = 256;    // kernels do not exchange scores up to this width
constexpr int small_smem_per_block = 100 * 1024;

int most_head_dim(const AttentionSpec& spec) { return std::max(spec.head_dim, spec.value_head_dim()); }

}  // namespace

std::string unfixed_bits(const AttentionSpec& spec) {
  if (has_fp8_queries(spec)) return fmt::format("dtype = {}: products are cut off", to_string(spec.dtype));
  if (has_narrow_keys(spec))
    return fmt::format("kv_dtype = {}: families convert keys to different types",
                       to_string(spec.key_dtype()));
  if (spec.values_in_keys) return "values_in_keys = true: one family has all its calls";
  if (most_head_dim(spec) > most_columns)
    return fmt::format("head_dim = {}: one family has all its calls; {} is the most that several have",
                       most_head_dim(spec), most_columns);
  return "";
}

bool has_fixed_bits(const AttentionSpec& spec) { return spec.split_keys != 0 && unfixed_bits(spec).empty(); }

int fixed_bits_tile(const AttentionSpec& spec, Arch arch) {
  const bool is_narrow = most_head_dim(spec) <= narrow_columns;
  if (arch == arch_of_tma) return is_narrow && spec.split_keys % large_tile == 0 ? large_tile : usual_tile;
  return !is_narrow && smem_per_block_optin(arch) < small_smem_per_block ? small_tile : usual_tile;
}

std::string span_rejection(const AttentionSpec& spec, Arch arch, int tile_kv) {
  if (spec.split_keys == 0) return "";
  if (has_fixed_bits(spec) && tile_kv != fixed_bits_tile(spec, arch)) {
    return fmt::format(
        "tile_kv = {} must be {} with split_keys = {} on {}: all kernels of the spec compute the same bits",
        tile_kv, fixed_bits_tile(spec, arch), spec.split_keys, to_string(arch));
  }
  if (spec.split_keys % tile_kv != 0) {
    return fmt::format("split_keys = {} must be a multiple of tile_kv = {}: no tile lies in two spans",
                       spec.split_keys, tile_kv);
  }
  return "";
}

std::string lone_block_rejection(const AttentionSpec& spec, Arch arch, int tile_kv, std::string_view family) {
  if (spec.split_keys == 0) return "";
  if (const std::string reason = unfixed_bits(spec); !reason.empty())
    return fmt::format("{} has split_keys = {} where all kernels compute the same bits; not with {}", family,
                       spec.split_keys, reason);
  return span_rejection(spec, arch, tile_kv);
}

}  // namespace jit
