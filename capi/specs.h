// Specs of all operations from the text of a jit_spec.
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

// Each reads a spec and checks it. They throw Error invalid_argument for text that cannot be read, and invalid_spec.
AttentionSpec attention_spec_of(const jit_spec& spec);
AppendSpec append_spec_of(const jit_spec& spec);
MergeSpec merge_spec_of(const jit_spec& spec);
QuantizeSpec quantize_spec_of(const jit_spec& spec);
BlockMaskSpec block_mask_spec_of(const jit_spec& spec);
KeyMassSpec key_mass_spec_of(const jit_spec& spec);

/// The attention spec as its text says, without a check.
AttentionSpec read_attention_spec(const jit_spec& spec);

/// The config that a spec of attention gives; nothing where it gives none.
std::optional<KernelConfig> config_of(const jit_spec& spec);

}  // namespace jit::c
