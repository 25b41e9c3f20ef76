#include "xla_binding.h"

#include <optional>
#include <tuple>

#include <jit/context.h>
#include <jit/xla.h>

#include "process.h"

namespace jit::python {

namespace nb = nanobind;

namespace {

using Handler = XLA_FFI_Error*(XLA_FFI_CallFrame*);

nb::capsule capsule_of(Handler* handler) { return nb::capsule(reinterpret_cast<const void*>(handler)); }

}  // namespace

void bind_xla(nb::module_& module) {
  module.def(
      "xla_handlers",
      [] {
        use_device_here();
        default_context() = context_for(std::nullopt);  // shares kernels with other calls
        nb::dict handlers;
        for (const auto& [name, platform, handler] :
             {std::tuple{"forward", "CUDA", &jit_xla_attention_forward},
              {"backward", "CUDA", &jit_xla_attention_backward},
              {"forward", "cpu", &jit_xla_attention_forward_cpu},
              {"backward", "cpu", &jit_xla_attention_backward_cpu}})
          handlers[nb::make_tuple(name, platform)] = capsule_of(handler);
        return handlers;
      },
      "Handlers of XLA by name and platform, as capsules. They compute as other calls of this process do.");
}

}  // namespace jit::python
