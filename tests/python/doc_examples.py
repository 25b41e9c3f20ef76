"""Examples in docstrings, and how they run: with the names that the documentation promises, in a folder of their own."""

import dataclasses
import doctest
import importlib
import importlib.util
import inspect
import os
import re
import textwrap

import jit_attention as ja
import ml_dtypes
import numpy

MODULES = [ja, ja.mask, ja.score, ja.cache, ja.emulator, ja.errors]
FRAMEWORKS = [name for name in ("torch", "jax") if importlib.util.find_spec(name)]  # others have no examples to run
MODULES += [importlib.import_module(f"jit_attention.{name}") for name in FRAMEWORKS]

#: The text that the documentation of `emulator` calls ``ptx``: that of the example of `load`.
TWICE = "".join(re.findall(r"^ *\.\.\. ?([^'\n]*\n?)", ja.emulator.load.__doc__, re.MULTILINE))

#: An example that measures: an emulated device refuses it.
GPU = doctest.register_optionflag("GPU")


def public():
    """Name and object of each public function, class, method and property."""
    for module in MODULES:
        names = getattr(module, "__all__", None) or [name for name in vars(module) if not name.startswith("_")]
        for name in names:
            value = getattr(module, name)
            if not str(getattr(value, "__module__", "")).startswith("jit_attention") or not callable(value):
                continue
            path = module.__name__
            yield f"{path}.{name}", value
            if inspect.isclass(value):
                for own in vars(value):
                    if (not own.startswith("_") or own == "__call__") and own not in getattr(value, "_fields", ()):
                        yield f"{path}.{name}.{own}", getattr(value, own)


EVERYTHING = {name: value for name, value in public() if not isinstance(value, (str, int, float, bool, type(None)))}


def run(name, folder):
    """Differences between the example of this name and its expected output, on an emulated device."""
    names = {name: importlib.import_module(name) for name in FRAMEWORKS}
    if "jax" in FRAMEWORKS:
        names["jnp"] = importlib.import_module("jax.numpy")
    names |= {"ja": ja, "jit_attention": ja, "np": numpy, "ml_dtypes": ml_dtypes, "os": os, "dataclasses": dataclasses,
              "folder": folder, "ptx": TWICE}
    test = doctest.DocTestParser().get_doctest(textwrap.dedent(EVERYTHING[name].__doc__), names, name, None, None)
    assert test.examples
    for example in test.examples:
        if example.options.get(GPU):
            example.exc_msg = "jit_attention.errors.InvalidArgumentError: device: is emulated, and has no time ...\n"
    told = []
    doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS).run(test, out=told.append)
    return "".join(told)
