// How a pack is told of a kernel that serves whatever the sizes are.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "generator/build/image.h"

namespace jit {

struct ContextState;

/// Builds a kernel, which the context then has. Throws what build_image throws. Thread safe.
using KernelBuild = std::function<std::shared_ptr<const KernelImage>(ContextState& context)>;

/// That of a program.
inline KernelBuild build_of(Program program, Target target) {
  return [program = std::move(program), target](ContextState& context) {
    return build_image(context, program, target);
  };
}

}  // namespace jit
