// Traits that follow from the Config of a wgmma kernel: tiles, shared memory, barriers, fragment counts.
#pragma once

#include "base/element.cuh"
#include "base/prelude.cuh"
#include "forward_wgmma/smem_layout.cuh"
#include "jit/options.h"
#include "mainloop/arrival_table.cuh"
#include "problem/masks.cuh"
#include "problem/scores.cuh"
#include "ptx/warpgroup.cuh"
#include "scheduling/work_tiles.cuh"
#include "split_keys/rows_apart.cuh"
#include "steps/softmax.cuh"
#include "steps/value_columns.cuh"
#include "tiles/accumulator.cuh"
#include "tiles/bounded_box.cuh"
#include "tiles/panel_tile.cuh"

namespace jit::forward_wgmma {

template <class KernelConfig>
struct KernelTraits {
  using Config = KernelConfig;
  using Element = typename Config::Element;
  static constexpr int mma_k = ElementTraits<Element>::mma_k;
  static_assert(Config::head_dim % 8 == 0 && Config::head_dim >= 8 && Config::head_dim <= 256,
                "head_dim must be a multiple of 8 from 8 to 256");
  static_assert(Config::head_dim_v % 8 == 0 && Config::head_dim_v >= 8 && Config::head_dim_v <= 256,
                "head_dim_v must be a multiple of 8 from 8 to 256");
  static_assert(Config::tile_q % rows_per_warpgroup == 0, "a warpgroup multiplies 64 rows");
  static_assert(Config::tile_kv % mma_k == 0 && Config::tile_kv <= 256,
                "tile_kv must be a multiple of wgmma's k, at most 256");
  static_assert(Config::alignment == 16, "TMA wants rows aligned to 16 bytes");
  static_assert(Config::rescale != Rescale::always, "maxima move when they must");
  static_assert(sizeof(Element) == 2 || Config::rescale == Rescale::lazy,
                "P of 8 bits overflows before its sum does");
  static_assert(sizeof(OutputElement<Config>) <= 2 || Config::output == OutputPlace::direct,
                "shared memory has room for 16 bits");
  static_assert(!quantizes_output<Config> || Config::output == OutputPlace::direct ||
                    Config::head_dim_v % chunk_bytes == 0,
                "TMA wants rows aligned to 16 bytes");

  /// Whether operands are 8-bit. Such products need K-major operands, so a tile of V has a row for each column.
  static constexpr bool multiplies_fp8 = sizeof(Element) == 1;
  /// Whether a warpgroup transposes values on their way to the consumers.
  static constexpr bool transposes_v = multiplies_fp8;
  /// Whether converter warps upcast 8-bit keys and values to 16 bits.
  static constexpr bool upcasts = keys_are_narrow<Config> && !multiplies_fp8;
  static constexpr bool has_converters = transposes_v || upcasts;
  static constexpr int converter_warps = Config::converter_warps;
  static_assert(upcasts == (Config::stages_stored > 0), "what is upcast has buffers of its own");
  static_assert(has_converters == (converter_warps > 0), "converters transpose values, or upcast");
  /// Whether the converters are the two producer warps that neither load values nor store O.
  static constexpr bool has_spare_converters = has_converters && converter_warps < warpgroup_size / warp_size;
  static_assert(!has_spare_converters || converter_warps == 2, "the others load");
  /// The index of the first converter warp in its warpgroup.
  static constexpr int first_converter =
      has_spare_converters ? warpgroup_size / warp_size - converter_warps : 0;
  static constexpr bool query_producer_stores = has_spare_converters && Config::output != OutputPlace::direct;
  static constexpr bool has_converter_group = has_converters && !has_spare_converters;

  /// Whether sequences may differ in length, which is then read on the device.
  static constexpr bool has_lengths = Config::sequences_q != SequenceKind::dense ||
                                      Config::sequences_kv != SequenceKind::dense || Config::sinks || upcasts;
  /// Whether keys are split into spans, whose partial results a consumer computes one after another.
  static constexpr bool has_spans = Config::split_keys != 0;
  /// Pairs of a waiting partial result that are read at once, in the registers of S; three consumers have few.
  static constexpr int span_reads =
      has_lengths && Config::tile_q > 2 * rows_per_warpgroup ? 8 : Config::tile_kv / 4;
  static_assert(!has_spans || (rows_are_independent<Config> && Config::split_keys % Config::tile_kv == 0),
                "rows move their maxima by themselves, and no tile lies in two spans");
  static constexpr Rescale rescale = has_spans ? split_rescale<Config> : Config::rescale;
  /// Whether exponentials are computed relative to an older maximum, and a new one is found only if they are large.
  static constexpr bool lazy_maxima = Config::rescale == Rescale::on_overflow;
  using Work = typename ChosenType<has_lengths, SequenceTile, WorkTile>::type;
  /// The part of a work tile that a consumer keeps in registers through the mainloop: all of it only if the consumer
  /// writes O itself.
  using EpilogueWork = typename ChosenType<Config::output == OutputPlace::direct, Work, WorkTile>::type;

