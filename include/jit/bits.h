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

/// A text with every fact, except q, k, v and the tensors of mask and score, that determines the bits of a query's o
/// and LSE: the version of the arithmetic, the architecture, and from the spec the type, head dims, mask, score, output
/// functor, scale, sinks, positions and split_keys. With one version of NVRTC and equal texts, calls compute bitwise
/// identical results, whatever their layouts, batches, chunks, configs and kernel families, under masks that count
/// positions from the end (docs/batch-invariance.md). A trainer and an engine compare their texts before the first
/// step. Pure, thread safe. Throws Error invalid_spec, also if the bits depend on more: without split_keys, with FP8,
/// 8- or 4-bit keys, latents or head dims above 256; unsupported_device if known_archs() lacks the architecture.
std::string bits_of(const AttentionSpec& spec, Arch arch);
/// Texts of a device are those of its architecture.
std::string bits_of(const AttentionSpec& spec, const DeviceInfo& device);

}  // namespace jit
