// Programs that no command writes: of operations beside attention, and of the steps of backward.
#include <utility>

#include <jit/mask.h>
#include <jit/score.h>

#include "generator/context/access.h"
#include "generator/context/context_state.h"
#include "generator/kernels/backward_sinks/steps.h"
#include "generator/kernels/backward_tcgen05/family.h"
#include "generator/kernels/backward_tensors/steps.h"
#include "generator/kernels/backward_wgmma/family.h"
#include "generator/operations/append/program.h"
#include "generator/operations/block_mask/program.h"
#include "generator/operations/exchange_merge/program.h"
#include "generator/operations/index_loss/program.h"
#include "generator/operations/key_exchange/program.h"
#include "generator/operations/key_mass/program.h"
#include "generator/operations/key_union/program.h"
#include "generator/operations/list_gradients/program.h"
#include "generator/operations/list_mass/program.h"
#include "generator/operations/matmul/program.h"
#include "generator/operations/merge/program.h"
#include "generator/operations/quantize/program.h"
#include "generator/operations/score_blocks/program.h"
#include "generator/operations/score_keys/program.h"
#include "generator/operations/top_k/program.h"
#include "generator/operations/transpose_lists/program.h"
#include "templates/top_k/params.cuh"
#include "tests/machine_code/frozen_kernels.h"

namespace jit::machine_code {
namespace {

constexpr Arch sm_80{8, 0, 0}, sm_89{8, 9, 0}, sm_90a{9, 0, 'a'}, sm_120{12, 0, 0};

class Programs {
 public:
  template <class Write>
  void add(std::string name, Arch arch, const Write& write) {
    kernels_.push_back({std::move(name), [arch, write](const Context& context) {
                          const auto image = build_image(*Access::state(context), write(), {.arch = arch});
                          return Outcome{.record = record_of(*image, "-"),
                                         .origin = "tests/machine_code/frozen_programs.cpp"};
                        }});
  }
  std::vector<FrozenKernel> take() { return std::move(kernels_); }

