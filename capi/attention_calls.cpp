// Forward and backward calls.
#include <jit/attention.h>

#include "capi/operation.h"
#include "capi/structs.h"
#include "capi/tensors.h"

namespace jit::c {
namespace {

constexpr TensorMember<jit_forward_arguments, AttentionArguments> forward_members[] = {
    {"q", &jit_forward_arguments::q, &AttentionArguments::q},
    {"k", &jit_forward_arguments::k, &AttentionArguments::k},
    {"v", &jit_forward_arguments::v, &AttentionArguments::v},
    {"o", &jit_forward_arguments::o, &AttentionArguments::o},
    {"lse", &jit_forward_arguments::lse, &AttentionArguments::lse},
    {"cu_seqlens_q", &jit_forward_arguments::cu_seqlens_q, &AttentionArguments::cu_seqlens_q},
    {"cu_seqlens_k", &jit_forward_arguments::cu_seqlens_k, &AttentionArguments::cu_seqlens_k},
    {"seqused_q", &jit_forward_arguments::seqused_q, &AttentionArguments::seqused_q},
    {"seqused_k", &jit_forward_arguments::seqused_k, &AttentionArguments::seqused_k},
    {"cache_leftpad", &jit_forward_arguments::cache_leftpad, &AttentionArguments::cache_leftpad},
    {"page_table", &jit_forward_arguments::page_table, &AttentionArguments::page_table},
    {"sinks", &jit_forward_arguments::sinks, &AttentionArguments::sinks},
    {"q_descale", &jit_forward_arguments::q_descale, &AttentionArguments::q_descale},
    {"k_descale", &jit_forward_arguments::k_descale, &AttentionArguments::k_descale},
    {"v_descale", &jit_forward_arguments::v_descale, &AttentionArguments::v_descale},
    {"v_mean", &jit_forward_arguments::v_mean, &AttentionArguments::v_mean},
    {"lse_shift", &jit_forward_arguments::lse_shift, &AttentionArguments::lse_shift},
    {"rng_state", &jit_forward_arguments::rng_state, &AttentionArguments::rng_state},
};

constexpr TensorMember<jit_backward_arguments, BackwardArguments> backward_members[] = {
    {"do", &jit_backward_arguments::d_o, &BackwardArguments::d_o},
    {"q", &jit_backward_arguments::q, &BackwardArguments::q},
    {"k", &jit_backward_arguments::k, &BackwardArguments::k},
    {"v", &jit_backward_arguments::v, &BackwardArguments::v},
    {"o", &jit_backward_arguments::o, &BackwardArguments::o},
    {"lse", &jit_backward_arguments::lse, &BackwardArguments::lse},
    {"dq", &jit_backward_arguments::dq, &BackwardArguments::dq},
    {"dk", &jit_backward_arguments::dk, &BackwardArguments::dk},
    {"dv", &jit_backward_arguments::dv, &BackwardArguments::dv},
    {"cu_seqlens_q", &jit_backward_arguments::cu_seqlens_q, &BackwardArguments::cu_seqlens_q},
    {"cu_seqlens_k", &jit_backward_arguments::cu_seqlens_k, &BackwardArguments::cu_seqlens_k},
    {"seqused_q", &jit_backward_arguments::seqused_q, &BackwardArguments::seqused_q},
    {"seqused_k", &jit_backward_arguments::seqused_k, &BackwardArguments::seqused_k},
    {"rng_state", &jit_backward_arguments::rng_state, &BackwardArguments::rng_state},
    {"dlse", &jit_backward_arguments::d_lse, &BackwardArguments::d_lse},
    {"sinks", &jit_backward_arguments::sinks, &BackwardArguments::sinks},
    {"d_sinks", &jit_backward_arguments::d_sinks, &BackwardArguments::d_sinks},
};

}  // namespace

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
