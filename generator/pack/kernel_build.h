// How a pack is told of a kernel that serves whatever the sizes are.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "generator/build/image.h"

namespace jit {

struct KernelStore;

/// Builds a kernel, which the store then has. Throws what build_image throws. Thread safe.
using KernelBuild = std::function<std::shared_ptr<const KernelImage>(KernelStore& store)>;

/// Returns the build of a program for a target.
inline KernelBuild build_of(Program program, Target target) {
  return [program = std::move(program), target](KernelStore& store) {
    return build_image(store, program, target);
  };
}

}  // namespace jit
