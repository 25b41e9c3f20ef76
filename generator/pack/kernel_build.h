// Builds of kernels that serve all sizes, for packs.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "generator/build/image.h"

namespace jit {

struct KernelStore;

/// Builds a kernel into the store. Throws the errors of build_image. Thread safe.
using KernelBuild = std::function<std::shared_ptr<const KernelImage>(KernelStore& store)>;

/// Returns the build of a program for a target.
inline KernelBuild build_of(Program program, Target target) {
  return [program = std::move(program), target](KernelStore& store) {
    return build_image(store, program, target);
  };
}

}  // namespace jit
