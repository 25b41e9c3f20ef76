// Shared by split-KV families whose blocks have producer and consumer warpgroups
// (templates/split_keys/block_traits.cuh).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <jit/spec.h>

#include "generator/kernels/family.h"

namespace jit {

/// Number of threads in `warpgroups` warpgroups.
constexpr int warpgroup_threads(int warpgroups) { return warpgroups * 128; }

/// Registers per thread at launch, as launch bounds allow.
int launched_registers(int threads, int blocks_per_sm);

/// Registers per thread by setmaxnreg; 0: unchanged since launch.
struct RegisterShares {
  int producer = 0;
  int consumer = 0;
  int converter = 0;  ///< of keys and values, if there is one
  int score = 0;      ///< of a warpgroup that only computes scores
};
/// Register shares of a block with one producer warpgroup of `producer` registers, `consumers` consumer
/// warpgroups, which share the rest, and a converter warpgroup if `converter` is not 0.
RegisterShares shared_registers(int consumers, int blocks_per_sm, int producer, int converter = 0);

/// The parts that differ among these programs.
struct SplitWgmmaProgram {
  std::string_view family;  ///< its name, namespace and template folder
  std::string tiles;        ///< suffix of the kernel's name
  std::string products;     ///< members of Config's base class, by wgmma_function
  std::string config;       ///< members of Config, by config_lines
  RegisterShares registers;
  Footprint needs;
  std::size_t memory_bytes;  ///< size of its KernelMemory
  int cluster = 1;           ///< blocks of a cluster
};
Program split_wgmma_program(const AttentionSpec& spec, const SplitWgmmaProgram& parts);

}  // namespace jit
