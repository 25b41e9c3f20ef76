// Which configs are legal for a spec on a GPU, and roughly what each will need. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <jit/kernel_config.h>
#include <jit/spec.h>

namespace jit {

/// What of a GPU decides which configs are legal and which are promising.
struct DeviceLimits {
  Arch arch;
  int smem_per_block = 0;  ///< opt-in limit, bytes
  int smem_per_sm = 0;     ///< bytes
  int registers_per_sm = 65536;
  int sm_count = 0;
};

DeviceLimits device_limits(const DeviceInfo& device);
/// For an absent GPU: the architecture's limits and the multiprocessors of its usual data-centre or desktop
/// part.
DeviceLimits device_limits(Arch arch);

/// Registers that accumulators, fragments and addresses of a thread need, by counting; the assembler's own
/// figure differs by a few.
int estimated_registers(const AttentionSpec& spec, const KernelConfig& config);

/// Registers that a thread may have under the config's blocks_per_sm; of a wgmma kernel a consumer's.
int register_cap(const AttentionSpec& spec, const KernelConfig& config, const DeviceLimits& limits);

/// Threads of a block.
int threads_per_block(const KernelConfig& config);

/// Registers per thread that setmaxnreg gives to the warpgroups of a wgmma kernel; both 0: those that it was
/// launched with.
struct RegisterShares {
  int producer = 0;
  int consumer = 0;
};
RegisterShares register_shares(const AttentionSpec& spec, const KernelConfig& config);

/// Dynamic shared memory of a block in bytes.
int smem_bytes(const AttentionSpec& spec, const KernelConfig& config);

/// Why `config` cannot serve `spec` here: one sentence with field, value, rule. Empty: it can.
std::string config_rejection(const AttentionSpec& spec, const KernelConfig& config,
                             const DeviceLimits& limits);

/// Every legal config of the search grid, in a fixed order. With `with_slow_axes` also those that only serve
/// comparison: without swizzle and with ldmatrix.x2.
std::vector<KernelConfig> config_space(const AttentionSpec& spec, const DeviceLimits& limits,
                                       bool with_slow_axes = false);

}  // namespace jit
