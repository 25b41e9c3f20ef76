// Work before calls: compiling, loading, tuning.
#include <jit/tuning.h>

#include "capi/given_call.h"
#include "capi/json.h"

namespace jit::c {
namespace {

Json json_of(const TuningResult& result) {
  return {{"configs", to_string(result.configs)}, {"median_us", result.median_us},
          {"default_us", result.default_us},      {"candidates", result.candidates},
          {"out_of_time", result.out_of_time},    {"recorded_in", result.recorded_in}};
}

}  // namespace
}  // namespace jit::c

jit_code jit_prepare(const jit_operation* operation, const jit_forward_arguments* forward,
                     const jit_backward_arguments* backward, jit_error** error) {
  using namespace jit::c;
  return guarded(error, [&] {
    const CallDevice device(checked_pointer(operation, "operation").context);
    if (const auto* problem = std::get_if<AttentionProblem>(&operation->problem)) {
      if (forward == nullptr && backward == nullptr)
        refuse("forward", "is missing, and so is backward; give the arguments of the calls to prepare");
      const GivenCall call = given_call(forward, backward, device.ordinal());
      const jit::Attention attention = attention_here(*problem, operation->context.context);
      if (call.forward) attention.prepare(*call.forward);
      if (call.backward) attention.prepare_backward(*call.backward);
      return;
    }
    check_no_arguments(*operation, forward, backward);
    use_operation(*operation, [](const auto& loaded) { loaded.prepare(); });
  });
}

jit_code jit_tune(const jit_operation* operation, const jit_forward_arguments* forward,
                  const jit_backward_arguments* backward, char** json, jit_error** error) {
  using namespace jit::c;
  return guarded(error, [&] {
    checked_pointer(json, "json") = nullptr;
    const AttentionProblem& problem = problem_of<AttentionProblem>(operation, "attention");
    check_at_most_one(forward, backward);
    if (forward == nullptr && backward == nullptr)
      refuse("forward", "is missing, and so is backward; give the arguments of the call to tune");
    if (problem.config) refuse("attention", "has a config, which is never tuned; make one without");
    const CallDevice device(operation->context);
    const GivenCall call = given_call(forward, backward, device.ordinal());
    const jit::Context& context = operation->context.context;
    *json = json_text_of(json_of(call.forward ? tune(problem.spec, *call.forward, context)
                                              : tune(problem.spec, *call.backward, context)));
  });
}
