#include "tests/support/random_spec.h"

#include <algorithm>
#include <string>

#include "templates/base/element.cuh"

namespace jit::reference {
namespace {

template <class T>
T pick(std::initializer_list<T> values, Random& random) {
  return values.begin()[random() % values.size()];
}

// Whether rows are longer than what one warp sums: then few of them fit into shared memory.
bool is_wide(const AttentionSpec& spec) { return column_warps(spec.head_dim, spec.value_head_dim()) > 1; }

}  // namespace

AttentionSpec random_spec(Random& random) {
  AttentionSpec spec;
  spec.dtype = pick({DType::bf16, DType::fp16}, random);
  const auto head_dim = [&] {
    if (draw(random, 0, 1) == 0) return pick({64, 96, 128, 192, 256, 64, 96, 128, 192, 256, 512}, random);
    const int eighth = draw(random, 1, 36);
    return eighth <= 32 ? 8 * eighth : 264 + 64 * (eighth - 33) + 8 * draw(random, 0, 7);  // to 512
  };
  spec.head_dim = head_dim();
  if (draw(random, 0, 2) == 0) spec.head_dim_v = head_dim();
  spec.gqa_ratio = pick({1, 1, 2, 3, 4, 8}, random);
  spec.alignment = pick({16, 16, 16, 8, 4, 2}, random);
  spec.mask = random_mask(random);
  spec.score = random_score(random);
  if (draw(random, 0, 4) == 0) spec.softmax_scale = 0.01f * static_cast<float>(draw(random, 1, 60));
  return spec;
}

void make_part(AttentionSpec& spec, Random& random) {
  const std::string mask = spec.mask.to_string();
  const auto reads = [&](const char* name) { return mask.find(name) != std::string::npos; };
  if (draw(random, 0, 3) != 0 || reads("block_scores")) return;
  spec.q_positions = !reads("draft_tree") && draw(random, 0, 1) == 0;
  spec.k_positions = !spec.q_positions || draw(random, 0, 1) == 0;
  if (!refusals_of(spec, Arch{8, 0}).empty())
    spec.q_positions = spec.k_positions = false;  // too many tensors
}

void make_fp8(AttentionSpec& spec, Random& random) {
  if (spec.head_dim % 16 != 0 || spec.value_head_dim() % 16 != 0)
    spec.alignment = std::min(spec.alignment, 8);  // of dense rows
  const DType fp8 = pick({DType::fp8_e4m3, DType::fp8_e4m3, DType::fp8_e5m2}, random);
  if (is_wide(spec) || spec.split_keys != 0 || draw(random, 0, 1) == 0) {
    spec.kv_dtype = fp8;
    spec.descale_per = pick({ScaleKind::head, ScaleKind::token}, random);
    // Probabilities times scales of tokens are rounded to bf16: as plain attention of bf16 has them.
    if (spec.descale_per == ScaleKind::token) spec.dtype = DType::bf16;
    return;
  }
  spec.dtype = fp8;
  const bool in_blocks = spec.sequences_q == SequenceKind::dense && spec.sequences_kv == SequenceKind::dense;
  spec.descale_per =
      pick({ScaleKind::head, ScaleKind::token, in_blocks ? ScaleKind::block : ScaleKind::head}, random);
  spec.v_descale_per = pick({ScaleKind::head, ScaleKind::channel}, random);
  spec.v_mean = draw(random, 0, 2) == 0;
  spec.lse_shift =
      spec.sequences_q == SequenceKind::dense && spec.score == Score() && draw(random, 0, 2) == 0;
  spec.interpolated_exponentials = draw(random, 0, 1) == 0;
}

void make_sequences(AttentionSpec& spec, Random& random) {
  const bool is_tree = spec.mask.to_string().find("draft_tree") != std::string::npos;
  spec.sequences_q =
      is_tree ? SequenceKind::dense : pick({SequenceKind::dense, SequenceKind::varlen}, random);
  const auto tensors = spec.mask.tensors();
  const bool has_row_for_each_key = std::any_of(
      tensors.begin(), tensors.end(), [](const auto& tensor) { return tensor.name == "tree_ends"; });
  spec.sequences_kv =
      has_row_for_each_key ? SequenceKind::paged : pick({SequenceKind::paged, SequenceKind::varlen}, random);
  if (spec.sequences_kv == SequenceKind::paged) spec.page_size = pick({1, 3, 8, 16, 48, 64, 100}, random);
  if (draw(random, 0, 3) == 0) spec.split_keys = pick({64, 128, 256}, random);
}

namespace {

ForwardMmaSync random_mma_sync_config(bool is_wide, Random& random) {
  ForwardMmaSync config;
  config.warps = is_wide ? draw(random, 1, 3) : pick({1, 2, 3, 4, 4, 4, 8, 8}, random);
  config.tile_q = 16 * config.warps * draw(random, 1, 2);
  config.tile_kv = 16 * draw(random, 1, is_wide ? 3 : 8);
  config.stages_k = draw(random, 1, 4);
  config.stages_v = draw(random, 1, 4);
  config.q_in_registers = pick({false, true}, random);
  config.rescale = pick({Rescale::always, Rescale::lazy}, random);
  config.blocks_per_sm = draw(random, 1, 3);
  return config;
}

ForwardWgmma random_wgmma_config(Random& random) {
  ForwardWgmma config;
  config.tile_q = 64 * draw(random, 1, 3);
  config.tile_kv = 16 * draw(random, 1, 16);
  config.stages_q = draw(random, 1, 2);
  config.stages_k = draw(random, 1, 4);
  config.stages_v = draw(random, 1, 4);
  config.output = pick({OutputPlace::over_q, OutputPlace::separate, OutputPlace::direct}, random);
  config.order = pick({WarpgroupOrder::free, WarpgroupOrder::ping_pong}, random);
  config.rescale = pick({Rescale::lazy, Rescale::on_overflow}, random);
  config.blocks_per_sm = pick({1, 1, 2}, random);
  return config;
}

// A config for 8-bit values beside 8-bit q.
ForwardWgmma random_fp8_config(Random& random) {
  ForwardWgmma config = random_wgmma_config(random);
  config.converter_warps = pick({2, 4}, random);
  return config;
}

ForwardSplitKv random_split_kv_config(bool is_wide, Random& random) {
  ForwardSplitKv config;
  config.row_warps = is_wide ? draw(random, 1, 2) : pick({1, 1, 2, 4, 8}, random);
  config.warp_rows = pick({16, 16, 8}, random);
  config.key_warps = is_wide ? draw(random, 1, 2) : pick({1, 2, 4, 4, 8}, random);
  config.tile_kv = 16 * config.key_warps * draw(random, 1, is_wide ? 2 : 4);
  config.stages = draw(random, 2, is_wide ? 3 : 6);
  config.copies = pick({Copies::cp_async, Copies::cp_async, Copies::tma}, random);
  config.blocks_per_sm = draw(random, 1, 4);
  return config;
}

ForwardSplitWgmma random_split_wgmma_config(Random& random) {
  ForwardSplitWgmma config;
  config.tile_rows = 64 * draw(random, 1, 3);
  config.tile_kv = 16 * draw(random, 1, 16);
  config.stages_q = draw(random, 1, 2);
  config.stages = draw(random, 1, 4);
  config.blocks_per_sm = pick({1, 1, 2}, random);
  return config;
}

BackwardDqMmaSync random_dq_config(bool is_wide, Random& random) {
  BackwardDqMmaSync config;
  config.warps = is_wide ? draw(random, 1, 2) : pick({1, 2, 3, 4, 4, 8}, random);
  config.tile_q = 16 * config.warps * draw(random, 1, 2);
  config.tile_kv = 16 * draw(random, 1, is_wide ? 2 : 8);
  config.stages = draw(random, 1, is_wide ? 2 : 4);
  config.blocks_per_sm = draw(random, 1, 3);
  return config;
}

BackwardDkvMmaSync random_dkv_config(bool is_wide, Random& random) {
  BackwardDkvMmaSync config;
  config.warps = is_wide ? draw(random, 1, 2) : pick({1, 2, 3, 4, 4, 8}, random);
  config.tile_kv = 16 * config.warps * draw(random, 1, 2);
  config.tile_q = 16 * draw(random, 1, is_wide ? 2 : 8);
  config.stages = draw(random, 1, is_wide ? 2 : 4);
  config.separate = pick({false, true}, random);
  config.blocks_per_sm = draw(random, 1, 3);
  return config;
}

BackwardWgmma random_one_pass_config(Random& random) {
  return {.stages = draw(random, 1, 4), .deterministic = pick({false, true}, random)};
}

// Drawn until one is legal; the default one where none is.
template <class Draw>
KernelConfig legal(const AttentionSpec& spec, const DeviceLimits& limits, const Draw& draw_config) {
  for (int attempt = 0; attempt < 1000; ++attempt) {
    const KernelConfig config = draw_config();
    if (config_rejection(spec, config, limits).empty()) return config;
  }
  return std::decay_t<decltype(draw_config())>();
}

}  // namespace

KernelConfig random_config(const AttentionSpec& spec, const DeviceLimits& limits, Random& random) {
  // Drawn, not picked from the search grid: what is legal reaches further than what is searched.
  const bool has_wgmma = limits.arch == Arch{9, 0, 'a'} && spec.alignment == 16 && !is_wide(spec);
  const bool wgmma = has_wgmma && draw(random, 0, 3) != 0;
  const bool has_mma_tma = limits.arch.major == 12 && limits.arch.suffix == 'a' && spec.alignment == 16 &&
                           !is_wide(spec) && draw(random, 0, 3) != 0;
  return legal(spec, limits, [&]() -> KernelConfig {
    if (has_mma_tma) {
      return ForwardMmaTma{.tile_q = 64 * draw(random, 1, 2),
                           .tile_kv = 16 * draw(random, 1, 8),
                           .stages = draw(random, 1, 4)};
    }
    if (wgmma && has_fp8_queries(spec)) return random_fp8_config(random);
    if (wgmma) {
      ForwardWgmma config = random_wgmma_config(random);
      if (spec.dropout) config.dropout_mask_ahead = pick({false, true}, random);
      return config;
    }
    return random_mma_sync_config(is_wide(spec), random);
  });
}

KernelConfig random_split_config(const AttentionSpec& spec, const DeviceLimits& limits, Random& random) {
  if (limits.arch == Arch{9, 0, 'a'} && spec.alignment == 16 && draw(random, 0, 1) == 0) {
    const KernelConfig config = legal(spec, limits, [&] { return random_split_wgmma_config(random); });
    if (config_rejection(spec, config, limits).empty()) return config;
  }
  return legal(spec, limits, [&] { return random_split_kv_config(is_wide(spec), random); });
}

KernelConfig random_cache_config(const AttentionSpec& spec, const DeviceLimits& limits, Random& random) {
  return legal(spec, limits, [&] {
    ForwardWgmma config = random_wgmma_config(random);
    config.upcast_ahead = pick({false, true}, random);
    if (!config.upcast_ahead) {
      config.stages_stored = draw(random, 1, 3);
      config.converter_warps = pick({2, 4}, random);
    }
    return config;
  });
}

PlanConfigs random_backward_configs(const AttentionSpec& spec, const DeviceLimits& limits, Random& random) {
  if (limits.arch == Arch{9, 0, 'a'} && spec.alignment == 16 && draw(random, 0, 3) != 0) {
    const KernelConfig config = legal(spec, limits, [&] {
      BackwardWgmma one_pass = random_one_pass_config(random);
      if (spec.dropout) one_pass.dropout_mask_ahead = pick({false, true}, random);
      if (std::max(spec.head_dim, spec.value_head_dim()) > 128) one_pass.pair = pick({false, true}, random);
      return one_pass;
    });
    if (config_rejection(spec, config, limits).empty()) return {config};
  }
  if (limits.arch.major == 10 && spec.alignment == 16 && draw(random, 0, 3) != 0) {
    const BackwardTcgen05 config{.stages = pick({2, 4}, random),
                                 .deterministic = pick({false, true}, random)};
    if (config_rejection(spec, config, limits).empty()) return {config};
  }
  const bool may_be_wide = limits.arch == Arch{9, 0, 'a'} && spec.alignment == 16 && is_wide(spec);
  const auto config_of_pass = [&](auto wide, const auto& random_config) -> KernelConfig {
    if (may_be_wide && draw(random, 0, 2) != 0) {
      wide.panels = draw(random, 3, 6);
      wide.parts = pick({2, 4}, random);
      if (config_rejection(spec, wide, limits).empty()) return wide;
    }
    return legal(spec, limits, random_config);
  };
  const KernelConfig dq =
      config_of_pass(BackwardDqWideWgmma{}, [&] { return random_dq_config(is_wide(spec), random); });
  return {dq,
          config_of_pass(BackwardDkvWideWgmma{}, [&] { return random_dkv_config(is_wide(spec), random); })};
}

}  // namespace jit::reference