  /// TMA boxes of a tile of keys: each lies in one page.
  static constexpr bool has_pages = Config::sequences_kv == SequenceKind::paged;
  static constexpr int box_rows = jit::box_rows(Config::tile_kv, has_pages ? Config::page_size : 0);
  static constexpr int boxes = Config::tile_kv / box_rows;
  static_assert(boxes <= warp_size, "each box of a tile has a lane that finds its page");
  static constexpr bool copies_by_lanes = false;  ///< whether all lanes copy even a tile of one box
  static constexpr bool loads_panels = false;     ///< stages have whole tiles

  static constexpr int consumers = Config::tile_q / rows_per_warpgroup;
  static constexpr int consumer_warps = consumers * 4;
  static constexpr int first_consumer_thread = warpgroup_size;
  static JIT_DEVICE unsigned block_of_grid() { return blockIdx.x; }
  static constexpr int threads = (consumers + 1 + has_converter_group) * warpgroup_size;

  static constexpr int head_dim_steps = padded_head_dim(Config::head_dim, mma_k) / mma_k;
  static constexpr int key_steps = Config::tile_kv / mma_k;

  // The score accumulators (S) of one consumer warp.
  using Scores = Accumulator<MmaLayout, 16, Config::tile_kv>;
  /// The layout of O: transposing V permutes its columns.
  using OutputLayout = typename ChosenType<transposes_v, EvenOddLayout, MmaLayout>::type;
  using Output = Accumulator<OutputLayout, 16, padded_head_dim(Config::head_dim_v)>;
  using Columns = ValueColumns<Config, Output>;

  /// Whether some queries of a tile may see none of its keys, or the accumulators of a query without keys may hold
  /// something else than 0: a mean of values, or 0 times a scale that is NaN.
  static constexpr bool may_lack_keys = !is_same<typename Config::Mask, NoMask> ||
                                        may_drop_keys<typename Config::Score> || upcasts ||
                                        keys_upcast_ahead<Config> || has_value_means<Config>;

  /// The lower half of a tile's keys, in whole steps of P V.
  static constexpr int lower_keys = lower_key_steps(Config::tile_kv, mma_k) * mma_k;
  /// Whether P V also computes the row sums of P, from columns of ones in V: per tile, of the rounded P.
  static constexpr bool sums_by_products = Config::sums_by_products;
  static_assert(!sums_by_products || (transposes_v && !Config::sinks && !has_block_scales<Config>),
                "sums of P are wanted when the last P V is done, and not before");

  /// Whether consumers skip the upper half of a tile of which they see only the lower half, such as their last tile
  /// under a causal mask.
  static constexpr bool has_lower_tiles =
      has_row_range<TileMask<Config>> && !keeps_every_score<TileMask<Config>>;

  /// The most tiles that a consumer skips at the end (in descending order, at the start) because only other consumers
  /// see them. It still holds the values of the tile before, and the producer needs a free stage.
  static constexpr int max_skipped_tiles =
      has_lower_tiles && Config::tile_kv < Config::tile_q && !has_arrivals<Config> ? Config::stages_v - 1 : 0;