 private:
  std::vector<FrozenKernel> kernels_;
};

void add_exchange_merge(Programs& programs) {
  const auto add = [&](const char* name, Arch arch, const ExchangeMergeSpec& spec) {
    programs.add(name, arch, [spec] {
      validate(spec);
      return exchange_merge_program(spec);
    });
  };
  add("exchange_merge.fp32", sm_90a, {});
  add("exchange_merge.heads", sm_90a, {.dtype = DType::bf16, .share = ExchangeShare::heads});
  add("exchange_merge.ranks", sm_90a, {.dtype = DType::bf16, .head_dim_v = 512, .ranks = 8});
}

void add_selection(Programs& programs) {
  const auto add_scores = [&](const char* name, const ScoreKeysSpec& spec) {
    programs.add(name, sm_90a, [spec] {
      validate(spec);
      return score_keys_program(spec);
    });
  };
  add_scores("score_keys.fp8_h64", {});
  add_scores("score_keys.fp8_h8", {.heads = 8});
  add_scores("score_keys.fp8_h32_levels", {.heads = 32, .page_size = 8, .block_max = true});
  add_scores("score_keys.bf16_h32_pages",
             {.dtype = DType::bf16, .heads = 32, .page_size = 64, .k_scale = false});
  const auto add_blocks = [&](const char* name, const ScoreBlocksSpec& spec) {
    programs.add(name, sm_90a, [spec] {
      validate(spec);
      return score_blocks_program(spec);
    });
  };
  add_blocks("score_blocks.max128", {.attention = {.mask = mask::causal()}});
  add_blocks("score_blocks.mean8_d256", {.attention = {.head_dim = 256, .score = score::softcap(30)},
                                         .block_size = 8,
                                         .reduction = BlockReduction::mean});
  add_blocks("score_blocks.probability4_span2", {.attention = {.gqa_ratio = 16, .mask = mask::causal()},
                                                 .block_size = 4,
                                                 .reduction = BlockReduction::probability,
                                                 .key_span = 2});
  const auto add_choice = [&](const char* name, Arch arch, const TopKSpec& spec) {
    programs.add(name, arch, [spec] {
      validate(spec);
      return top_k_program(spec);
    });
  };
  add_choice("top_k.fp32_2048", sm_90a, {});
  programs.add("top_k.few_rows", sm_90a, [] { return top_k_program({}, top_k_cluster); });
  add_choice("top_k.bf16_16_blocks", sm_80,
             {.dtype = DType::bf16, .k = 16, .init_blocks = 1, .local_blocks = 2});
}

void add_merge(Programs& programs) {
  const auto add = [&](const char* name, Arch arch, const MergeSpec& spec, unsigned states = 3) {
    programs.add(name, arch, [spec, states] {
      validate(spec);
      OperationPrograms written = merge_programs(spec);
      switch (merge_program_for(spec, states)) {
        case OperationProgram::some_sizes:
          return std::move(*written.some_sizes);
        case OperationProgram::other_sizes:
          return std::move(*written.other_sizes);
        default:
          return std::move(written.every_size);
      }
    });
  };
  add("merge.fp32", sm_80, {});
  add("merge.two_states", sm_90a, {.dtype = DType::bf16, .out_dtype = DType::bf16}, 2);
  add("merge.many_states", sm_90a, {}, 16);
  add("merge.bf16", sm_120, {.dtype = DType::bf16, .views = 8});
  add("merge.odd_rows", sm_90a, {.out_dtype = DType::fp32, .head_dim_v = 37, .alignment = 4});
}

void add_append(Programs& programs) {
  const auto add = [&](const char* name, Arch arch, const AppendSpec& spec) {
    programs.add(name, arch, [spec] {
      validate(spec);
      return append_program(spec);
    });
  };
  add("append.plain", sm_80, {});
  add("append.rotary", sm_90a, {.rotary_dim = 128});
  add("append.norm", sm_90a,
      {.dtype = DType::fp16, .head_dim = 64, .rotary_dim = 32, .rotary_interleaved = true, .norm = true});
  add("append.sections", sm_120, {.rotary_dim = 128, .mrope_sections = {16, 24, 24}});
  add("append.fp8", sm_89, {.cache_dtype = DType::fp8_e4m3, .rotary_dim = 128});
  add("append.fp8_of_tokens", sm_90a, {.cache_dtype = DType::fp8_e4m3, .scale_per = ScaleKind::token});
  add("append.int4", sm_90a, {.cache_dtype = DType::int4, .scale_per = ScaleKind::token, .rotary_dim = 128});
  add("append.nvfp4", sm_89, {.cache_dtype = DType::nvfp4});
  add("append.latent_656", sm_90a,
      {.cache_dtype = DType::latent_656,
       .head_dim = 64,
       .head_dim_v = 512,
       .rotary_dim = 64,
       .rotary_interleaved = true});
}

void add_block_mask(Programs& programs) {
  const auto add = [&](const char* name, Arch arch, const BlockMaskSpec& spec) {
    programs.add(name, arch, [spec] {
      validate(spec);
      return block_mask_program(spec);
    });
  };
  add("block_mask.given", sm_80, {});
  add("block_mask.document", sm_90a, {.mask = mask::document()});
  add("block_mask.scores", sm_90a, {.mask = mask::causal(), .scores = true});
  add("block_mask.varlen", sm_120, {.mask = mask::causal(), .varlen_q = true, .varlen_kv = true});
}

void add_quantize(Programs& programs) {
  const auto add = [&](const char* name, Arch arch, const QuantizeSpec& spec,
                       Program (*write)(const QuantizeSpec&) = quantize_program) {
    programs.add(name, arch, [spec, write] {
      validate(spec);
      return write(spec);
    });
  };
  using enum QuantizedScales;
  add("quantize.tokens", sm_80, {.head_dim = 64});
  add("quantize.heads", sm_89, {.scales = head});
  add("quantize.blocks", sm_90a, {.dtype = DType::fp16, .scales = block, .value_scales = channel});
  add("quantize.given", sm_120, {.scales = given, .value_scales = given});
  add("quantize.rotated", sm_90a, {.rotate = true, .center_keys = true, .center_values = true});
  add("quantize.norm", sm_90a, {.norm = true, .rotary_dim = 64});
  add("quantize.varlen", sm_90a, {.head_dim = 64, .sequences = SequenceKind::varlen});
  add("quantize.resident_heads", sm_90a, {.scales = head}, resident_quantize_program);
  add("quantize.resident_tokens", sm_90a, {.rotate = true, .center_keys = true}, resident_quantize_program);
  add("quantize.resident_means", sm_90a,
      {.head_dim = 256, .scales = head, .value_scales = channel, .center_keys = true, .center_values = true},
      resident_quantize_program);
}

void add_key_mass(Programs& programs) {
  const auto add = [&](const char* name, Arch arch, const KeyMassSpec& spec) {
    programs.add(name, arch, [spec] {
      validate(spec);
      return key_mass_program(spec);
    });
  };
  const SequenceKind varlen = SequenceKind::varlen;
  add("key_mass.d128", sm_90a, {.attention = {.mask = mask::causal()}});
  add("key_mass.query_heads", sm_80,
      {.attention = {.head_dim = 64, .gqa_ratio = 4, .score = score::softcap(30)}, .per_query_head = true});
  add("key_mass.d256_varlen", sm_90a,
      {.attention = {
           .head_dim = 256, .sequences_q = varlen, .sequences_kv = varlen, .mask = mask::causal()}});
  const auto add_wgmma = [&](const char* name, const KeyMassSpec& spec) {
    programs.add(name, sm_90a, [spec] {
      validate(spec);
      return key_mass_wgmma_program(spec);
    });
  };
  add_wgmma("key_mass_wgmma.d128", {.attention = {.gqa_ratio = 4, .mask = mask::causal()}});
  add_wgmma(
      "key_mass_wgmma.query_heads",
      {.attention = {.head_dim = 64, .gqa_ratio = 4, .score = score::softcap(30)}, .per_query_head = true});
  const AttentionSpec paged = {.gqa_ratio = 4,
                               .sequences_q = varlen,
                               .sequences_kv = SequenceKind::paged,
                               .page_size = 16,
                               .mask = mask::causal()};
  add("key_mass.paged", sm_90a, {.attention = paged});
  add_wgmma("key_mass_wgmma.paged", {.attention = paged});
  add_wgmma("key_mass_wgmma.d256_varlen",
            {.attention = {
                 .head_dim = 256, .sequences_q = varlen, .sequences_kv = varlen, .mask = mask::causal()}});
}

void add_list_gradients(Programs& programs) {
  const auto add = [&](const char* name, Arch arch, const AttentionSpec& spec, bool is_large = false) {
    programs.add(name, arch, [spec, is_large] {
      const OperationPrograms written = list_gradients_programs({.attention = spec});
      return is_large ? written.some_sizes.value() : written.every_size;
    });
  };
  const SequenceKind varlen = SequenceKind::varlen;
  const AttentionSpec latents{.head_dim = 576,
                              .head_dim_v = 512,
                              .gqa_ratio = 128,
                              .sequences_q = varlen,
                              .sequences_kv = varlen,
                              .values_in_keys = true,
                              .list_block = 1};
  add("list_gradients.latents", sm_120, latents);
  add("list_gradients.latents_large", sm_90a, latents, true);
  add("list_gradients.blocks", sm_80,
      {.gqa_ratio = 16,
       .sequences_q = varlen,
       .sequences_kv = varlen,
       .list_block = 128,
       .mask = mask::causal()});
  // By wgmma: consumers of rows, roles where blocks have 64 keys, and rows beside a consumer of dQ.
  const AttentionSpec chosen{.gqa_ratio = 16,
                             .sequences_q = varlen,
                             .sequences_kv = varlen,
                             .list_block = 128,
                             .mask = mask::causal()};
  add("list_gradients.wgmma_rows", sm_90a, chosen, true);
  AttentionSpec narrow = chosen;
  narrow.list_block = 64;
  narrow.list_queries = 8;
  add("list_gradients.wgmma_roles", sm_90a, narrow, true);
  AttentionSpec small = chosen;
  small.head_dim = 64;
  small.gqa_ratio = 1;
  add("list_gradients.wgmma_small", sm_90a, small, true);
  programs.add("transpose_lists", sm_90a, transpose_lists_program);
  programs.add("index_loss.h64", sm_90a, [] { return index_loss_program({}); });
  programs.add("index_loss.h128_d64", sm_80,
               [] { return index_loss_program({.dtype = DType::fp16, .heads = 128, .head_dim = 64}); });
  programs.add("list_mass.latents", sm_90a, [] { return list_mass_program({}); });
}

void add_matmul(Programs& programs) {
  for (std::size_t step = 0; step < matmul_ladder().size(); ++step)
    programs.add("matmul." + matmul_ladder()[step].name, sm_80, [step] { return matmul_program(step); });
  programs.add("matmul.sum_splits", sm_80, sum_splits_program);
  programs.add("matmul.double_buffer_sm_90a", sm_90a,
               [] { return matmul_program(matmul_step_index("double_buffer")); });
}

void add_steps_of_backward(Programs& programs) {
  const auto add_prepare = [&](const char* name, const AttentionSpec& spec, const BackwardWgmma& config) {
    programs.add(name, sm_90a, [spec, config] { return backward_wgmma::prepare_program(spec, config); });
  };
  const AttentionSpec plain{.head_dim = 64};
  const AttentionSpec varlen{.head_dim = 64,
                             .sequences_q = SequenceKind::varlen,
                             .sequences_kv = SequenceKind::varlen,
                             .mask = mask::causal()};
  add_prepare("backward_wgmma.prepare", plain, {});
  add_prepare("backward_wgmma.prepare_deterministic", plain, {.deterministic = true});
  add_prepare("backward_wgmma.prepare_varlen", varlen, {.deterministic = true});
  programs.add("backward_wgmma.convert", sm_90a,
               [plain] { return backward_wgmma::convert_program(plain, {}); });
  programs.add("backward_wgmma.convert_d256", sm_90a,
               [] { return backward_wgmma::convert_program({.head_dim = 256}, {.pair = true}); });
  const Arch sm_100a{10, 0, 'a'};
  programs.add("backward_tcgen05.prepare_deterministic", sm_100a,
               [varlen] { return backward_tcgen05::prepare_program(varlen, {.deterministic = true}); });
  programs.add("backward_tcgen05.convert", sm_100a,
               [] { return backward_tcgen05::convert_program({.head_dim = 128}, {}); });
  programs.add("backward_sinks.dense", sm_90a, [plain] { return backward_sinks::program(plain); });
  programs.add("backward_sinks.varlen", sm_80, [varlen] { return backward_sinks::program(varlen); });
  const AttentionSpec biased{.head_dim = 64, .mask = mask::causal(), .score = score::bias(DType::bf16)};
  const AttentionSpec sloped{.head_dim = 64, .score = score::alibi().then(score::softcap(30))};
  programs.add("backward_tensors.bias_sm_80", sm_80,
               [biased] { return backward_tensors::sum_program(biased, 1); });
  programs.add("backward_tensors.bias", sm_90a,
               [biased] { return backward_tensors::sum_program(biased, 1); });
  programs.add("backward_tensors.alibi", sm_90a,
               [sloped] { return backward_tensors::sum_program(sloped, 1); });
  programs.add("backward_tensors.convert", sm_120,
               [biased] { return backward_tensors::convert_program(biased, 1); });
}

}  // namespace

std::vector<FrozenKernel> frozen_programs() {
  Programs programs;
  add_exchange_merge(programs);
  add_merge(programs);
  add_append(programs);
  add_block_mask(programs);
  add_quantize(programs);
  add_key_mass(programs);
  programs.add("key_exchange.begin", sm_90a, key_exchange_program);
  programs.add("key_union.8", sm_90a, [] { return key_union_program({.queries = 8}); });
  add_list_gradients(programs);
  add_selection(programs);
  add_matmul(programs);
  add_steps_of_backward(programs);
  return programs.take();
}

}  // namespace jit::machine_code
