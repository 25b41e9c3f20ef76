// The items that blocks of the grid take: so many slots of the transposed list of a block of keys.
#pragma once

#include "backward/key_tile_scheduler.cuh"
#include "backward_wgmma_lists/params.cuh"
#include "scheduling/query_block.cuh"

namespace jit {

struct ListedItem {
  int kv_head;
  int block;       ///< number of the block of keys; −1: nobody's
  int number;      ///< among the items of the block
  int first_slot;  ///< of those of the block
  int slots;
  int first_tile;  ///< among the tiles of the KV head
  bool is_last;    ///< of the block's
};

/// Items in the order of blocks, one KV head after another. All are drawn, the first ones, too: an item waits for those of the
/// same block that were drawn before (sums.cuh), so that the first one that is not done waits for nobody. By a whole warp.
template <class Config>
class ListedItems {
  static constexpr int tile_slots = listed_tile_slots(Config::gqa_ratio);
  static constexpr int item_slots = listed_item_slots(Config::gqa_ratio);

 public:
  JIT_DEVICE ListedItems(const AttentionParams& params, const ListedMaps& maps)
      : heads_(params.heads_kv), work_(maps.work), taken_(maps.schedule.taken) {}

  /// The number of the next one; −1: none is left.
  JIT_DEVICE int next() const {
    const int items = heads_ * work_.head_items;
    const int number = take_number(taken_, items + static_cast<int>(gridDim.x));
    return number < items ? number : -1;
  }

  JIT_DEVICE ListedItem item(int number) const {
    const int kv_head = number / work_.head_items;
    const int* const starts = work_.starts + static_cast<long long>(kv_head) * (work_.block_limit + 1);
    const auto begin = [&](int block) { return starts[block]; };
    const auto [block, first_slot] =
        varlen_place<item_slots>(number - kv_head * work_.head_items, work_.blocks_of_head, begin);
    const int slots = begin(block + 1) - begin(block);
    ListedItem item{kv_head, block, first_slot / item_slots, first_slot, 0, 0, true};
    if (first_slot < 0 || (first_slot > 0 && first_slot >= slots)) return {kv_head, -1};
    item.slots = minimum(slots - first_slot, item_slots);
    item.is_last = slots - first_slot <= item_slots;
    item.first_tile =
        static_cast<int>(first_varlen_tile(block, begin(block), tile_slots)) + first_slot / tile_slots;
    return item;
  }

 private:
  const int heads_;
  const ListedWork& work_;
  unsigned* const taken_;
};

}  // namespace jit
