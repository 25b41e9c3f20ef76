// Choosing among configs by what the assembler makes of their kernels.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <jit/kernel_config.h>

#include "generator/build/image.h"

namespace jit {

/// A config and the image of its kernel.
struct BuiltConfig {
  KernelConfig config;
  std::shared_ptr<const KernelImage> image;
};

/// The first of `configs` whose kernel, as `write` writes it, is clean (ResourceUsage::is_clean). When none of
/// the first few is, the best of them, with a warning event. Only the assembler knows, so that for PTX it is
/// the first config. Requires: there is a config. Throws what build_image throws.
BuiltConfig build_clean(ContextState& context, const std::vector<KernelConfig>& configs,
                        const std::function<Program(const KernelConfig&)>& write, Target target);

}  // namespace jit
