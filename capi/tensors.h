// DLPack tensors as views.
#pragma once

#include <span>
#include <string_view>

#include <jit/attention.h>
#include <jit/c.h>
#include <jit/tensor.h>

namespace jit::c {

/// A view of a tensor on a device; null: no tensor. Throws Error invalid_argument, with the name as its
/// field, for host memory, another device's memory, unsupported element types, and invalid tensors.
TensorView view_of(const jit_tensor* tensor, std::string_view name, int device);

/// Tensors by name. Throws the same, and for a null name.
NamedTensors views_of(const jit_named_tensor* tensors, std::size_t count, std::string_view member,
                      int device);

/// A tensor member of an argument struct, and the library's member for it.
template <class Given, class Known>
struct TensorMember {
  std::string_view name;
  const jit_tensor* Given::*given;
  TensorView Known::*view;
};

/// Sets the views of `known`.
template <class Given, class Known, std::size_t count>
void set_views(const TensorMember<Given, Known> (&members)[count], const Given& given, int device,
               Known& known) {
  for (const auto& member : members) known.*member.view = view_of(given.*member.given, member.name, device);
}

}  // namespace jit::c
