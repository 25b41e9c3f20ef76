#include "tests/support/resident_quantize_run.h"

#include <array>

#include <jit/device.h>

#include "generator/context/access.h"
#include "generator/context/context_state.h"
#include "generator/operations/operation.h"
#include "generator/operations/quantize/arguments.h"
#include "generator/operations/quantize/program.h"
#include "generator/operations/quantize/resident.h"

namespace jit::testing {

std::string keep_rows_by(const Context& context, QuantizeRun& run, int blocks, int launches) {
  const CurrentDevice current(0);
  ContextState& state = *Access::state(context);
  const std::array<std::uint64_t, 1> words = {};  // the state is nobody else's
  const OperationState operation(
      state, words, OperationPrograms(quantize_program(run.spec()), resident_quantize_program(run.spec())));
  const LoadedKernel& kernel = prepared_kernel(operation, OperationProgram::some_sizes);
  for (int launch = 0; launch < launches; ++launch) {
    if (launch > 0) run.fill();
    QuantizeParams params;
    fill_params(run.spec(), run.arguments(), params);
    if (std::string why = cannot_keep_rows(run.spec(), params, blocks); !why.empty()) return why;
    launch_resident(state.memory, run.spec(), params, kernel, blocks, nullptr);
    if (std::string wrong = run.check(); !wrong.empty()) return wrong;
  }
  return "";
}

}  // namespace jit::testing
