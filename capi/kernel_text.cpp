// Source texts of the kernels that a call launches.
#include <string>
#include <utility>
#include <vector>

#include <jit/compiled_kernel.h>

#include "capi/given_call.h"

namespace jit::c {
namespace {

std::string part_of(const CompiledKernel& kernel, jit_kernel_part part) {
  switch (part) {
    case JIT_KERNEL_SOURCE:
      return kernel.source();
    case JIT_KERNEL_PTX:
      return kernel.ptx();
    case JIT_KERNEL_SASS: {
      CompiledKernel::Sass sass = kernel.sass();
      if (!sass.missing.empty()) throw Error(ErrorCode::io_error, "disassemble", "part", sass.missing);
      return std::move(sass.text);
    }
    case JIT_KERNEL_REPORT:
      return kernel.report();
  }
  refuse("part", "is " + std::to_string(static_cast<int>(part)) + "; it must be 0 to 3");
}

}  // namespace
}  // namespace jit::c

jit_code jit_kernel_text(const jit_operation* operation, const jit_forward_arguments* forward,
                         const jit_backward_arguments* backward, jit_kernel_part part, char** text,
                         jit_error** error) {
  using namespace jit::c;
  return guarded(error, [&] {
    checked_pointer(text, "text") = nullptr;
    const CallDevice device(checked_pointer(operation, "operation").context);
    std::string joined;
    if (const auto* problem = std::get_if<AttentionProblem>(&operation->problem)) {
      check_at_most_one(forward, backward);
      const GivenCall call = given_call(forward, backward, device.ordinal());
      const jit::Attention attention = attention_here(*problem, operation->context.context);
      const std::vector<jit::CompiledKernel> kernels =
          call.backward  ? attention.backward_kernels(*call.backward)
          : call.forward ? std::vector{attention.kernel(*call.forward)}
                         : std::vector{attention.kernel()};
      for (const jit::CompiledKernel& kernel : kernels)
        joined += (joined.empty() ? "" : "\n") + part_of(kernel, part);
    } else {
      check_no_arguments(*operation, forward, backward);
      if (part != JIT_KERNEL_SOURCE)
        refuse("part", std::string("must be JIT_KERNEL_SOURCE for an operation of kind ") +
                           kind_name(operation->problem.index()));
      use_operation(*operation, [&](const auto& loaded) { joined = loaded.source(); });
    }
    *text = text_of(joined);
  });
}
