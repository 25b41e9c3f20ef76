#include "generator/kernels/upcast_keys.h"

#include <algorithm>
#include <cstdint>

#include <fmt/format.h>
#include <jit/dtype.h>
#include <jit/spec_table.h>

#include "generator/launch/ceil_div.h"
#include "generator/problem/argument_table.h"
#include "generator/program/emit.h"
#include "runtime/launch.h"
#include "templates/upcast_keys/params.cuh"

namespace jit {
namespace {

constexpr std::size_t workspace_alignment = 256;

// Layout of upcast keys and values: (entries, heads_kv, rows, head_dim).
struct UpcastLayout {
  std::int64_t entries = 0;
  std::int64_t rows = 0;  // per entry
  std::int64_t heads = 0;
};

UpcastLayout layout_of(const AttentionSpec& spec, const AttentionParams& params) {
  if (has_varlen_kv(spec)) return {1, params.sequences.total_k, params.heads_kv};
  return {params.batch, params.seqlen_kv, params.heads_kv};
}

TensorStrides strides_of(const UpcastLayout& layout, int head_dim) {
  return {.batch = layout.heads * layout.rows * head_dim, .seq = head_dim, .head = layout.rows * head_dim};
}

std::size_t bytes_of(const AttentionSpec& spec, const UpcastLayout& layout, int head_dim) {
  const auto elements = static_cast<std::size_t>(layout.entries * layout.heads * layout.rows * head_dim);
  const std::size_t bytes = elements * static_cast<std::size_t>(size_of(spec.dtype));
  return (bytes + workspace_alignment - 1) / workspace_alignment * workspace_alignment;
}

}  // namespace

AttentionSpec upcast_spec(AttentionSpec spec) {
  spec.kv_dtype.reset();
  spec.descale_per = ScaleKind::head;
  spec.page_size = 0;
  if (spec.sequences_kv != SequenceKind::varlen) spec.sequences_kv = SequenceKind::padded;
  return spec;
}

double key_elements(const AttentionSpec& spec, const ProblemShape& shape) {
  return static_cast<double>(shape.batch * shape.heads_q) / spec.gqa_ratio *
         static_cast<double>(shape.seqlen_kv) * (spec.head_dim + spec.value_head_dim());
}

bool has_room_for_upcast(const AttentionSpec& spec, const ProblemShape& shape) {
  return !shape.any_size &&
         key_elements(spec, largest_shape(size_class(shape))) * size_of(spec.dtype) <= most_upcast_bytes;
}

std::string upcast_keys_name(const std::string& reader) { return "upcast_keys_for_" + reader; }

std::string upcast_keys_source(const AttentionSpec& spec, const FunctorSource& functors,
                               const std::string& reader) {
  return fmt::format(
      "\n// Keys and values as they are stored.\nstruct StoredConfig {{\n{}}};\n"
      "static_assert(sizeof(UpcastKeys) == {}, \"host and device disagree on the kernel's parameters\");\n\n"
      "extern \"C\" __global__ void __launch_bounds__(upcasting_threads)\n"
      "{}(const __grid_constant__ AttentionParams params, const __grid_constant__ UpcastKeys upcast) {{\n"
      "  upcast_keys::upcast_keys<StoredConfig>(params, upcast);\n}}\n",
      spec_lines(spec, functors), sizeof(UpcastKeys), upcast_keys_name(reader));
}

std::size_t upcast_bytes(const AttentionSpec& spec, const AttentionParams& params) {
  const UpcastLayout layout = layout_of(spec, params);
  const std::size_t keys = bytes_of(spec, layout, spec.head_dim);
  return spec.values_in_keys ? keys : keys + bytes_of(spec, layout, spec.value_head_dim());
}

AttentionParams launch_upcast_keys(const KernelLaunch& launch) {
  const AttentionSpec& spec = launch.spec;
  const UpcastLayout layout = layout_of(spec, launch.params);
  AttentionParams reader = launch.params;
  reader.sequences.page_table = nullptr;
  if (layout.entries * layout.rows * layout.heads == 0) return reader;
  auto* const k = static_cast<std::byte*>(launch.workspace);
  UpcastKeys upcast{.k = k,
                    .v = k + bytes_of(spec, layout, spec.head_dim),
                    .k_strides = strides_of(layout, spec.head_dim),
                    .v_strides = strides_of(layout, spec.value_head_dim()),
                    .chunks = ceil_div(static_cast<int>(layout.rows), rows_at_once),
                    .rows = static_cast<int>(layout.rows)};
  reader.k = upcast.k;
  reader.v = spec.values_in_keys ? upcast.k : upcast.v;
  reader.k_strides = upcast.k_strides;
  reader.v_strides = spec.values_in_keys ? upcast.k_strides : upcast.v_strides;
  if (spec.descale_per != ScaleKind::head) reader.descale.k = reader.descale.v = nullptr;
  void* arguments[] = {&launch.params, &upcast};
  jit::launch(launch.kernel.ahead.handle(),
              {.grid = {static_cast<unsigned>(layout.entries * upcast.chunks * layout.heads), 1, 1},
               .block = {upcasting_threads, 1, 1},
               .dependent = true},
              arguments, launch.stream);
  return reader;
}

}  // namespace jit
