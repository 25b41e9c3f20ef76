#include "generator/pack/serving_kernels.h"

#include <algorithm>

#include <jit/append.h>
#include <jit/merge.h>
#include <jit/spec_table.h>

#include "generator/operations/append/program.h"
#include "generator/operations/merge/program.h"
#include "generator/pack/pack_shapes.h"

namespace jit {

std::vector<RequestShape> mixed_shapes(const AttentionSpec& spec, const PackSizes& sizes) {
  if (spec.sequences_q != SequenceKind::ragged || spec.split_keys != 0 || sizes.max_batch == 1) return {};
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
  const DType wide = output_dtype(spec);  // of tokens, where caches and queries are of fp8, too
  const AppendSpec plain{
      .dtype = wide,
      .cache_dtype = spec.key_dtype() == wide ? std::nullopt : std::optional(spec.key_dtype()),
      .head_dim = spec.head_dim,
      .head_dim_v = spec.value_head_dim(),
      .alignment = spec.alignment};
  std::vector<AppendSpec> appends = {plain};
  for (const DType table : {DType::fp32, wide}) {
    appends.push_back(plain);
    appends.back().rotary_dim = sizes.rotary_dim > 0 ? sizes.rotary_dim : spec.head_dim;
    appends.back().cos_sin_dtype = table;
  }
  for (const AppendSpec& append : appends) {
    validate(append);
    builds.push_back(build_of(append_program(append), target));
  }
  for (const DType partial : {wide, DType::fp32}) {
    const MergeSpec merge{.dtype = partial,
                          .out_dtype = wide,
                          .head_dim_v = spec.value_head_dim(),
                          .alignment = spec.alignment};
    validate(merge);
    builds.push_back(build_of(merge_program(merge), target));
  }
  return builds;
}

}  // namespace jit
