#include "tvm/calls.h"

#include <fmt/format.h>

#include "capi/errors.h"
#include "capi/tensor_members.h"

namespace jit::tvm {
namespace {

// Sets a tensor by name. Returns false when the call has none of this name.
template <class Arguments, class Known, std::size_t count>
bool set_tensor(const c::TensorMember<Arguments, Known> (&members)[count], const NamedValue& given,
                Arguments& arguments) {
  for (const auto& member : members) {
    if (member.name != given.name) continue;
    arguments.*member.given = given.tensor();
    return true;
  }
  return false;
}

// Adds a tensor of mask or score, or its gradient, under the name after the prefix.
template <class Arguments>
bool add_tensor(std::string_view prefix, const NamedValue& given, Call<Arguments>& call,
                std::vector<jit_named_tensor>& tensors) {
  if (!given.name.starts_with(prefix)) return false;
  tensors.push_back({call.names.emplace_back(given.name.substr(prefix.size())).c_str(), given.tensor()});
  return true;
}

[[noreturn]] void refuse_name(const NamedValue& given, std::string_view known) {
  c::refuse(given.name, fmt::format("is no argument of this function; it has {}", known));
}

}  // namespace

Call<jit_forward_arguments> forward_call(const GivenCall& given) {
  Call<jit_forward_arguments> call;
  jit_forward_arguments& arguments = call.arguments;
  for (const NamedValue& each : given.values) {
    if (set_tensor(c::forward_members, each, arguments)) continue;
    if (add_tensor("tensors.", each, call, call.tensors)) continue;
    if (each.name == "dropout_p") {
      arguments.dropout_p = static_cast<float>(each.real());
    } else if (each.name == "num_splits") {
      arguments.num_splits = each.whole();
    } else if (each.name == "zero_padding") {
      arguments.zero_padding = each.whole();
    } else {
      refuse_name(each, "the members of jit_forward_arguments, and tensors.NAME");
    }
  }
  arguments.tensors = call.tensors.data();
  arguments.tensor_count = call.tensors.size();
  return call;
}

Call<jit_backward_arguments> backward_call(const GivenCall& given) {
  Call<jit_backward_arguments> call;
  jit_backward_arguments& arguments = call.arguments;
  for (const NamedValue& each : given.values) {
    if (set_tensor(c::backward_members, each, arguments)) continue;
    if (add_tensor("tensors.", each, call, call.tensors)) continue;
    if (add_tensor("d_tensors.", each, call, call.d_tensors)) continue;
    if (each.name == "dropout_p") {
      arguments.dropout_p = static_cast<float>(each.real());
    } else if (each.name == "deterministic") {
      arguments.deterministic = each.whole();
    } else {
      refuse_name(each, "the members of jit_backward_arguments, tensors.NAME and d_tensors.NAME");
    }
  }
  arguments.tensors = call.tensors.data();
  arguments.tensor_count = call.tensors.size();
  arguments.d_tensors = call.d_tensors.data();
  arguments.d_tensor_count = call.d_tensors.size();
  return call;
}

Call<jit_append_arguments> append_call(const GivenCall& given) {
  Call<jit_append_arguments> call;
  for (const NamedValue& each : given.values) {
    if (!set_tensor(c::append_members, each, call.arguments))
      refuse_name(each, "the members of jit_append_arguments");
  }
  return call;
}

Call<jit_merge_arguments> merge_call(const GivenCall& given) {
  Call<jit_merge_arguments> call;
  for (std::size_t i = 0; i < given.values.size(); ++i) {
    const NamedValue& each = given.values[i];
    if (each.name == "o") {
      call.arguments.o = each.tensor();
    } else if (each.name == "lse") {
      call.arguments.lse = each.tensor();
    } else if (each.name == "parts.o") {
      if (i + 1 == given.values.size() || given.values[i + 1].name != "parts.lse")
        c::refuse("parts.o", "has no parts.lse behind it");
      call.parts.push_back({each.tensor(), given.values[++i].tensor()});
    } else {
      refuse_name(each, "o, lse, and for each part parts.o and parts.lse");
    }
  }
  call.arguments.parts = call.parts.data();
  call.arguments.part_count = call.parts.size();
  return call;
}

}  // namespace jit::tvm
