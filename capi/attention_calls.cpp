// Forward and backward calls.
#include <jit/attention.h>

#include "capi/operation.h"
#include "capi/structs.h"
#include "capi/tensor_members.h"

namespace jit::c {
AttentionArguments forward_arguments_of(const jit_forward_arguments& given, int device) {
  AttentionArguments arguments;
  set_views(forward_members, given, device, arguments);
  arguments.tensors = views_of(given.tensors, given.tensor_count, "tensors", device);
  arguments.dropout_p = given.dropout_p;
  arguments.num_splits = given.num_splits;
  arguments.zero_padding = truth(given.zero_padding, "zero_padding");
  return arguments;
}

BackwardArguments backward_arguments_of(const jit_backward_arguments& given, int device) {
  check_reserved(given.reserved);
  BackwardArguments arguments;
  set_views(backward_members, given, device, arguments);
  arguments.tensors = views_of(given.tensors, given.tensor_count, "tensors", device);
  arguments.d_tensors = views_of(given.d_tensors, given.d_tensor_count, "d_tensors", device);
  arguments.dropout_p = given.dropout_p;
  arguments.deterministic = truth(given.deterministic, "deterministic");
  return arguments;
}

}  // namespace jit::c

jit_code jit_forward(const jit_operation* operation, const jit_forward_arguments* given, void* stream,
                     jit_error** error) {
  using namespace jit::c;
  return guarded(error, [&] {
    const AttentionProblem& problem = problem_of<AttentionProblem>(operation, "attention");
    const jit_forward_arguments known = known_part(given, "arguments");
    if (truth(known.only_check, "only_check"))
      return check_arguments(problem.spec, forward_arguments_of(known, operation->context.device));
    const CallDevice device(operation->context);
    const jit::AttentionArguments arguments = forward_arguments_of(known, device.ordinal());
    attention_here(problem, operation->context.context)(arguments, static_cast<jit::Stream>(stream));
  });
}

jit_code jit_backward(const jit_operation* operation, const jit_backward_arguments* given, void* stream,
                      jit_error** error) {
  using namespace jit::c;
  return guarded(error, [&] {
    const AttentionProblem& problem = problem_of<AttentionProblem>(operation, "attention");
    const jit_backward_arguments known = known_part(given, "arguments");
    if (truth(known.only_check, "only_check"))
      return check_backward_arguments(problem.spec, backward_arguments_of(known, operation->context.device));
    const CallDevice device(operation->context);
    const jit::BackwardArguments arguments = backward_arguments_of(known, device.ordinal());
    attention_here(problem, operation->context.context).backward(arguments, static_cast<jit::Stream>(stream));
  });
}
