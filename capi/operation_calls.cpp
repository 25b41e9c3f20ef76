// Calls of append, merge, quantize, block mask and key mass.
#include <vector>

#include <fmt/format.h>
#include <jit/append.h>
#include <jit/block_mask.h>
#include <jit/key_mass.h>
#include <jit/merge.h>
#include <jit/quantize.h>

#include "capi/operation.h"
#include "capi/structs.h"
#include "capi/tensor_members.h"

namespace jit::c {
namespace {

constexpr TensorMember<jit_quantize_arguments, QuantizeArguments> quantize_members[] = {
    {"q", &jit_quantize_arguments::q, &QuantizeArguments::q},
    {"k", &jit_quantize_arguments::k, &QuantizeArguments::k},
    {"v", &jit_quantize_arguments::v, &QuantizeArguments::v},
    {"q_out", &jit_quantize_arguments::q_out, &QuantizeArguments::q_out},
    {"k_out", &jit_quantize_arguments::k_out, &QuantizeArguments::k_out},
    {"v_out", &jit_quantize_arguments::v_out, &QuantizeArguments::v_out},
    {"q_descale", &jit_quantize_arguments::q_descale, &QuantizeArguments::q_descale},
    {"k_descale", &jit_quantize_arguments::k_descale, &QuantizeArguments::k_descale},
    {"v_descale", &jit_quantize_arguments::v_descale, &QuantizeArguments::v_descale},
    {"k_mean", &jit_quantize_arguments::k_mean, &QuantizeArguments::k_mean},
    {"v_mean", &jit_quantize_arguments::v_mean, &QuantizeArguments::v_mean},
    {"lse_shift", &jit_quantize_arguments::lse_shift, &QuantizeArguments::lse_shift},
    {"q_norm_weight", &jit_quantize_arguments::q_norm_weight, &QuantizeArguments::q_norm_weight},
    {"k_norm_weight", &jit_quantize_arguments::k_norm_weight, &QuantizeArguments::k_norm_weight},
    {"cos_sin", &jit_quantize_arguments::cos_sin, &QuantizeArguments::cos_sin},
    {"q_positions", &jit_quantize_arguments::q_positions, &QuantizeArguments::q_positions},
    {"k_positions", &jit_quantize_arguments::k_positions, &QuantizeArguments::k_positions},
    {"cu_seqlens_q", &jit_quantize_arguments::cu_seqlens_q, &QuantizeArguments::cu_seqlens_q},
    {"cu_seqlens_k", &jit_quantize_arguments::cu_seqlens_k, &QuantizeArguments::cu_seqlens_k},
    {"seqused_q", &jit_quantize_arguments::seqused_q, &QuantizeArguments::seqused_q},
    {"seqused_k", &jit_quantize_arguments::seqused_k, &QuantizeArguments::seqused_k},
};

constexpr TensorMember<jit_block_mask_arguments, BlockMaskArguments> block_mask_members[] = {
    {"block_mask", &jit_block_mask_arguments::block_mask, &BlockMaskArguments::block_mask},
    {"block_places", &jit_block_mask_arguments::block_places, &BlockMaskArguments::block_places},
    {"block_scores", &jit_block_mask_arguments::block_scores, &BlockMaskArguments::block_scores},
    {"map", &jit_block_mask_arguments::map, &BlockMaskArguments::map},
    {"cu_seqlens_q", &jit_block_mask_arguments::cu_seqlens_q, &BlockMaskArguments::cu_seqlens_q},
    {"cu_seqlens_k", &jit_block_mask_arguments::cu_seqlens_k, &BlockMaskArguments::cu_seqlens_k},
    {"seqused_q", &jit_block_mask_arguments::seqused_q, &BlockMaskArguments::seqused_q},
    {"seqused_k", &jit_block_mask_arguments::seqused_k, &BlockMaskArguments::seqused_k},
    {"cache_leftpad", &jit_block_mask_arguments::cache_leftpad, &BlockMaskArguments::cache_leftpad},
};

constexpr TensorMember<jit_key_mass_arguments, KeyMassArguments> key_mass_members[] = {
    {"q", &jit_key_mass_arguments::q, &KeyMassArguments::q},
    {"k", &jit_key_mass_arguments::k, &KeyMassArguments::k},
    {"lse", &jit_key_mass_arguments::lse, &KeyMassArguments::lse},
    {"mass", &jit_key_mass_arguments::mass, &KeyMassArguments::mass},
    {"cu_seqlens_q", &jit_key_mass_arguments::cu_seqlens_q, &KeyMassArguments::cu_seqlens_q},
    {"cu_seqlens_k", &jit_key_mass_arguments::cu_seqlens_k, &KeyMassArguments::cu_seqlens_k},
    {"page_table", &jit_key_mass_arguments::page_table, &KeyMassArguments::page_table},
    {"seqused_k", &jit_key_mass_arguments::seqused_k, &KeyMassArguments::seqused_k},
};

AppendArguments arguments_of(const jit_append_arguments& given, int device) {
  AppendArguments arguments;
  set_views(append_members, given, device, arguments);
  return arguments;
}

QuantizeArguments arguments_of(const jit_quantize_arguments& given, int device) {
  QuantizeArguments arguments;
  set_views(quantize_members, given, device, arguments);
  arguments.rotation_seed = given.rotation_seed;
  return arguments;
}

KeyMassArguments arguments_of(const jit_key_mass_arguments& given, int device) {
  KeyMassArguments arguments;
  set_views(key_mass_members, given, device, arguments);
  arguments.tensors = views_of(given.tensors, given.tensor_count, "tensors", device);
  return arguments;
}

BlockListViews lists_of(const jit_block_lists& lists, const std::string& name, int device) {
  return {.counts = view_of(lists.counts, name + ".counts", device),
          .indices = view_of(lists.indices, name + ".indices", device),
          .indptr = view_of(lists.indptr, name + ".indptr", device)};
}

BlockMaskArguments arguments_of(const jit_block_mask_arguments& given, int device) {
  BlockMaskArguments arguments;
  set_views(block_mask_members, given, device, arguments);
  arguments.seqlen_q = given.seqlen_q;
  arguments.seqlen_kv = given.seqlen_kv;
  arguments.heads_q = given.heads_q;
  arguments.total_q = given.total_q;
  arguments.total_k = given.total_k;
  arguments.tensors = views_of(given.tensors, given.tensor_count, "tensors", device);
  arguments.partial = lists_of(given.partial, "partial", device);
  arguments.full = lists_of(given.full, "full", device);
  return arguments;
}

// Arguments of a merge, with storage for the states that they point to.
struct MergeCall {
  std::vector<PartialState> parts;
  MergeArguments arguments;

