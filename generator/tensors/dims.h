// Symbolic shapes: a tensor's dimensions in terms of the problem's sizes.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include <jit/options.h>

#include "templates/base/params.cuh"

namespace jit {

/// The sizes of a problem.
struct Extents {
  std::int64_t batch = 1;
  std::int64_t seqlen_q = 1;   ///< the maximum if lengths differ
  std::int64_t seqlen_kv = 1;  ///< likewise
  std::int64_t heads_q = 1;
  std::int64_t heads_kv = 1;
  std::int64_t head_dim = 1;
  std::int64_t head_dim_v = 1;
  std::int64_t k_row = 1;      ///< elements per row of k: bytes if packed
  std::int64_t v_row = 1;      ///< elements per row of v
  std::int64_t k_blocks = 1;   ///< blocks of columns of a row of k that share a one-byte scale
  std::int64_t v_blocks = 1;   ///< likewise for v
  std::int64_t blocks_q = 1;   ///< of scale_block_rows rows of q: per batch entry, or of all varlen rows
  std::int64_t blocks_kv = 1;  ///< likewise of k, or per page
  std::int64_t total_q = 1;    ///< rows of varlen q
  std::int64_t total_k = 1;    ///< rows of varlen k
  std::int64_t pages = 1;
  std::int64_t page_size = 1;
  std::int64_t max_pages = 1;      ///< per sequence
  std::int64_t boundaries = 2;     ///< batch + 1, of cu_seqlens
  std::int64_t rng_words = 2;      ///< seed and offset
  std::int64_t list_rows = 1;      ///< lists of keys, each of one or more rows of q
  std::int64_t entries = 1;        ///< per list
  std::int64_t pieces = 1;         ///< pieces of a sequence in a position table
  std::int64_t piece_words = 4;    ///< row, position, run, stride
  std::int64_t words = 1;          ///< 32-bit words with a bit per query; at least 1 if lengths differ
  std::int64_t block_rows = 1;     ///< of a block mask: blocks of queries
  std::int64_t block_words = 2;    ///< words per row: two per 32 blocks of keys
  std::int64_t block_columns = 1;  ///< blocks of keys
  std::int64_t block_room = 1;     ///< blocks with mask bits
  std::int64_t score_words = 32;   ///< words per such block
};

/// Number of blocks of rows that share a scale.
constexpr std::int64_t scale_blocks_of(std::int64_t rows) {
  return (rows + scale_block_rows - 1) / scale_block_rows;
}

/// Number of 32-bit words.
constexpr std::int64_t words_of(std::int64_t bits) { return (bits + 31) / 32; }

/// A size, by name.
struct Extent {
  std::string_view name;       ///< "seqlen_q"
  std::string_view dimension;  ///< the tensor's own name for it: "seqlen"
  std::int64_t Extents::*size;
  long long TensorStrides::*stride = nullptr;  ///< along it; null: always 1
};
inline constexpr std::array extent_table = {
    Extent{"batch", "batch", &Extents::batch, &TensorStrides::batch},
    Extent{"seqlen_q", "seqlen", &Extents::seqlen_q, &TensorStrides::seq},
    Extent{"seqlen_kv", "seqlen", &Extents::seqlen_kv, &TensorStrides::seq},
    Extent{"blocks_q", "blocks", &Extents::blocks_q, &TensorStrides::seq},
    Extent{"blocks_kv", "blocks", &Extents::blocks_kv, &TensorStrides::seq},
    Extent{"heads_q", "heads", &Extents::heads_q, &TensorStrides::head},
    Extent{"heads_kv", "heads", &Extents::heads_kv, &TensorStrides::head},
    Extent{"head_dim", "head_dim", &Extents::head_dim},
    Extent{"head_dim_v", "head_dim", &Extents::head_dim_v},
    Extent{"k_row", "row", &Extents::k_row},
    Extent{"v_row", "row", &Extents::v_row},
    Extent{"k_blocks", "blocks", &Extents::k_blocks},
    Extent{"v_blocks", "blocks", &Extents::v_blocks},
    Extent{"total_q", "total_q", &Extents::total_q, &TensorStrides::seq},
    Extent{"total_k", "total_k", &Extents::total_k, &TensorStrides::seq},
    Extent{"pages", "pages", &Extents::pages, &TensorStrides::batch},
    Extent{"page_size", "page_size", &Extents::page_size, &TensorStrides::seq},
    Extent{"max_pages", "max_pages", &Extents::max_pages},
    Extent{"batch + 1", "batch + 1", &Extents::boundaries},
    Extent{"2", "size", &Extents::rng_words},
    Extent{"list_rows", "list_rows", &Extents::list_rows},
    Extent{"entries", "entries", &Extents::entries},
    Extent{"pieces", "pieces", &Extents::pieces},
    Extent{"4", "size", &Extents::piece_words},
    Extent{"words", "words", &Extents::words},
    Extent{"block_rows", "block_rows", &Extents::block_rows},
    Extent{"block_words", "block_words", &Extents::block_words},
    Extent{"block_columns", "block_columns", &Extents::block_columns},
    Extent{"block_room", "block_room", &Extents::block_room},
    Extent{"score_words", "score_words", &Extents::score_words}};

/// One dimension of a tensor.
struct Dim {
  const Extent* extent = nullptr;
  bool may_broadcast = false;  ///< a size of 1 broadcasts
  bool may_be_missing = false;
  bool may_be_more = false;  ///< the size is a minimum
  bool may_be_one_more = false;
};

/// The dimensions of a tensor, written as "batch?, seqlen_q": "?" allows 1, "+" more, "^" one more; a first
/// dimension in brackets may be missing: "[batch?], heads_q".
class Dims {
 public:
  consteval Dims(const char* text) : Dims(std::string_view(text)) {}
  consteval Dims(std::string_view text) {
    while (!text.empty()) {
      const std::string_view item = text.substr(0, text.find(", "));
      text.remove_prefix(item.size() == text.size() ? item.size() : item.size() + 2);
      dims_[static_cast<std::size_t>(count_++)] = read(item);
    }
  }

  int count() const { return count_; }
  int fewest() const { return count_ > 0 && dims_[0].may_be_missing ? count_ - 1 : count_; }
  const Dim& operator[](int i) const { return dims_[static_cast<std::size_t>(i)]; }
  const Dim* begin() const { return dims_.data(); }
  const Dim* end() const { return dims_.data() + count_; }

  /// Text such as "(batch, seqlen_q)" or "(heads_q) or (batch, heads_q)".
  std::string to_string() const;

 private:
  static consteval Dim read(std::string_view item) {
    Dim dim;
    if (item.starts_with('[')) {
      dim.may_be_missing = true;
      item = item.substr(1, item.size() - 2);
    }
    if (item.ends_with('?')) {
      dim.may_broadcast = true;
      item.remove_suffix(1);
    } else if (item.ends_with('+')) {
      dim.may_be_more = true;
      item.remove_suffix(1);
    } else if (item.ends_with('^')) {
      dim.may_be_one_more = true;
      item.remove_suffix(1);
    }
    for (const Extent& extent : extent_table) {
      if (extent.name == item) dim.extent = &extent;
    }
    if (dim.extent == nullptr) throw "no size of a problem has this name";
    return dim;
  }

  std::array<Dim, 4> dims_ = {};
  int count_ = 0;
};

}  // namespace jit
