// The wgmma operations of one warp, from issue to completion (PTX ISA, "Asynchronous wgmma Instructions").
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "operations/tensor/fragments.h"
#include "operations/tensor/tensor_core.h"
#include "operations/tensor/wgmma_descriptor.h"
#include "operations/warps/register_watch.h"
#include "operations/warps/warpgroup.h"

namespace jit::emulator {

/// A wgmma.mma_async instruction.
struct WgmmaInstruction {
  int columns = 0;  ///< n
  int k = 0;
  Type a{}, b{};
  Major a_major = Major::k, b_major = Major::k;
  bool negate = false;  ///< −A·B
  AccumulatorFormat format = AccumulatorFormat::words;
  AccumulationModel model;
  std::vector<Slot> accumulators;
  std::vector<Slot> a_registers;  ///< empty: A is in shared memory

  /// A nonzero number for the shape.
  std::uint32_t shape() const { return static_cast<std::uint32_t>(columns << 8 | k); }
};

/// Operations take effect as late as possible: at the wait that covers them.
class WgmmaPipeline final : public RegisterWatch {
 public:
  WgmmaPipeline(Warp& warp, std::shared_ptr<Warpgroup> group);
  /// A warp's pipeline. The first call creates those of its whole warpgroup.
  static WgmmaPipeline& of(Warp& warp);

  void fence(Warp& warp);
  /// `accumulate`: D = A·B + D, else A·B. `instruction` must outlive the pipeline.
  void issue(Warp& warp, const WgmmaInstruction& instruction, std::uint64_t a, std::uint64_t b,
             bool accumulate);
  void commit(Warp& warp);
  /// wait_group: completes all but the last `remaining` groups, once all warps of the warpgroup have issued
  /// them.
  Flow wait(Warp& warp, std::uint64_t remaining);

  /// Reports accesses to registers that an operation in flight uses, and records writes since the last
  /// wgmma.fence.
  void watch(Warp& warp, const InstructionInfo& info) override;
  /// Reports operations without a wait.
  void finish(Warp& warp) override;

 private:
  // Accumulator of operations in flight, with the values of their D registers.
  struct Accumulator {
    const WgmmaInstruction* instruction;  // the first to use it
    std::vector<float> values;            // row-major
    int operations = 0;                   // number in flight
  };
  struct InFlight {
    const WgmmaInstruction* instruction;
    std::uint32_t pc;
    std::uint64_t a, b;
    bool accumulate;
    Accumulator* accumulator;
    Knowledge knowledge;     // at the issue
    std::uint64_t group;     // number of the commit that closes it
    std::uint64_t sequence;  // as the warpgroup counts
  };

  void check_fence(Warp& warp, const WgmmaInstruction& instruction);
  Accumulator& accumulator_of(Warp& warp, const WgmmaInstruction& instruction);
  void complete_first(Warp& warp);
  void multiply(Warp& warp, const InFlight& operation);
  // `slot` is used by an operation in flight.
  void report_in_flight(const Warp& warp, Slot slot, const char* what_happens) const;
  bool is_in_flight(Slot slot) const { return owner_[slot] != nullptr; }
  bool is_used(Slot slot) const { return is_in_flight(slot) || readers_[slot] != 0; }

  std::shared_ptr<Warpgroup> group_;
  std::deque<InFlight> pending_;
  std::vector<std::unique_ptr<Accumulator>> accumulators_;
  std::uint64_t commits_ = 0;
  std::uint64_t fences_ = 0;
  // The slot's accumulator, the number of operations that read it as A, and its last write: executed fences
  // times 2^17, plus the shape of the writing wgmma. Indexed by slot.
  std::vector<Accumulator*> owner_;
  std::vector<std::uint32_t> readers_;
  std::vector<std::uint64_t> written_;
};

}  // namespace jit::emulator
