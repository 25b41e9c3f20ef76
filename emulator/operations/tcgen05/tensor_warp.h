// tcgen05 operations of a warp: which of them have ended, and which of other warps' happen before.
//
// Loads, stores and the products of each thread are agents of the cluster. The id after an agent's represents
// its operations published by tcgen05.fence::before_thread_sync; every release passes them on.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <vector>

#include "machine/tensor_memory.h"
#include "operations/warps/register_watch.h"

namespace jit::emulator {

class TensorAccessInstruction;

class TensorWarp final : public RegisterWatch {
 public:
  explicit TensorWarp(Warp& warp);
  /// The state of a warp, created at the first use.
  static TensorWarp& of(Warp& warp);

  // Accesses by the current instruction.
  TensorAccess load_access(Warp& warp);
  TensorAccess store_access(Warp& warp);
  /// An access by tcgen05.dealloc, which barriers alone order: fences are for accesses.
  TensorAccess dealloc_access(Warp& warp);
  /// An access by a lane's next operation.
  TensorAccess product_access(Warp& warp, int lane);
  /// The agent of a lane's operations, and the number issued.
  struct Products {
    Agent agent = 0;
    std::uint32_t issued = 0;
  };
  Products& products(Warp& warp, int lane);

  void issue_load(Warp& warp, const TensorAccessInstruction& instruction, TensorPlace place);
  void issue_store(Warp& warp, const TensorAccessInstruction& instruction, TensorPlace place);
  void wait_for_loads(Warp& warp);
  void wait_for_stores(Warp& warp);
  /// Fences by the lanes `exec`.
  void fence_before(Warp& warp);
  void fence_after(Warp& warp);

  /// Ends pending loads whose result registers an instruction reads or writes.
  void watch(Warp& warp, const InstructionInfo& info) override;
  void finish(Warp& warp) override;

 private:
  struct Load {
    const TensorAccessInstruction* instruction;
    TensorPlace place;
    std::uint32_t time;
    bool is_over = false;
  };
  struct Store {
    const TensorAccessInstruction* instruction;
    TensorPlace place;
    std::vector<std::uint32_t> values;
  };
  /// The past of some lanes, after their waits and fences.
  struct View {
    std::uint32_t lanes;
    VectorClock ordered;
  };
  static bool is_strict(const Warp& warp);
  template <class F>
  void change(std::uint32_t lanes, F f);
  const VectorClock& ordered(Warp& warp, std::uint32_t lanes);
  void end_load(Warp& warp, Load& load);
  void land_stores(Warp& warp);

  Agent loads_, stores_;
  std::uint32_t loads_issued_ = 0, loads_over_ = 0, stores_issued_ = 0;
  std::array<Products, 32> products_{};
  std::deque<Load> pending_;
  std::vector<Store> stored_;
  std::vector<std::uint32_t> owner_;  // by slot: time of the pending load that writes it; 0: none
  std::vector<View> views_;
  VectorClock common_;
};

}  // namespace jit::emulator
