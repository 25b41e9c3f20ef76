// tcgen05.commit (PTX ISA, "tcgen05.commit").
#include <bit>

#include <fmt/format.h>

#include "operations/tcgen05/state.h"
#include "operations/tcgen05/tensor_warp.h"
#include "operations/tensor/shared_operand.h"

namespace jit::emulator {
namespace {

struct CommitOperations final : Operation {
  int blocks;
  SharedOperand at;
  std::optional<Slot> block_mask;  ///< of .multicast::cluster

  Flow execute(Warp& warp) const override {
    check_cta_group(warp, blocks);
    for_each_lane(warp.exec, [&](int lane) { commit(warp, lane); });
    return Flow::next;
  }

 private:
  void commit(Warp& warp, int lane) const {
    const TensorWarp::Products& own = TensorWarp::of(warp).products(warp, lane);
    if (own.issued == 0) {
      warp.report(
          FindingKind::barrier_misuse, lane,
          "commits in a thread that has issued no tcgen05 operation: a commit covers its own thread's alone");
    } else if (block_mask && warp.knowledge.of(lane).known.past.at(own.agent) >= own.issued) {
      warp.report(
          FindingKind::barrier_misuse, lane,
          "a .multicast::cluster commit with nothing to wait for: silicon arrives in the own block alone");
    }
    std::vector<std::pair<Block*, Mbarrier*>> mbarriers;
    const SharedPlace place = at.place(warp, lane);
    for (Block* const block : receivers(warp, lane, *place.block)) {
      mbarriers.emplace_back(block, &use_mbarrier(warp, lane, {block, place.offset}, "commits to"));
    }
    tensor_unit(warp.block).pipe.commit(Issue(warp, lane), own.agent, own.issued, std::move(mbarriers));
  }

  std::vector<Block*> receivers(Warp& warp, int lane, Block& named) const {
    if (!block_mask) return {&named};
    const auto& blocks_there = warp.block.cluster.blocks;
    const std::uint32_t mask = warp.r32(*block_mask)[lane] & 0xffffu;
    if (mask == 0 || mask >> blocks_there.size() != 0) {
      warp.stop(FindingKind::illegal_instruction, lane,
                fmt::format(
                    "the block mask {:#06x} of .multicast::cluster must name some of the cluster's {} blocks "
                    "and no others",
                    mask, blocks_there.size()));
    }
    std::vector<Block*> receiving;
    for_each_lane(mask,
                  [&](int rank) { receiving.push_back(blocks_there[static_cast<std::size_t>(rank)].get()); });
    return receiving;
  }
};

}  // namespace

std::unique_ptr<const Operation> decode_tensor_commit(Decoder& decoder) {
  auto operation = std::make_unique<CommitOperations>();
  decoder.set_class(InstructionClass::barrier);
  operation->blocks = take_cta_group(decoder);
  decoder.take_one_of({"mbarrier::arrive::one"});
  const bool is_generic = decoder.take_any_of({"shared::cluster"}).empty();
  const bool is_multicast = decoder.take("multicast::cluster");
  decoder.take_one_of({"b64"});
  decoder.expect_count(is_multicast ? 2 : 1);
  operation->at = shared_operand(decoder, 0, is_generic);
  if (is_multicast) operation->block_mask = decoder.source(1, Type::u16);
  return operation;
}

}  // namespace jit::emulator
