// The common part of families whose keys are split over blocks and whose blocks are warpgroups of producers
// and consumers (templates/split_keys/block_traits.cuh).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <jit/spec.h>

#include "generator/kernels/family.h"

namespace jit {

/// Threads of so many warpgroups.
constexpr int warpgroup_threads(int warpgroups) { return warpgroups * 128; }

/// Registers per thread that launch bounds leave.
int launched_registers(int threads, int blocks_per_sm);

/// Registers per thread that setmaxnreg gives to the warpgroups; 0: those that the kernel was launched with.
struct RegisterShares {
  int producer = 0;
  int consumer = 0;
  int converter = 0;  ///< of keys and values, where there is one
  int score = 0;      ///< the same where a warpgroup computes nothing but scores
};
/// Shares of registers of a block of one warpgroup of producers with `producer` registers, `consumers` warpgroups of
/// consumers, which have the others, and one of converters if these have registers.
RegisterShares shared_registers(int consumers, int blocks_per_sm, int producer, int converter = 0);

/// The differences between such programs.
struct SplitWgmmaProgram {
  std::string_view family;  ///< name, that of its namespace and of its folder of templates
  std::string tiles;        ///< end of the kernel's name
  std::string products;     ///< members of what its Config inherits, by wgmma_function
  std::string config;       ///< members of Config, by config_lines
  RegisterShares registers;
  Footprint needs;
  std::size_t memory_bytes;  ///< of its KernelMemory
};
Program split_wgmma_program(const AttentionSpec& spec, const SplitWgmmaProgram& parts);

}  // namespace jit
