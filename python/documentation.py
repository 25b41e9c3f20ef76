"""Writes C++ that has the parameters and the documentation of everything that jit_attention/_core.pyi documents.

usage: documentation.py _core.pyi documentation.cpp
"""

import ast
import pathlib
import sys

HEAD = """// Written by python/documentation.py: what _core.pyi documents.
#include "documentation.h"

namespace jit::python {

const Documentation documentation[] = {
"""
END = """};
const std::size_t documentation_size = std::size(documentation);

}  // namespace jit::python
"""


def parameters_of(function):
    """The parameters of a function without their annotations; of an overloaded one those of the last overload."""
    arguments = function.args
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        argument.annotation = None
    return ast.unparse(arguments)


def documented(tree, scope=""):
    """Name, parameters and documentation of classes, their members, and functions."""
    for node in tree.body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and (text := ast.get_docstring(node)):
            parameters = parameters_of(node) if isinstance(node, ast.FunctionDef) else ""
            yield scope + node.name, parameters, text
        if isinstance(node, ast.ClassDef):
            yield from documented(node, f"{node.name}.")


def raw(text):
    return f'R"~({text})~"'


def main(stub, output):
    rows = [f"    {{{raw(name)}, {raw(parameters)}, {raw(text)}}},\n" for name, parameters, text in documented(
        ast.parse(pathlib.Path(stub).read_text(encoding="utf-8")))]
    pathlib.Path(output).write_text(HEAD + "".join(rows) + END, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
