#include <algorithm>

#include <fmt/format.h>
#include <jit/dtype.h>

#include "generator/functors/functor_node.h"
#include "generator/functors/functor_tensors.h"
#include "generator/functors/score_mask.h"
#include "generator/kernels/converted_scales.h"
#include "generator/kernels/forward_wgmma/family.h"
#include "generator/kernels/tma_rules.h"
#include "generator/problem/tma_operands.h"
#include "templates/base/bit_words.cuh"
#include "templates/base/element.cuh"
#include "templates/forward_wgmma/smem_layout.cuh"
#include "templates/tiles/panel_tile.cuh"

namespace jit {

using namespace forward_wgmma;

namespace {

constexpr int max_consumers = 3;
constexpr int most_columns_of_wgmma = 256;  // PTX ISA, "wgmma.mma_async", shapes
constexpr int exponential_group = 8;        // templates/steps/interpolated_weights.cuh
// Registers of loop counters, descriptors, softmax state: calibrated with ptxas.
constexpr int other_registers = 30;
constexpr int random_registers = 4;  // with dropout, plus a byte per score, or a bit if it is precomputed
constexpr int largest_score_registers = 2;   // for row maxima that are computed first
constexpr int output_functor_registers = 4;  // for each tensor that output functors read from global memory
constexpr int functor_registers = 8;  // of a score, and of a mask that reads its tensors for every score
// Replace `other_registers` if spare producer warps upcast keys, which reread lengths, or if converters do.
constexpr int spare_upcast_registers = 26, upcast_registers = 32;
constexpr int epilogue_work_registers = 24;    // additional, with output = direct, for addresses of O
constexpr int spare_warps = 2, own_warps = 4;  // that upcast keys and values
// Registers of the warpgroup that transposes V, or upcasts K and V.
constexpr int converter_registers = 40;
// Registers of the producers where they copy scales beside tiles, and of pages: 56 spill 24 bytes.
constexpr int scaled_producer_registers = 64;
// Registers besides a wgmma's accumulators, out of those at launch: with fewer, ptxas gives up (C7602).
constexpr int instruction_registers = 30;

constexpr std::array rows = {
    field<&ForwardWgmma::tile_q>(
        "tile_q", "queries per block",
        {multiples(rows_per_warpgroup, rows_per_warpgroup* max_consumers), Affects::tiling, 64}),
    field<&ForwardWgmma::tile_kv>("tile_kv", "keys per step", {multiples(16, 256), Affects::tiling, 32}),
    field<&ForwardWgmma::stages_q>("stages_q", "buffers for Q tiles", {range(1, 2), Affects::registers, 2}),
    field<&ForwardWgmma::stages_k>("stages_k", "buffers for K tiles", {range(1, 4), Affects::buffers, 1}),
    field<&ForwardWgmma::stages_v>("stages_v", "buffers for V tiles", {range(1, 4), Affects::buffers, 2}),
    field<&ForwardWgmma::output>(
        "output",
        "the way of O to global memory: through the shared memory of Q, through its own, or directly",
        {.affects = Affects::registers, .sample = static_cast<int>(OutputPlace::separate)}),
    field<&ForwardWgmma::order>("order", "the order of consumer warpgroups", {.affects = Affects::registers}),
    field<&ForwardWgmma::rescale>(
        "rescale", "when the output is rescaled to a new row maximum",
        {.legal = range(static_cast<int>(Rescale::lazy), static_cast<int>(Rescale::on_overflow)),
         .sample = static_cast<int>(Rescale::on_overflow)}),
    field<&ForwardWgmma::blocks_per_sm>("blocks_per_sm",
                                        "blocks that must fit on a multiprocessor: caps the registers",
                                        {range(1, 8), Affects::registers, 2}),
    field<&ForwardWgmma::requests>(
        "requests", "the requests of this kernel, by their number of queries",
        {.affects = Affects::registers, .sample = static_cast<int>(Requests::many_queries)}),
    // Never faster, but ten times more accurate if values have a nonzero mean (docs/records/kernels/fp8.md).
    field<&ForwardWgmma::promote_every>(
        "promote_every",
        "tiles of keys after which sums of FP8 products are added to fp32 registers; 0: never",
        {range(0, 64), Affects::registers, 4}),
    field<&ForwardWgmma::stages_stored>(
        "stages_stored", "buffers for tiles of 8-bit keys as they are stored, and as many for values",
        {range(0, 4), Affects::buffers, 2}),
    field<&ForwardWgmma::converter_warps>("converter_warps",
                                          "warps that upcast these, or transpose 8-bit values: 2 of the "
                                          "producers, or 4 in a separate warpgroup",
                                          {LegalValues{0, 4, 2}, Affects::registers, 4}),
    field<&ForwardWgmma::upcast_ahead>(
        "upcast_ahead", "a kernel before this one upcasts all keys and values, into a workspace", {}),
    field<&ForwardWgmma::dropout_mask_ahead>(
        "dropout_mask_ahead", "a kernel before this one draws the dropout mask, into a workspace", {}),
};
static_assert(rows.size() == member_count<ForwardWgmma>(), "each member has a row");

// Whether 8-bit V is transposed, since wgmma needs it column by column.
bool transposes_v(const AttentionSpec& spec) { return has_fp8_queries(spec); }

// Consumer and producer warpgroups, and one that transposes 8-bit V or upcasts K and V.
int warpgroups_of(const ForwardWgmma& config) {
  return consumers_of(config) + 1 + (config.converter_warps > spare_warps ? 1 : 0);
}
int threads_of(const ForwardWgmma& config) { return warpgroups_of(config) * 128; }

// Registers per thread at launch, as launch bounds allow.
int launched_registers(const ForwardWgmma& config) {
  return registers_per_sm / (threads_of(config) * config.blocks_per_sm) / 8 * 8;
}

// Computing maxima first takes up to a tenth of the time (docs/records/notebook.md). Without it, tiles are
// computed twice if most exceed earlier maxima, or if the first tile is masked for many queries; under a mask
// without row ranges, tuning decides. 8-bit P would saturate before its sum shows it. With split_keys, where
// each row rescales alone, computing maxima is faster except at head dims around 128, and at 64 in plain calls, whose
// three consumers have the registers.
std::vector<Rescale> promising_rescales(const AttentionSpec& spec) {
  if (has_fp8_queries(spec) || !are_steady(spec.score) || spec.mean_score) return {Rescale::lazy};
  const int columns = padded_head_dim(spec.head_dim);
  const bool looks_first = columns < 64 || columns > 128 || (columns == 64 && !is_plain(spec));
  if (spec.split_keys != 0 && looks_first) return {Rescale::lazy};
  if (has_row_range(spec.mask)) return {Rescale::on_overflow};
  return {Rescale::lazy, Rescale::on_overflow};
}

// Whether O is stored from registers: fp32, and bytes whose rows TMA cannot store.
bool has_wide_output(const AttentionSpec& spec) {
  return has_quantized_output(spec) ? spec.value_head_dim() % tma_alignment != 0
                                    : size_of(output_dtype(spec)) != 2;
}

// Whether O can overwrite Q: a warpgroup's rows of both must occupy the same bytes.
bool fits_o_over_q(const AttentionSpec& spec) {
  const int dv = spec.value_head_dim(), bytes = has_quantized_output(spec) ? 1 : element_bytes;
  return !has_fp8_queries(spec) &&
         panel_columns(spec.head_dim) * element_bytes == panel_columns(dv, bytes) * bytes;
}

// As in templates/forward_wgmma/traits.cuh.
int mask_bit_words(const AttentionSpec& spec, const ForwardWgmma& config) {
  const std::optional<BlockSides> sides = mask_bit_sides(spec.mask);
  if (!sides || upcasts(spec, config)) return 0;
  return words_of_known_tile(sides->q, sides->kv, config.tile_q, config.tile_kv);
}

int smem_bytes(const AttentionSpec& spec, const ForwardWgmma& config) {
  const bool is_upcast = upcasts(spec, config);
  return smem_layout({.head_dim = spec.head_dim,
                      .head_dim_v = spec.value_head_dim(),
                      .tile_q = config.tile_q,
                      .tile_kv = config.tile_kv,
                      .stages_q = config.stages_q,
                      .stages_k = config.stages_k,
                      .stages_v = config.stages_v,
                      .separate_o = config.output == OutputPlace::separate,
                      .direct_o = config.output == OutputPlace::direct,
                      .key_words = has_key_words(spec),
                      .has_lengths = !is_plain(spec),
                      .element_bytes = size_of(spec.dtype),
                      .output_bytes = size_of(output_dtype(spec)),
                      .key_scales = spec.descale_per != ScaleKind::head && !has_stored_keys(spec),
                      .stages_stored = config.stages_stored,
                      .mask_bit_words = mask_bit_words(spec, config),
                      .sums_by_products = has_sums_by_products(spec, config),
                      .numbers = facts(spec.key_dtype()).numbers,
                      .k_scale_bytes = is_upcast ? converted_scale_bytes(spec, spec.head_dim) : 0,
                      .v_scale_bytes = is_upcast ? converted_scale_bytes(spec, spec.value_head_dim()) : 0})
      .total;
}

// Whether P V can also sum P: ones are appended to transposed V, and there are no sinks.
bool can_sum_by_products(const AttentionSpec& spec, const ForwardWgmma& config) {
  constexpr int least_panel = 128;
  return transposes_v(spec) && !spec.sinks && spec.descale_per != ScaleKind::block &&
         panel_columns(config.tile_kv, 1) >= least_panel;
}

// The rule for 8-bit elements that a config breaks; empty if it breaks none.
std::string fp8_rejection(const AttentionSpec& spec, const ForwardWgmma& config) {
  const int mma_k = facts(spec.dtype).mma_k;
  if (config.tile_kv % mma_k != 0)
    return fmt::format("tile_kv = {} must be a multiple of {} with fp8", config.tile_kv, mma_k);
  if (config.rescale == Rescale::on_overflow)
    return "rescale must be lazy with fp8: probabilities are cut off at 448 long before a sum shows it";
  if (transposes_v(spec) && config.converter_warps == 0) {
    return fmt::format("converter_warps must be {} or {} with v of {}, which is transposed", spare_warps,
                       own_warps, to_string(spec.dtype));
  }
  return "";
}

// Why the buffers do not match the storage type of k and v; empty if they do.
std::string storage_rejection(const AttentionSpec& spec, const ForwardWgmma& config) {
  constexpr std::string_view name = Family<ForwardWgmma>::name;
  if (!has_stored_keys(spec)) {
    const bool has_converters = config.converter_warps != 0;
    if (config.stages_stored == 0 && has_converters == transposes_v(spec) && !config.upcast_ahead) return "";
    // Where V is transposed, converters have been checked before.
    const std::string converters =
        transposes_v(spec) ? "" : fmt::format(" and converter_warps = {}", config.converter_warps);
    return fmt::format(
        "stages_stored = {}{} must be 0, and upcast_ahead = {} false, with q of {} and k and v of {}: "
        "nothing "
        "is upcast",
        config.stages_stored, converters, config.upcast_ahead, to_string(spec.dtype),
        to_string(spec.key_dtype()));
  }
  if (wants_upcast_ahead(spec) && !config.upcast_ahead)
    return converted_scales_rejection(spec, name) + ": upcast_ahead must be true";
  if (config.upcast_ahead) {
    if (config.stages_stored != 0 || config.converter_warps != 0) {
      return fmt::format(
          "stages_stored = {} and converter_warps = {} must be 0 with upcast_ahead = true: the kernel reads "
          "k "
          "and v of {}",
          config.stages_stored, config.converter_warps, to_string(spec.dtype));
    }
    if (config.requests != Requests::all) {
      return "requests must be all with upcast_ahead = true: keys are upcast before the first kernel of a "
             "call";
    }
    if (spec.checked && spec.sequences_kv == SequenceKind::paged) {
      return "upcast_ahead must be false with checked and pages: which of them queries see is not known "
             "ahead";
    }
    return "";
  }
  if (config.stages_stored == 0) {
    return fmt::format("stages_stored must be 1 or more with k and v of {}: they are converted",
                       to_string(spec.key_dtype()));
  }
  if (config.converter_warps == 0) {
    return fmt::format("converter_warps must be {} or {} with k and v of {}: they are converted", spare_warps,
                       own_warps, to_string(spec.key_dtype()));
  }
  return "";
}

// Registers of a consumer for dropout.
int dropout_registers(const AttentionSpec& spec, const ForwardWgmma& config) {
  if (!spec.dropout) return 0;
  return random_registers +
         (config.dropout_mask_ahead ? dropout_mask_for_query_rows(config.tile_kv).words : config.tile_kv / 8);
}

// As in templates/steps/value_columns.cuh.
bool finishes_columns(const AttentionSpec& spec) {
  return spec.v_descale_per == ScaleKind::channel || spec.v_mean;
}

// Registers of functors of o. A lone 16-bit gate takes none: it comes by shared memory, when scores are done.
int registers_of_output(const AttentionSpec& spec, const ForwardWgmma& config) {
  const bool is_lone_gate =
      spec.output == output::sigmoid_gate(DType::bf16) || spec.output == output::sigmoid_gate(DType::fp16);
  const bool is_staged = config.output == OutputPlace::over_q && spec.alignment == tma_alignment;
  if (spec.output.is_none() || (is_lone_gate && is_staged && !has_quantized_output(spec))) return 0;
  const int tensors = std::max(1, static_cast<int>(spec.output.tensors().size()));
  return output_functor_registers * tensors + (drops_keys(spec) ? 2 : 0);
}

int estimated_registers(const AttentionSpec& spec, const ForwardWgmma& config) {
  const int scores = config.tile_kv / 2;
  const int output = padded_head_dim(spec.value_head_dim()) / 2;
  const int p = config.tile_kv * size_of(spec.dtype) / 8;
  const int sums = (config.promote_every > 0 ? output : 0) + sum_columns_of(spec, config) / 2;
  const int other =
      !upcasts(spec, config)
          ? other_registers
          : (config.converter_warps == spare_warps ? spare_upcast_registers : upcast_registers) +
                (config.output == OutputPlace::direct ? epilogue_work_registers : 0);
  const bool mask_reads = !has_row_range(spec.mask) && !spec.mask.tensors().empty();
  const bool looks_first = config.rescale == Rescale::lazy;
  const int largest = (asks_for(spec, largest_scores) && looks_first ? largest_score_registers : 0) +
                      (spec.mean_score ? largest_score_registers : 0);
  return scores + output + sums + p + other + largest + registers_of_output(spec, config) +
         (spec.score != Score() ? functor_registers : 0) + (mask_reads ? functor_registers : 0) +
         dropout_registers(spec, config);
}

// Uncertainty with fp32 results, stored from registers: masks and positions leave none for addresses.
int wide_output_doubt(const AttentionSpec& spec) {
  return (functor_count(spec.mask) > 0 ? 26 : 14) + (spec.q_positions && spec.k_positions ? 8 : 0);
}

// Registers by which estimates below the cap were seen to spill: joined masks with a position-dependent
// score, whose distances are computed ahead; prefetched score elements, with up to two consumers; fp8
// results; scales per row; fp8 pages; fp32 results; masks of positions.
int register_doubt(const AttentionSpec& spec, const ForwardWgmma& config) {
  const bool has_distances = functor_count(spec.mask) > 1 && !are_steady(spec.score);
  return 2 + (has_distances ? config.tile_kv / 4 : 0) +
         (reads_elements(spec.score) && config.tile_q < 192 ? config.tile_kv * 3 / 8 : 0) +
         (finishes_columns(spec) ? 4 : 0) + (spec.descale_per != ScaleKind::head ? 4 : 0) +
         (spec.lse_shift || asks_by_positions(spec) ? 2 : 0) +
         (has_wide_output(spec) ? wide_output_doubt(spec) : 0) +
         (has_fp8_queries(spec) && spec.sequences_kv == SequenceKind::paged ? 8 : 0);
}

}  // namespace

namespace forward_wgmma {

// Only for masks with row ranges: others only find the next key tiles.
bool goes_down(const AttentionSpec& spec) { return has_fp8_queries(spec) && has_row_range(spec.mask); }

// Not with 256 columns of V: columns of ones would need a separate wgmma, which is slower.
bool has_sums_by_products(const AttentionSpec& spec, const ForwardWgmma& config) {
  return padded_head_dim(spec.value_head_dim()) + sum_columns <= most_columns_of_wgmma &&
         can_sum_by_products(spec, config);
}

int sum_columns_of(const AttentionSpec& spec, const ForwardWgmma& config) {
  return has_sums_by_products(spec, config) ? sum_columns : 0;
}

// Not with text scores: their NaN may have a sign, and maxima would miss it.
int interpolated_exponentials(const AttentionSpec& spec) {
  const bool may_be = has_fp8_queries(spec) && spec.interpolated_exponentials &&
                      spec.descale_per != ScaleKind::block && !has_text(spec.score);
  return may_be ? exponential_group / 2 : 0;
}

int consumers_of(const ForwardWgmma& config) { return config.tile_q / rows_per_warpgroup; }

DropoutMaskTiles dropout_mask_tiles(const ForwardWgmma& config) {
  return {config.tile_q, config.tile_kv, dropout_mask_for_query_rows(config.tile_kv)};
}

bool has_key_words(const AttentionSpec& spec) { return key_words(spec.mask) == 1; }

bool has_stored_keys(const AttentionSpec& spec) { return has_narrow_keys(spec) && !has_fp8_queries(spec); }

bool wants_upcast_ahead(const AttentionSpec& spec) {
  return has_stored_keys(spec) && !converted_scales_rejection(spec, "").empty();
}

bool upcasts(const AttentionSpec& spec, const ForwardWgmma& config) {
  return has_stored_keys(spec) && !config.upcast_ahead;
}

AttentionSpec read_spec(const AttentionSpec& spec, const ForwardWgmma& config) {
  return config.upcast_ahead ? upcast_spec(spec) : upcasts(spec, config) ? converted_spec(spec) : spec;
}

RegisterShares register_shares(const AttentionSpec& spec, const ForwardWgmma& config) {
  constexpr int most = 240;
  const int consumers = consumers_of(config);
  const int launched = launched_registers(config), groups = warpgroups_of(config);
  if (launched >= most) return {};
  // Producers evaluate masks, which is cheap for arithmetic ones. Three consumers of 160 registers leave 32, in which
  // producers find positions and arrivals, too, but spill with tables of a mask.
  const ScoreMask* const score = score_mask(spec.score);
  const bool reads_tables = !spec.mask.tensors().empty() || (score != nullptr && !score->tensors.empty());
  const bool reads = reads_tables || asks_by_positions(spec) || spec.key_arrivals;
  // Producers read scales of keys. With fp8, consumers spill before producers do, and lose more by it.
  const bool is_simple =
      (!drops_keys(spec) || has_fp8_queries(spec)) && is_plain(spec) && spec.descale_per == ScaleKind::head;
  // Upcasting producer warps hold 32 bytes of rows in flight, and the results.
  const bool has_spare_converters = config.converter_warps == spare_warps;
  // 40 registers are too few to read lengths and also pass on tile infos of V, or load stored keys from
  // pages.
  const bool reads_pages = upcasts(spec, config) && spec.sequences_kv == SequenceKind::paged;
  const bool reads_more = reads || reads_pages || (!is_plain(spec) && has_fp8_queries(spec));
  const bool upcasts_by_producers = has_spare_converters && !has_fp8_queries(spec);
  const int producer = upcasts(spec, config) && has_converted_scales(spec) ? scaled_producer_registers
                       : consumers == 3 ? (reads_tables || upcasts_by_producers ? 56 : 32)
                       : reads_more     ? 56
                       : is_simple      ? 24
                                        : 40;
  const int converter = groups > consumers + 1 ? converter_registers : 0;
  const int consumer = (launched * groups - producer - converter) / consumers / 8 * 8;
  return {.producer = producer, .consumer = std::min(most, consumer), .converter = converter};
}

int output_columns_at_once(const AttentionSpec& spec, const ForwardWgmma& config) {
  const int own = padded_head_dim(spec.value_head_dim()), with_sums = own + sum_columns_of(spec, config);
  const int columns = with_sums <= most_columns_of_wgmma ? with_sums : own;
  const int most = (launched_registers(config) - instruction_registers) * 2 / 16 * 16;
  if (columns <= most || !has_narrow_keys(spec) || config.upcast_ahead) return columns;
  if (upcasts(spec, config)) return panel_columns(columns);  // an instruction begins with a panel
  return padded_head_dim(own / 2);
}

}  // namespace forward_wgmma

std::span<const ConfigField<ForwardWgmma>> Family<ForwardWgmma>::fields() { return rows; }

ForwardWgmma Family<ForwardWgmma>::smallest_for(const AttentionSpec& spec) {
  ForwardWgmma config = smallest;
  if (has_quantized_output(spec) && !fits_o_over_q(spec)) config.output = OutputPlace::separate;
  if (spec.dropout || has_fp8_queries(spec)) config.tile_kv = std::max(dropout_keys, facts(spec.dtype).mma_k);
  if (has_wide_output(spec) && !has_fp8_queries(spec)) config.output = OutputPlace::direct;
  config.upcast_ahead = wants_upcast_ahead(spec);
  if (upcasts(spec, config)) config.stages_stored = 1;
  if (upcasts(spec, config) || transposes_v(spec)) config.converter_warps = spare_warps;
  return config;
}

std::string Family<ForwardWgmma>::rejection(const Case& problem, const ForwardWgmma& config) {
  const auto& [spec, limits] = problem;
  if (has_fp8_queries(spec)) {
    if (std::string reason = fp8_rejection(spec, config); !reason.empty()) return reason;
  } else if (config.promote_every != 0) {
    return fmt::format("promote_every must be 0 with {}, whose products are summed in full",
                       to_string(spec.dtype));
  }
  if (config.rescale == Rescale::on_overflow && spec.mean_score)
    return "rescale must be lazy with mean_score: with on_overflow scores are not looked at before they are "
           "exponentials";
  if (config.output != OutputPlace::direct && has_wide_output(spec))
    return fmt::format("output must be direct with out_dtype {}", to_string(output_dtype(spec)));
  if (std::string reason = storage_rejection(spec, config); !reason.empty()) return reason;
  if (std::string reason = dropout_tile_rejection(spec, config.tile_kv); !reason.empty()) return reason;
  if (std::string reason = dropout_mask_rejection(spec, config.dropout_mask_ahead); !reason.empty())
    return reason;
  if (std::string reason = tma_rejection(problem, name); !reason.empty()) return reason;
  if (std::string reason = lone_block_rejection(spec, problem.limits.arch, config.tile_kv, name);
      !reason.empty())
    return reason;
  if (config.requests != Requests::all) {
    if (config.requests != part)
      return fmt::format("requests must be all or many_queries with family={}", name);
    if (spec.sequences_q != SequenceKind::varlen || spec.split_keys != 0)
      return "requests must be all where queries are not varlen, and with split_keys: one kernel computes a "
             "call";
  }
  if (std::string reason = box_rejection(spec, config.tile_kv, false);
      !config.upcast_ahead && !reason.empty())
    return reason;
  if (config.order != WarpgroupOrder::free && consumers_of(config) == 1) {
    return "order must be free with tile_q = 64: one consumer warpgroup has nobody to take turns with";
  }
  const int output_columns = output_columns_at_once(spec, config);
  const int accumulators = std::max(config.tile_kv, output_columns) / 2;
  if (accumulators + instruction_registers > launched_registers(config)) {
    return fmt::format("{} accumulators of one wgmma do not fit the {} registers per thread of {} warpgroups",
                       accumulators, launched_registers(config),
                       warpgroups_of(config) * config.blocks_per_sm);
  }
  if (config.output == OutputPlace::over_q && has_fp8_queries(spec))
    return "output must be separate or direct with fp8: O does not fit over Q";
  if (config.output == OutputPlace::over_q && !fits_o_over_q(spec)) {
    return fmt::format(
        "output must be separate or direct with head_dim {} and head_dim_v {}: O does not fit over Q",
        spec.head_dim, spec.value_head_dim());
  }
  return "";
}

Footprint Family<ForwardWgmma>::footprint(const AttentionSpec& spec, const ForwardWgmma& config) {
  const RegisterShares shares = register_shares(spec, config);
  return {.threads = threads_of(config),
          .smem_bytes = smem_bytes(spec, config),
          .registers = estimated_registers(spec, config),
          .register_cap = shares.consumer == 0 ? max_registers_per_thread : shares.consumer,
          .blocks_per_sm = config.blocks_per_sm,
          .register_slack = 0,
          .register_doubt = register_doubt(spec, config)};
}

std::vector<ForwardWgmma> Family<ForwardWgmma>::space(const Case& problem) {
  const AttentionSpec& spec = problem.spec;
  std::vector<ForwardWgmma> configs;
  if (problem.limits.arch != arch_of_tma) return configs;
  struct Stages {
    int q, k, v;
    OutputPlace output = OutputPlace::over_q;
    int stored = 0;
    int converters = 0;
    bool ahead = false;
  };
  using enum OutputPlace;
  std::vector<Stages> fp8_stage_counts;
  for (const Stages& stages : std::vector<Stages>{{2, 2, 2, separate},
                                                  {1, 2, 2, separate},
                                                  {1, 2, 2, direct},
                                                  {2, 2, 2, direct},
                                                  {2, 3, 2, separate}}) {
    for (const int converters : {spare_warps, own_warps}) {
      fp8_stage_counts.push_back(stages);
      fp8_stage_counts.back().converters = transposes_v(spec) ? converters : 0;
    }
  }
  const std::vector<Stages> wide_stage_counts = {{2, 2, 2, direct}, {1, 2, 2, direct}, {2, 3, 3, direct}};
  const std::vector<Stages> stage_counts = {{2, 2, 2},           {1, 2, 2}, {2, 3, 3}, {1, 2, 2, separate},
                                            {2, 2, 2, separate}, {2, 4, 4}, {1, 3, 2}};
  // A converter processes tiles in order: stored tiles wait for it, not vice versa.
  std::vector<Stages> upcast_stage_counts = {
      {2, 2, 2, over_q, 2, spare_warps}, {2, 2, 2, over_q, 1, spare_warps},
      {1, 2, 2, direct, 2, spare_warps}, {1, 2, 2, over_q, 2, spare_warps},
      {1, 2, 2, direct, 1, spare_warps}, {2, 3, 3, over_q, 2, spare_warps},
      {2, 2, 2, over_q, 1, own_warps},   {1, 2, 2, over_q, 2, own_warps},
      {1, 2, 2, separate, 1, own_warps}};
  for (Stages stages : stage_counts) {
    stages.ahead = true;
    upcast_stage_counts.push_back(stages);
  }
  const std::vector<Stages>& searched_stage_counts = has_fp8_queries(spec)   ? fp8_stage_counts
                                                     : has_stored_keys(spec) ? upcast_stage_counts
                                                     : has_wide_output(spec) ? wide_stage_counts
                                                                             : stage_counts;
  const std::vector<Rescale> rescales = promising_rescales(spec);
  const std::vector<bool> has_dropout_mask_ahead =
      dropout_mask_rejection(spec, true).empty() ? std::vector{true, false} : std::vector{false};
  for (const int consumers : {2, 3, 1}) {
    // With split_keys and lengths on the device, three consumers only compute maxima first: otherwise they
    // spill.
    const bool looks_first = consumers == 3 && spec.split_keys != 0 && !is_plain(spec);
    // Three consumers have 128 registers at launch, and spill if O of 16-bit inputs is stored from registers.
    if (consumers == 3 && has_wide_output(spec) && !has_fp8_queries(spec)) continue;
    // One block of three consumers has enough registers for the smallest tile's product.
    const std::vector<int> block_counts = consumers == 3 ? std::vector{1, 2} : std::vector{1, 2, 3};
    std::vector<WarpgroupOrder> orders = {WarpgroupOrder::ping_pong, WarpgroupOrder::free};
    if (consumers == 1) orders = {WarpgroupOrder::free};
    for (const int tile_kv : {32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224}) {
      for (const WarpgroupOrder order : orders) {
        for (const Stages& stages : searched_stage_counts) {
          for (const int blocks_per_sm : block_counts) {
            for (const Rescale rescale : looks_first ? std::vector{Rescale::lazy} : rescales) {
              for (const bool dropout_mask_ahead : has_dropout_mask_ahead) {
                // Omitted, since never faster: output = direct with 16 bits.
                configs.push_back({.tile_q = consumers * rows_per_warpgroup,
                                   .tile_kv = tile_kv,
                                   .stages_q = stages.q,
                                   .stages_k = stages.k,
                                   .stages_v = stages.v,
                                   .output = stages.output,
                                   .order = order,
                                   .rescale = rescale,
                                   .blocks_per_sm = blocks_per_sm,
                                   .stages_stored = stages.stored,
                                   .converter_warps = stages.converters,
                                   .upcast_ahead = stages.ahead,
                                   .dropout_mask_ahead = dropout_mask_ahead});
              }
            }
          }
        }
      }
    }
  }
  return configs;
}

}  // namespace jit
