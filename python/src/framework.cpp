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

// PyTorch's, of its own types and of those that are made of them.
nb::object is_grad_enabled_of(nb::handle type) {
  const nb::dict modules = nb::cast<nb::dict>(nb::module_::import_("sys").attr("modules"));
  for (const nb::handle base : nb::cast<nb::tuple>(type.attr("__mro__"))) {
    const nb::object name = nb::getattr(base, "__module__", nb::none());
    if (!modules.contains(name)) continue;
    const nb::object found = nb::getattr(modules[name], "is_grad_enabled", nb::none());
    if (!found.is_none()) return found;
  }
  return {};
}

Framework examine(nb::handle type) {
  Framework framework;
  framework.exchange = exchange_api(type);
  if (framework.exchange != nullptr) {
    const nb::object is_neg = nb::getattr(type, "is_neg", nb::none());
    if (!is_neg.is_none()) framework.is_neg = is_neg;
    framework.is_grad_enabled = is_grad_enabled_of(type);
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
  // Guarded by the interpreter lock. Never destroyed: Python may be gone before static objects are. The types
  // are kept alive, so that none is mistaken for another one at its address.
  static auto& known = *new std::unordered_map<PyObject*, std::unique_ptr<Framework>>;
  static std::pair<PyObject*, const Framework*> latest = {};  // arrays of a call are mostly of one type
  const nb::handle type = array.type();
  if (latest.first == type.ptr()) return *latest.second;
  if (const auto found = known.find(type.ptr()); found != known.end()) {
    latest = {type.ptr(), found->second.get()};
    return *latest.second;
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
