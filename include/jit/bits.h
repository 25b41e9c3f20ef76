/// @file
/// Texts that name everything by which bits of results are decided.
///
/// @code
/// const jit::Arch arch = jit::parse_arch("sm_90a");
/// const jit::AttentionSpec trained{.sequences_q = jit::SequenceKind::varlen, .split_keys = 4096};
/// const jit::AttentionSpec served{
///     .sequences_kv = jit::SequenceKind::paged, .page_size = 16, .split_keys = 4096};
/// assert(jit::bits_of(trained, arch) == jit::bits_of(served, arch));  // whatever kernels they take
/// @endcode
#pragma once

#include <string>

#include <jit/arch.h>
#include <jit/device.h>
#include <jit/error.h>
#include <jit/spec.h>

namespace jit {

/// Everything that decides the bits of o and LSE of a query beside q, k and v and what mask and score read, as a text:
/// the version of the arithmetic, the architecture, and of the spec type, head dims, mask, score, output functor,
/// scale, sinks, positions and split_keys. Calls with one version of NVRTC and equal texts compute bitwise identical results under masks
/// that count positions from the end, whatever their layouts, batches, chunks, configs and kernel families
/// (docs/batch-invariance.md says under which). A trainer and an engine compare theirs before
/// the first step. Pure, thread safe. Throws Error invalid_spec, also where bits depend on more: without split_keys, of FP8,
/// narrow keys, latents or head dims above 256; unsupported_device for an architecture that known_archs() lacks.
std::string bits_of(const AttentionSpec& spec, Arch arch);
/// Texts of a device are those of its architecture.
std::string bits_of(const AttentionSpec& spec, const DeviceInfo& device);

}  // namespace jit
