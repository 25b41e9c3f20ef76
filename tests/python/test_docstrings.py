"""Documentation of public functions: each argument is documented, and each example gives what it says."""

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
import pytest

MODULES = [ja, ja.mask, ja.score, ja.cache, ja.errors]
FRAMEWORKS = [name for name in ("torch", "jax") if importlib.util.find_spec(name)]  # others have no examples to run
MODULES += [importlib.import_module(f"jit_attention.{name}") for name in FRAMEWORKS]
SECTIONS = "Args|Attributes|Returns|Raises|Thread safety|Examples"


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
                for own, member in vars(value).items():
                    if (not own.startswith("_") or own == "__call__") and own not in getattr(value, "_fields", ()):
                        yield f"{path}.{name}.{own}", getattr(value, own)


EVERYTHING = {name: value for name, value in public() if not isinstance(value, (str, int, float, bool, type(None)))}
FUNCTIONS = {name: value for name, value in EVERYTHING.items() if callable(value) and not inspect.isclass(value)}
#: Their documentation says that the arguments are those of another function.
AS_ANOTHER = {"Attention.__call__", "Attention.kernel", "prepare_backward"}


def sections(text):
    """Sections of a docstring in Google's style, by title."""
    parts = re.split(rf"^({SECTIONS}):\n", inspect.cleandoc(text or ""), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2]))


def entries(section):
    """Names that a section documents."""
    return re.findall(r"^    (\w+): ", section, flags=re.MULTILINE)


@pytest.mark.parametrize("name", EVERYTHING)
def test_each_has_documentation_that_begins_with_a_sentence(name):
    text = inspect.getdoc(EVERYTHING[name])
    assert text and text.split("\n\n")[0].rstrip()[-1] in ".:!", text


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_function_has_a_signature_and_documents_each_argument(name):
    signature = inspect.signature(FUNCTIONS[name])
    if any(name.endswith(f".{other}") for other in AS_ANOTHER):
        return
    wanted = [parameter for parameter in signature.parameters if parameter not in ("self", "cls")]
    found = sections(FUNCTIONS[name].__doc__)
    assert entries(found.get("Args", "")) == wanted
    assert "Examples" in found, "no example"
    assert not wanted or "Raises" in found or name.endswith((".then",))


@pytest.mark.parametrize("kind", [ja.AttentionSpec, ja.BlockMask, ja.FunctorText, ja.Refusal, ja.cache.Entry])
def test_each_field_is_documented(kind):
    names = [field.name for field in dataclasses.fields(kind)]
    assert entries(sections(kind.__doc__)["Attributes"]) == names
    assert entries(sections(ja.QuantizedQkv.__doc__)["Attributes"]) == list(ja.QuantizedQkv._fields)


@pytest.mark.parametrize("kind", [ja.Attention, ja.Kernel, ja.Device, ja.TileMap, ja.LaunchTrace, ja.trace])
def test_classes_of_the_extension_have_signatures_and_documentation(kind):
    assert inspect.getdoc(kind)
    for name, member in vars(kind).items():
        if not name.startswith("_"):
            assert inspect.getdoc(member), name


def examples():
    for name, value in EVERYTHING.items():
        if ">>>" in (value.__doc__ or ""):
            yield name


@pytest.mark.parametrize("name", list(examples()))
def test_examples_give_what_they_say(name, tmp_path, emulated):
    if not emulated:
        pytest.skip("examples are NumPy's, which a process with a GPU does not compute: JIT_ATTENTION_DEVICE=emulated:sm_90a")
    names = {name: importlib.import_module(name) for name in FRAMEWORKS}
    if "jax" in FRAMEWORKS:
        names["jnp"] = importlib.import_module("jax.numpy")
    names |= {"ja": ja, "jit_attention": ja, "np": numpy, "ml_dtypes": ml_dtypes, "os": os,
              "dataclasses": dataclasses, "folder": str(tmp_path)}
    example = doctest.DocTestParser().get_doctest(
        textwrap.dedent(EVERYTHING[name].__doc__), names, name, None, None)
    assert example.examples
    told = []
    doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(example, out=told.append)
    assert not told, "".join(told)
