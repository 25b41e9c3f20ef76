// The symptoms of a mutated template in gradients.
#pragma once

#include "tests/mutation/template_mutation.h"
#include "tests/support/backward_run.h"

namespace jit::testing {

/// Errors of a problem's gradients with the kernel, or the two kernels, of these configs: a finding, numbers,
/// or counters that launches leave behind. Templates are unchanged where `mutation` is null.
template <class... Configs>
std::string noticed_of_gradients(const TemplateMutation* mutation, const AttentionCase& problem,
                                 const Configs&... configs) {
  const MutatedTemplates templates(mutation);
  const Context context(templates.settings());
  const CurrentDevice scope(0);
  BackwardRun run(problem);
  try {
    run.compute(context, configs...);
  } catch (const Error& error) {
    return fmt::format("{}: {}", to_string(error.code()), error.what());
  }
  const std::string failure = run.check();
  return failure.empty() ? disorder(context, nullptr) : failure;
}

}  // namespace jit::testing
