/// @file
/// The named choices of specs and configs. Host and kernels share this file: it includes nothing.
#pragma once

namespace jit {

/// Where query 0 stands among the keys when seqlen_q and seqlen_kv differ.
enum class Alignment {
  bottom_right,  ///< the last query stands at the last key: query q at key q + seqlen_kv − seqlen_q
  top_left,      ///< query q stands at key q
};

/// How the sequences of a batch lie in a tensor.
enum class SequenceKind {
  dense,   ///< (batch, seqlen, heads, head_dim): each batch entry has room for as many rows
  varlen,  ///< (rows of all sequences, heads, head_dim): concatenated, delimited by cu_seqlens
  paged,  ///< (pages, page_size, heads, head_dim): pages anywhere, listed in page_table; keys and values only
  /// As dense, with the rows in use given by seqused_q or seqused_k. Only in QuantizeSpec, and in specs that the
  /// library derives; AttentionSpec has dense.
  padded,
};

/// The granularity of the scales of 8- and 4-bit rows.
enum class ScaleKind {
  head,     ///< one scale, one per KV head, or one per batch entry and KV head
  token,    ///< one per key and KV head; with 8-bit q one per row of q and k, and none of v
  channel,  ///< only of v: one per KV head and column, and per batch entry or for all
  block,    ///< only of 8-bit q and k: one per 64 rows and head
};
/// Rows that share a scale with ScaleKind::block, as they lie: of a batch entry, of all varlen rows, or of a page.
inline constexpr int scale_block_rows = 64;

/// The granularity of the scale of a tensor that is quantized to 8 bits, which is found from its largest
/// magnitude, unless it is given.
enum class QuantizedScales {
  given,    ///< none is found
  head,     ///< one for each batch entry and KV head
  token,    ///< one for each row
  channel,  ///< one for each batch entry, KV head and column
  block,    ///< one for each scale_block_rows rows of a batch entry and head; varlen rows are one entry
};

/// Whether a quantizer whose scales depend on whole sequences keeps their rows in shared memory or reads them twice.
enum class KeepRows {
  automatic,  ///< where that can be, and is faster
  never,
  /// Wherever there are rows: a call whose tensors cannot be kept is refused. Where the program is not at hand, in a
  /// capture without prepare(), or has no room for a block, rows are read twice.
  always,
};

/// The class of a tile of scores under a mask.
enum class TileClass {
  empty,    ///< nothing: the tile is skipped
  partial,  ///< some, or it is not known
  full,     ///< all: no mask code runs
};

/// When the accumulated output is rescaled to a new row maximum.
enum class Rescale {
  always,  ///< at every tile
  /// Once some maximum of the warp has grown by more than 2^8, or a key may dominate its row, whose rounding would
  /// show. The result is the same up to rounding, because the maximum cancels when the row is normalized.
  lazy,
  /// As lazy, but maxima are not computed until a sum of exponentials is large; beyond 2^40 (fp16: 2^14) the tile is
  /// recomputed.
  on_overflow,
};

/// How the consumer warpgroups' use of tensor cores and of exponentials is put in order.
enum class WarpgroupOrder {
  free,       ///< as it comes
  ping_pong,  ///< they issue their multiplications in turns
};

/// The way of a tile of O from registers to memory.
enum class OutputPlace {
  over_q,    ///< by way of the shared memory of the Q that it was computed from
  separate,  ///< by way of shared memory of its own
  direct,    ///< from the registers, without shared memory
};

/// The way of tiles to shared memory.
enum class Copies {
  tma,       ///< in boxes, by one thread each
  cp_async,  ///< row by row, wherever these lie
};

/// Which requests of a call a kernel computes, by the number of their queries (templates/scheduling/request_kinds.cuh).
enum class Requests {
  all,           ///< one kernel does
  many_queries,  ///< beside a kernel that computes the others, and starts under this one
  few_queries,   ///< the others
};

}  // namespace jit
