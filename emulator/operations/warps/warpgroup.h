// Four neighboring warps that execute wgmma and setmaxnreg together.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

#include "machine/warp.h"

namespace jit::emulator {

inline constexpr int warpgroup_warps = 4;

/// Registers of the block that setmaxnreg.dec has freed. Wait token: the number that the warp wants.
class RegisterPool final : public Waitable {
 public:
  explicit RegisterPool(Block& block) : block_(block) {}
  bool is_over(std::uint64_t token) const override;
  std::string describe(std::uint64_t token) const override;

 private:
  Block& block_;
};

/// The instructions that a warpgroup executes together, compared among its warps. Wait token: the number of
/// instructions that every warp must have executed.
class Warpgroup final : public Waitable {
 public:
  /// A warp's warpgroup; the first call creates it for all of its warps.
  static Warpgroup& of(Warp& warp);
  /// The warpgroup of `warp`. Stops the launch unless the block has all of its 128 threads.
  explicit Warpgroup(Warp& warp);

  /// An instruction's operands that must be the same in all warps: the descriptors of A and B, or 0.
  struct Operands {
    std::uint64_t a = 0, b = 0;
    bool operator==(const Operands&) const = default;
  };
  /// Records that `warp` executes its current instruction, and reports a different instruction of another
  /// warp at the same position. Returns how many `warp` has executed, including this one.
  std::uint64_t execute(Warp& warp, const Operands& operands);
  /// Called when a warp's last lane exits: reports when others have executed more, or have exited with fewer.
  void exit(const Warp& warp);

  bool is_over(std::uint64_t token) const override;
  std::string describe(std::uint64_t token) const override;

  const RegisterPool& pool() const { return pool_; }

 private:
  struct Step {
    std::uint32_t pc;
    int warp;  ///< the first to arrive
    Operands operands;
  };
  // `exited` has executed fewer than others.
  void report_missing(const Warp& warp, const Warp& exited);
  std::size_t member(const Warp& warp) const { return static_cast<std::size_t>(warp.id % warpgroup_warps); }

  Block& block_;
  const int first_warp_;
  std::deque<Step> steps_;   // steps that not all warps have executed
  std::uint64_t begin_ = 0;  // number of the first of them
  std::array<std::uint64_t, warpgroup_warps> executed_{};
  bool differs_ = false;  // comparison has ended after a difference
  RegisterPool pool_;
};

}  // namespace jit::emulator
