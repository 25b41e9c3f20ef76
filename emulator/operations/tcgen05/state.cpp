// tcgen05: selection of the instruction, and common code.
#include "operations/tcgen05/state.h"

#include <bit>
#include <unordered_map>

#include <fmt/format.h>

#include "operations/barriers/mbarrier_wait.h"

namespace jit::emulator {

TensorUnitState& tensor_unit(Block& block) {
  if (!block.tensor) block.tensor = std::make_unique<TensorUnitState>(block);
  return *block.tensor;
}

void TensorUnitState::finish(Warp& warp) {
  if (!has_ended(warp.block)) return;
  pipe.finish(warp);
  allocation.finish(warp);
}

void require_tcgen05(Decoder& decoder) {
  const TargetArch target = decoder.target();
  if ((target.major == 10 || target.major == 11) && target.suffix != 0) return;
  decoder.fail(fmt::format("needs .target sm_100a or another of its family, this module is for sm_{}{}{}",
                           target.major, target.minor,
                           target.suffix ? std::string(1, target.suffix) : std::string()));
}

int take_cta_group(Decoder& decoder) {
  return decoder.take_one_of({"cta_group::1", "cta_group::2"}) == "cta_group::2" ? 2 : 1;
}

void check_cta_group(Warp& warp, int blocks) {
  int& before = tensor_unit(warp.block).pipe.cta_group;
  if (before == 0) before = blocks;
  if (before == blocks) return;
  warp.report(
      FindingKind::illegal_instruction, -1,
      fmt::format("all tcgen05 instructions of a kernel have the same .cta_group: this one has {}, and "
                  "others of the block have {}",
                  blocks, before));
}

Block& peer_of(Warp& warp) {
  const auto& blocks = warp.block.cluster.blocks;
  const unsigned peer = warp.block.rank ^ 1u;
  if (peer >= blocks.size()) {
    warp.stop(FindingKind::illegal_instruction, -1,
              fmt::format(".cta_group::2 takes a pair of blocks, the cluster has {}", blocks.size()));
  }
  return *blocks[peer];
}

std::unique_ptr<const Operation> decode_tcgen05(Decoder& decoder) {
  if (decoder.opcode() != "tcgen05") return nullptr;
  require_tcgen05(decoder);
  static const std::unordered_map<std::string, std::unique_ptr<const Operation> (*)(Decoder&)> by_name = {
      {"alloc", decode_tensor_alloc},
      {"dealloc", decode_tensor_dealloc},
      {"relinquish_alloc_permit", decode_tensor_relinquish},
      {"ld", decode_tensor_load},
      {"st", decode_tensor_store},
      {"wait::ld", decode_tensor_wait},
      {"wait::st", decode_tensor_wait},
      {"fence::before_thread_sync", decode_tensor_fence},
      {"fence::after_thread_sync", decode_tensor_fence},
      {"mma", decode_tensor_mma},
      {"cp", decode_tensor_copy},
      {"commit", decode_tensor_commit},
  };
  const std::vector<std::string>& modifiers = decoder.text().modifiers;
  const auto found = modifiers.empty() ? by_name.end() : by_name.find(modifiers.front());
  if (found == by_name.end()) decoder.fail("the emulator does not know this instruction of tcgen05");
  decoder.take(found->first);
  return found->second(decoder);
}

}  // namespace jit::emulator