  /// Types of Q and keys, and of P and values, as they are multiplied. fp16 has all numbers of 8 bits, and is
  /// made of two of them in one instruction; times scales they are q's type.
  using Key = typename ChosenType<upcasts && !converts_scales<Config>, fp16, Element>::type;
  using Weight = Key;
  /// Rows of a tile of transposed V: one per column, followed by the rows of ones.
  static constexpr int v_columns = transposed_rows(Config::head_dim_v), v_sum_columns = sum_columns;
  // Tiles of operands; QTile and OTile hold the rows of one consumer.
  using QTile = PanelTile<Key, rows_per_warpgroup, Config::head_dim>;
  using KTile = PanelTile<Key, Config::tile_kv, Config::head_dim>;
  using VTile = typename ChosenType<
      transposes_v, PanelTile<Weight, v_columns + (sums_by_products ? v_sum_columns : 0), Config::tile_kv>,
      PanelTile<Weight, Config::tile_kv, Config::head_dim_v>>::type;
  static_assert(!sums_by_products || VTile::bytes % 1024 == 0, "tiles begin at multiples of 1024");
  using OTile = PanelTile<OutputElement<Config>, rows_per_warpgroup, Config::head_dim_v>;

  // Tiles of K and V as TMA writes them, before conversion.
  using StoredKTile =
      PanelTile<KvElement<Config>, Config::tile_kv, stored_columns<KvElement<Config>>(Config::head_dim)>;
  using StoredVTile =
      PanelTile<KvElement<Config>, Config::tile_kv, stored_columns<KvElement<Config>>(Config::head_dim_v)>;
  static constexpr int stages_k = Config::stages_k, stages_v = Config::stages_v;
  static constexpr int stages_stored_k = upcasts ? Config::stages_stored : Config::stages_k;
  static constexpr int stages_stored_v = upcasts ? Config::stages_stored : Config::stages_v;

  /// Whether the key producer writes the mask's word of each key of a partial tile to shared memory.
  static constexpr bool has_key_words = key_words<typename Config::Mask> == 1;

  /// Words of mask bits that the key producer loads for a tile whose scores the mask has precomputed; 0: it never does.
  /// Converters do not pass such words on.
  static constexpr int mask_bit_words =
      upcasts ? 0 : jit::mask_bit_words<TileMask<Config>, Config::tile_q, Config::tile_kv>;
  static constexpr bool has_mask_bits = mask_bit_words > 0;

  /// Whether the key producer writes the scale of each key, or block of keys, to shared memory.
  static constexpr bool has_key_scales = has_row_scales<Config>;
  /// Whether each lane writes and reads a part of the data that accompanies a tile of keys.
  static constexpr bool keys_by_lanes = has_key_words || has_key_scales;  // mutate: LanesArrive

  static constexpr SmemSizes sizes = smem_sizes<Config>(has_key_words, mask_bit_words, has_lengths);
  static constexpr SmemLayout layout = smem_layout(sizes);
  static constexpr bool has_key_word_ranges = forward_wgmma::has_key_word_ranges(sizes);
  static constexpr int q_stage_bytes = q_stage_size(sizes);
  /// Whether O waits in the shared memory of the Q that it was computed from until it is stored.
  static constexpr bool o_aliases_q = o_lies_over_q(sizes);
  static constexpr int stages_o = o_stages(sizes);
  /// Bytes from one consumer's Q, or O, to the next one's.
  static constexpr int q_bytes = q_stage_bytes / consumers;
  static constexpr int o_bytes = o_aliases_q ? q_bytes : OTile::bytes;
  static_assert(!o_aliases_q || (QTile::row_bytes == OTile::row_bytes && !multiplies_fp8),
                "O lies over Q only when a warpgroup's rows of both cover the same bytes");

  /// Whether a consumer can compute the first scores of its next work tile before it has stored O of the last one: the
  /// next Q must not have to wait for the buffer of O.
  static constexpr bool runs_on = !o_aliases_q || Config::stages_q > 1;

  /// Whether values have a producer of their own: a tile in many boxes takes long to start.
  static constexpr bool has_value_producer = boxes > 1 && !has_spare_converters;

  /// Warps that read the work pipeline: the producer of keys or of queries (the other one writes it), the value
  /// producer and the storer if they exist, and all consumers.
  static constexpr int work_readers =
      1 + (has_value_producer ? 1 : 0) + (Config::output == OutputPlace::direct ? 0 : 1) + consumer_warps;
  /// Warps that release a stage of stored K.
  static constexpr int key_readers =
      (has_value_producer ? 1 : 0) + (upcasts ? converter_warps : consumer_warps);

  // Named barriers; 0 is __syncthreads'.
  static constexpr WarpgroupOrder order = Config::order;
  static constexpr int order_barrier = 1;                ///< one barrier per consumer, from this one on
  static constexpr int queries_barrier = 1 + consumers;  ///< one barrier per consumer, from this one on
};

}  // namespace jit::forward_wgmma
