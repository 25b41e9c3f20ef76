// Blocks of scores that a file selects; within them --mask decides.
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

/// Arrays by their names in functors.
using NamedArrays = std::map<std::string, Array>;

/// Returns an array's device address, or whatever address stands for it.
using Place = std::function<void*(Array&)>;

struct BlockMapOptions {
  std::vector<std::string>
      paths;  ///< of a map, or of block-sparse rows (indptr and indices); empty: not given
  std::vector<int> sides = {128, 128};
  std::int64_t scores = 0;  ///< blocks per batch entry and head whose scores the table can store
};
void add_block_map_options(CLI::App& app, BlockMapOptions& options);

/// Attention sizes that the map must match.
struct BlockMapSizes {
  std::int64_t batch;
  std::int64_t heads_q;
  std::int64_t seqlen_q;  ///< the longest sequence's
  std::int64_t seqlen_kv;
};

struct BlockMap {
  BlockMaskSpec spec;  ///< with the mask within the blocks
  BlockMapSizes sizes;
  Array blocks;           ///< uint8 (batch or 1, heads or 1, rows, columns)
  std::int64_t room = 0;  ///< number of blocks with stored scores, with spec.scores
};

/// Reads the files and restricts the mask of `spec` to their blocks; nothing when no file is given. Throws
/// BadInput, also for a map of other sizes, and Error.
std::optional<BlockMap> read_block_map(const BlockMapOptions& options, const BlockMapSizes& sizes,
                                       AttentionSpec& spec);

/// Adds tensor block_mask with the table as known without a device: blocks that may be visible, and, where
/// exact, which are fully visible. Rows stay in order. With stored scores, also adds block_places and
/// block_scores, still empty. Throws BadInput when such a tensor exists.
void add_known_table(const BlockMap& map, NamedArrays& tensors);

/// Names of the tensors that jit::block_mask writes.
std::vector<std::string> written_tensors(const BlockMap& map);

/// Arguments of jit::block_mask: outputs among `tensors`, and the inputs of the mask, without arrays of
/// sequence lengths.
BlockMaskArguments block_mask_arguments(BlockMap& map, NamedArrays& tensors, const Place& place);

}  // namespace jit::tool
