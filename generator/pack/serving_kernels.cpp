#include "generator/pack/serving_kernels.h"

#include <algorithm>

#include <jit/append.h>
#include <jit/dtype.h>
#include <jit/merge.h>
#include <jit/spec_table.h>

#include "generator/operations/append/program.h"
#include "generator/operations/merge/program.h"
#include "generator/pack/pack_shapes.h"

namespace jit {
namespace {

// Appends of tokens that are normalized and rotated, or are so by the kernel as `sizes` says, by both tables.
std::vector<AppendSpec> appends_of(const AttentionSpec& spec, const PackSizes& sizes) {
  const DType wide = output_dtype(spec);  // of new tokens, even if caches and queries are fp8
  AppendSpec plain{.dtype = wide,
                   .head_dim = spec.head_dim - (spec.values_in_keys ? spec.value_head_dim() : 0),
                   .head_dim_v = spec.value_head_dim(),
                   .alignment = spec.alignment};
  const DTypeFacts& stored = facts(spec.key_dtype());
  if (stored.row_bytes != 0 && plain.head_dim == 0) {  // rotates the last columns of a row in any case
    constexpr int rotated = 64;
    plain.head_dim = rotated;
    plain.head_dim_v = spec.head_dim - rotated;
  }
  if (plain.head_dim == 0) return {};
  const bool is_packed = stored.kind == NumberKind::packed;
  if (stored.dtype != wide) {
    plain.cache_dtype = stored.dtype;
    plain.scale_per = spec.descale_per == ScaleKind::token ? ScaleKind::token : ScaleKind::head;
    // Rows of 8-bit elements are half as long; those of a packed cache begin at any offset.
    plain.alignment = is_packed ? 16 : std::min(16, 2 * spec.alignment);
  }
  std::vector<AppendSpec> appends = {plain};
  for (const DType table : {DType::fp32, wide}) {
    AppendSpec& own = appends.emplace_back(sizes.append);
    own.dtype = plain.dtype;
    own.cache_dtype = plain.cache_dtype;
    own.scale_per = plain.scale_per;
    own.head_dim = plain.head_dim;
    own.head_dim_v = plain.head_dim_v;
    own.alignment = plain.alignment;
    if (own.rotary_dim == 0) own.rotary_dim = own.head_dim;
    constexpr int packed_rotary_step = 16;
    if (is_packed && own.rotary_dim % packed_rotary_step != 0) {
      appends.pop_back();
      continue;
    }
    own.cos_sin_dtype = table;
    if (own.norm) own.norm_dtype = wide;
  }
  return appends;
}

std::vector<MergeSpec> merges_of(const AttentionSpec& spec) {
  const DType wide = output_dtype(spec);
  // Rows of outputs are not laid out like those of caches with extra data per row.
  const int alignment = spec.kv_dtype ? 16 : spec.alignment;
  std::vector<MergeSpec> merges;
  for (const DType partial : {wide, DType::fp32}) {
    merges.push_back(
        {.dtype = partial, .out_dtype = wide, .head_dim_v = spec.value_head_dim(), .alignment = alignment});
  }
  return merges;
}

}  // namespace

std::vector<RequestShape> mixed_shapes(const AttentionSpec& spec, const PackSizes& sizes) {
  if (spec.sequences_q != SequenceKind::varlen || spec.split_keys != 0 || sizes.max_batch == 1) return {};
  std::vector<RequestShape> shapes;
  const std::vector<std::int64_t> keys = powers_of_two(sizes.max_seqlen);
  for (const std::int64_t rows : powers_of_two(std::int64_t{sizes.heads_q} * sizes.max_batch)) {
    for (const std::int64_t seqlen_kv : keys)
      shapes.push_back({Requests::few_queries, {.heads_q = rows, .seqlen_q = 1, .seqlen_kv = seqlen_kv}});
  }
  for (const std::int64_t heads : powers_of_two(sizes.heads_q)) {
    for (const std::int64_t queries : powers_of_two(sizes.max_batch * many_queries_on_average)) {
      if (queries < least_surplus) continue;
      for (const std::int64_t seqlen_kv : keys)
        shapes.push_back(
            {Requests::many_queries, {.heads_q = heads, .seqlen_q = queries, .seqlen_kv = seqlen_kv}});
    }
  }
  return shapes;
}

std::vector<KernelBuild> of_operations(const AttentionSpec& spec, const PackSizes& sizes, Target target) {
  std::vector<KernelBuild> builds;
  if (spec.sequences_kv != SequenceKind::varlen) {
    for (const AppendSpec& append : appends_of(spec, sizes)) {
      validate(append);
      builds.push_back(build_of(append_program(append), target));
    }
  }
  for (const MergeSpec& merge : merges_of(spec)) {
    validate(merge);
    OperationPrograms programs = merge_programs(merge);
    builds.push_back(build_of(std::move(programs.every_size), target));
    builds.push_back(build_of(std::move(*programs.some_sizes), target));
    if (programs.other_sizes) builds.push_back(build_of(std::move(*programs.other_sizes), target));
  }
  return builds;
}

}  // namespace jit
