// Access of library sources to the state of public handles: creates handles and opens them.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <jit/attention.h>
#include <jit/compiled_kernel.h>
#include <jit/context.h>

namespace jit {

struct Access {
  static const std::shared_ptr<ContextState>& state(const Context& context) { return context.state_; }

  static Attention attention(std::shared_ptr<const AttentionState> state) {
    return Attention(std::move(state));
  }

  template <class Handle, class Spec, class State>
  static Handle handle(const Spec& spec, std::shared_ptr<const State> state) {
    return Handle(spec, std::move(state));
  }

  static CompiledKernel kernel(std::shared_ptr<ContextState> context, AttentionSpec spec, KernelConfig config,
                               std::shared_ptr<const KernelImage> image, std::string why,
                               std::vector<std::string> tuning_log = {}) {
    return {std::move(context), std::move(spec), config,
            std::move(image),   std::move(why),  std::move(tuning_log)};
  }
  static const std::shared_ptr<const KernelImage>& image(const CompiledKernel& kernel) {
    return kernel.image_;
  }
};

}  // namespace jit
