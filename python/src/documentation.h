// Documentation of classes, members and functions from _core.pyi, the single source of types and texts, also
// for tools.
#pragma once

#include <cstddef>
#include <iterator>
#include <string_view>

namespace jit::python {

struct Documentation {
  const char* name;        ///< "attention", "Kernel", "Kernel.dump"
  const char* parameters;  ///< of a function, as in its definition, without annotations: "self, folder"
  const char* text;
};

extern const Documentation documentation[];
extern const std::size_t documentation_size;

/// Null for a name that the stub does not document.
const Documentation* find_documentation(std::string_view name);
/// The text for a name. Throws std::logic_error for one that the stub does not document.
const char* documented(std::string_view name);

}  // namespace jit::python
