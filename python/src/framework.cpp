#include "framework.h"

#include <memory>
#include <unordered_map>
#include <utility>

namespace jit::python {
namespace {

const dlpack::ExchangeApi* exchange_api(nb::handle type) {
  const nb::object capsule = nb::getattr(type, "__dlpack_c_exchange_api__", nb::none());
  if (!PyCapsule_IsValid(capsule.ptr(), "dlpack_exchange_api")) return nullptr;
  const auto* api =
      static_cast<const dlpack::ExchangeApi*>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
  while (api != nullptr && api->version.major != 1) api = api->previous;
  return api != nullptr && api->borrow != nullptr ? api : nullptr;
}

// PyTorch, if a type or a base of it is PyTorch's.
nb::object module_with_gradients(nb::handle type) {
  const nb::dict modules = nb::cast<nb::dict>(nb::module_::import_("sys").attr("modules"));
  for (const nb::handle base : nb::cast<nb::tuple>(type.attr("__mro__"))) {
    const nb::object name = nb::getattr(base, "__module__", nb::none());
    if (modules.contains(name) && nb::hasattr(modules[name], "is_grad_enabled")) return modules[name];
  }
  return {};
}

// Whether a type is PyTorch's CausalBias, a tensor that stands for a causal mask and has uninitialized
// memory.
bool is_causal_bias(nb::handle type) {
  return nb::cast<std::string>(nb::str(type.attr("__module__"))) == "torch.nn.attention.bias" &&
         nb::cast<std::string>(nb::str(type.attr("__name__"))) == "CausalBias";
}

Framework examine(nb::handle type) {
  Framework framework;
  framework.exchange = exchange_api(type);
  if (framework.exchange != nullptr) {
    const nb::object is_neg = nb::getattr(type, "is_neg", nb::none());
    if (!is_neg.is_none()) framework.is_neg = is_neg;
    if (const nb::object module = module_with_gradients(type); module.is_valid()) {
      framework.is_grad_enabled = module.attr("is_grad_enabled");
      const nb::object autograd = nb::getattr(module, "autograd", nb::none());
      const nb::object forward_ad = nb::getattr(autograd, "forward_ad", nb::none());
      if (!forward_ad.is_none()) framework.forward_ad = forward_ad;
    }
    return framework;
  }
  framework.adapter = nb::module_::import_("jit_attention._frameworks").attr("adapter_of")(type);
  if (framework.adapter.is_none()) return framework;
  const nb::object exporter = framework.adapter.attr("export");
  if (!exporter.is_none()) framework.exporter = exporter;
  framework.speaks_dlpack = nb::hasattr(type, "__dlpack__") && nb::hasattr(type, "__dlpack_device__");
  framework.writable = nb::cast<bool>(framework.adapter.attr("writable"));
  framework.needs_complete_results = nb::cast<bool>(framework.adapter.attr("needs_complete_results"));
  return framework;
}

}  // namespace

const Framework& framework_of(nb::handle array, const char* argument) {
  // Guarded by the interpreter lock. Never destroyed: Python may end before static objects are destroyed.
  // Types are kept alive, so that their addresses are not reused.
  static auto& known = *new std::unordered_map<PyObject*, std::unique_ptr<Framework>>;
  static std::pair<PyObject*, const Framework*> latest = {};  // arrays of a call are mostly of one type
  const nb::handle type = array.type();
  if (latest.first == type.ptr()) return *latest.second;
  if (const auto found = known.find(type.ptr()); found != known.end()) {
    latest = {type.ptr(), found->second.get()};
    return *latest.second;
  }
  if (is_causal_bias(type)) {
    PyErr_Format(PyExc_TypeError,
                 "%s is a CausalBias, whose memory holds no elements: give it to "
                 "jit_attention.torch.scaled_dot_product_attention, or mask=jit_attention.mask.causal()",
                 argument);
    throw nb::python_error();
  }
  auto framework = std::make_unique<Framework>(examine(type));
  if (framework->exchange == nullptr && framework->adapter.is_none()) {
    const std::string name = nb::cast<std::string>(nb::getattr(type, "__name__"));
    PyErr_Format(
        PyExc_TypeError,
        "%s is a %s, which is no array: give one that has __dlpack__ or __cuda_array_interface__, such as "
        "those of PyTorch, CuPy, JAX and NumPy",
        argument, name.c_str());
    throw nb::python_error();
  }
  type.inc_ref();
  return *known.emplace(type.ptr(), std::move(framework)).first->second;
}

}  // namespace jit::python
