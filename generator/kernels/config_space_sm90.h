// The part of config_space.h that concerns wgmma kernels.
#pragma once

#include <string>
#include <vector>

#include "generator/kernels/config_space.h"

namespace jit::sm90 {

int consumers(const KernelConfig& config);
int threads_per_block(const KernelConfig& config);
int estimated_registers(const AttentionSpec& spec, const KernelConfig& config);
int register_cap(const AttentionSpec& spec, const KernelConfig& config);
int smem_bytes(const AttentionSpec& spec, const KernelConfig& config);

/// Whether the mask knows keys by a word of each, which the key loader leaves in shared memory: see
/// templates/problem/masks.cuh.
bool has_key_words(const AttentionSpec& spec);

/// What only the wgmma mainloop asks for.
std::string config_rejection(const AttentionSpec& spec, const KernelConfig& config,
                             const DeviceLimits& limits);

/// The legal configs of its search grid: none but on sm_90a.
std::vector<KernelConfig> config_space(const AttentionSpec& spec, const DeviceLimits& limits);

}  // namespace jit::sm90
