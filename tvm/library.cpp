#include "tvm/library.h"

#include <dlfcn.h>

#include <fmt/format.h>

#include "capi/errors.h"

namespace jit::tvm {
namespace {

template <class F>
void find(void* library, const char* name, F*& function) {
  function = reinterpret_cast<F*>(dlsym(library, name));
  if (function == nullptr)
    c::refuse("library", fmt::format("has no function {}; apache-tvm-ffi has it from version 0.1 on", name));
}

}  // namespace

Library load_library(const std::string& path) {
  constexpr const char* name = "libtvm_ffi.so";
  void* const library =
      path.empty() ? dlopen(name, RTLD_LAZY | RTLD_NOLOAD) : dlopen(path.c_str(), RTLD_LAZY);
  if (library == nullptr) {
    if (path.empty())
      c::refuse("library", fmt::format("is not given, and this process has not loaded {}", name));
    c::refuse("library", fmt::format("cannot be opened: {}", dlerror()));
  }
  Library found{};
  find(library, "TVMFFIFunctionCreate", found.function_create);
  find(library, "TVMFFIFunctionSetGlobal", found.function_set_global);
  find(library, "TVMFFIObjectDecRef", found.object_release);
  find(library, "TVMFFIErrorSetRaisedFromCStr", found.set_error);
  find(library, "TVMFFIEnvGetStream", found.stream);
  return found;
}

}  // namespace jit::tvm
