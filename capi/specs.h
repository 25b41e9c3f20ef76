// Specs of all operations from a jit_spec's text.
#pragma once

#include <optional>

#include <jit/append.h>
#include <jit/block_mask.h>
#include <jit/c.h>
#include <jit/kernel_config.h>
#include <jit/key_mass.h>
#include <jit/merge.h>
#include <jit/quantize.h>
#include <jit/spec.h>

namespace jit::c {

// Each reads and checks a spec. They throw Error invalid_argument for unreadable text, and invalid_spec.
AttentionSpec attention_spec_of(const jit_spec& spec);
AppendSpec append_spec_of(const jit_spec& spec);
MergeSpec merge_spec_of(const jit_spec& spec);
QuantizeSpec quantize_spec_of(const jit_spec& spec);
BlockMaskSpec block_mask_spec_of(const jit_spec& spec);
KeyMassSpec key_mass_spec_of(const jit_spec& spec);

/// The attention spec of the text, unchecked.
AttentionSpec read_attention_spec(const jit_spec& spec);

/// The config in an attention spec; nothing when it has none.
std::optional<KernelConfig> config_of(const jit_spec& spec);

}  // namespace jit::c
