// tcgen05 operations of a warp: which of them have ended, and what of others' lies in its past.
//
// Loads, stores and the products of each thread are agents of the cluster. The id behind an agent's stands for what
// tcgen05.fence::before_thread_sync has published of it, which travels with every release.
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
  /// The state of a warp, made at the first use.
  static TensorWarp& of(Warp& warp);

  // Accesses by the instruction that is being executed.
  TensorAccess load_access(Warp& warp);
  TensorAccess store_access(Warp& warp);
  /// An access by tcgen05.dealloc, which is behind what barriers put before it: fences are for accesses.
  TensorAccess dealloc_access(Warp& warp);
  /// By an operation that a lane issues, as the next of its thread.
  TensorAccess product_access(Warp& warp, int lane);
  /// As whom a lane's operations act on memory, and how many it has issued.
  struct Products {
    Agent agent = 0;
    std::uint32_t issued = 0;
  };
  Products& products(Warp& warp, int lane);

  void issue_load(Warp& warp, const TensorAccessInstruction& instruction, TensorPlace place);
  void issue_store(Warp& warp, const TensorAccessInstruction& instruction, TensorPlace place);
  void wait_for_loads(Warp& warp);
  void wait_for_stores(Warp& warp);
  /// By the lanes `exec`.
  void fence_before(Warp& warp);
  void fence_after(Warp& warp);

  /// Lets loads end whose registers an instruction reads, or writes.
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
  /// The past of some lanes, as wait and fence have made it.
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
  std::vector<std::uint32_t> owner_;  // by slot: the time of the load that is to write it; 0: none
  std::vector<View> views_;
  VectorClock common_;
};

}  // namespace jit::emulator