  operator const MergeArguments&() const { return arguments; }
};

MergeCall arguments_of(const jit_merge_arguments& given, int device) {
  check_array(given.parts, given.part_count, "parts");
  MergeCall call;
  for (std::size_t i = 0; i < given.part_count; ++i) {
    call.parts.push_back({view_of(given.parts[i].o, fmt::format("parts[{}].o", i), device),
                          view_of(given.parts[i].lse, fmt::format("parts[{}].lse", i), device)});
  }
  call.arguments = {
      .parts = call.parts, .o = view_of(given.o, "o", device), .lse = view_of(given.lse, "lse", device)};
  return call;
}

// Checks a call's arguments and, unless only a check is wanted, launches the operation that `make` creates
// from spec and context.
template <class Spec, class Given, class Make>
jit_code call(const jit_operation* operation, const char* name, const Given* given, void* stream,
              jit_error** error, const Make& make) {
  return guarded(error, [&] {
    const Spec& spec = problem_of<Spec>(operation, name);
    const Given known = known_part(given, "arguments");
    check_reserved(known.reserved);
    if (truth(known.only_check, "only_check")) {
      check_arguments(spec, arguments_of(known, operation->context.device));
      return;
    }
    const CallDevice device(operation->context);
    const auto arguments = arguments_of(known, device.ordinal());
    check_arguments(spec, arguments);  // before any compile
    make(spec, operation->context.context)(arguments, static_cast<Stream>(stream));
  });
}

}  // namespace
}  // namespace jit::c

jit_code jit_append(const jit_operation* operation, const jit_append_arguments* arguments, void* stream,
                    jit_error** error) {
  return jit::c::call<jit::AppendSpec>(operation, "append", arguments, stream, error, jit::append);
}

jit_code jit_merge(const jit_operation* operation, const jit_merge_arguments* arguments, void* stream,
                   jit_error** error) {
  return jit::c::call<jit::MergeSpec>(operation, "merge", arguments, stream, error, jit::merge);
}

jit_code jit_quantize(const jit_operation* operation, const jit_quantize_arguments* arguments, void* stream,
                      jit_error** error) {
  return jit::c::call<jit::QuantizeSpec>(operation, "quantize", arguments, stream, error, jit::quantize_qkv);
}

jit_code jit_block_mask(const jit_operation* operation, const jit_block_mask_arguments* arguments,
                        void* stream, jit_error** error) {
  return jit::c::call<jit::BlockMaskSpec>(operation, "block_mask", arguments, stream, error, jit::block_mask);
}

jit_code jit_key_mass(const jit_operation* operation, const jit_key_mass_arguments* arguments, void* stream,
                      jit_error** error) {
  return jit::c::call<jit::KeyMassSpec>(operation, "key_mass", arguments, stream, error, jit::key_mass);
}
