// The command-line tool inside of the module: jit_attention/__main__.py runs it.
#include "tool_binding.h"

#include <vector>

#include "tools/jit_attention/run_tool.h"

namespace jit::python {

namespace nb = nanobind;

namespace {

// Its command line comes as bytes, the name of the program first; its exit status goes back.
int run_tool(nb::sequence words) {
  std::vector<nb::bytes> kept;  // not str: a path may be no UTF-8
  for (nb::handle word : words) kept.push_back(nb::cast<nb::bytes>(word));
  std::vector<const char*> arguments;
  for (const nb::bytes& word : kept) arguments.push_back(word.c_str());
  const nb::gil_scoped_release unlocked;
  return tool::run_tool(static_cast<int>(arguments.size()), arguments.data());
}

}  // namespace

void bind_tool(nb::module_& module) { module.def("run_tool", &run_tool, nb::arg("words")); }

}  // namespace jit::python
