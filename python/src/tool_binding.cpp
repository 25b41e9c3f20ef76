// The command-line tool as part of the module, for jit_attention/__main__.py.
#include "tool_binding.h"

#include <vector>

#include "tools/jit_attention/run_tool.h"

namespace jit::python {

namespace nb = nanobind;

namespace {

// Takes the command line as bytes, program name first; returns the exit status.
int run_tool(nb::sequence words) {
  std::vector<nb::bytes> kept;  // not str: paths may be invalid UTF-8
  for (nb::handle word : words) kept.push_back(nb::cast<nb::bytes>(word));
  std::vector<const char*> arguments;
  for (const nb::bytes& word : kept) arguments.push_back(word.c_str());
  const nb::gil_scoped_release unlocked;
  return tool::run_tool(static_cast<int>(arguments.size()), arguments.data());
}

}  // namespace

void bind_tool(nb::module_& module) { module.def("run_tool", &run_tool, nb::arg("words")); }

}  // namespace jit::python
