// Blocks of scores that a file names, of which --mask decides what is seen.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <jit/block_mask.h>
#include <jit/spec.h>

#include "array.h"

namespace CLI {
class App;
}  // namespace CLI

namespace jit::tool {

/// Arrays by the names that functors know them by.
using NamedArrays = std::map<std::string, Array>;

/// Where an array lies on the device, or wherever its bytes shall be looked for.
using Place = std::function<void*(Array&)>;

struct BlockMapOptions {
  std::vector<std::string>
      paths;  ///< of a map, or of block-sparse rows: indptr and indices; empty: not given
  std::vector<int> sides = {128, 128};
  std::int64_t scores = 0;  ///< blocks of each batch entry and head whose scores the table knows
};
void add_block_map_options(CLI::App& app, BlockMapOptions& options);

/// Sizes of the attention that the map is for.
struct BlockMapSizes {
  std::int64_t batch;
  std::int64_t heads_q;
  std::int64_t seqlen_q;  ///< the most that a sequence has
  std::int64_t seqlen_kv;
};

struct BlockMap {
  BlockMaskSpec spec;  ///< its mask: that within the blocks
  BlockMapSizes sizes;
  Array blocks;           ///< uint8 (batch or 1, heads or 1, rows, columns)
  std::int64_t room = 0;  ///< for the scores of blocks, with spec.scores
};

/// Reads the files, and puts the mask of `spec` within their blocks; nothing where no file is given. Throws BadInput, also
/// for a map of other sizes, and Error.
std::optional<BlockMap> read_block_map(const BlockMapOptions& options, const BlockMapSizes& sizes,
                                       AttentionSpec& spec);

/// Adds tensor block_mask, what is known of the table without a device: blocks of which something may be seen, and, where
/// that is all of each, so much. Rows are in their own order. Where it is to know scores, also block_places and
/// block_scores, by which none is known yet. Throws BadInput where there is such a tensor.
void add_known_table(const BlockMap& map, NamedArrays& tensors);

/// The tensors that jit::block_mask writes.
std::vector<std::string> written_tensors(const BlockMap& map);

/// The arguments of jit::block_mask, which writes some of `tensors` and is given those that the mask reads, without those
/// of sequences that differ in length.
BlockMaskArguments block_mask_arguments(BlockMap& map, NamedArrays& tensors, const Place& place);

}  // namespace jit::tool
