// Programs that compile while their owner compiles another one.
#pragma once

#include <span>
#include <thread>
#include <vector>

#include "generator/build/image.h"

namespace jit {

/// Builds images on threads of their own, so that the owner, who asks for them later, finds them. Leaves errors to
/// the owner, who meets them again. The destructor waits.
class ImagesBeside {
 public:
  /// Begins with all programs that are not at hand. `store` must outlive the object.
  ImagesBeside(KernelStore& store, std::span<const Program> programs, Target target);

 private:
  std::vector<std::jthread> threads_;
};

}  // namespace jit
