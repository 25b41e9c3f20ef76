#include "generator/build/images_beside.h"

#include <exception>

#include "generator/build/kernel_store.h"

namespace jit {

ImagesBeside::ImagesBeside(KernelStore& store, std::span<const Program> programs, Target target) {
  if (store.settings.offline) return;
  try {
    for (const Program& program : programs) {
      if (image_at_hand(store, program, target)) continue;
      threads_.emplace_back([&store, program, target] {
        try {
          build_image(store, program, target);
        } catch (const std::exception&) {
        }
      });
    }
  } catch (const std::exception&) {  // no compiler, or no further thread
  }
}

}  // namespace jit
