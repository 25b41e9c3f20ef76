"""The first things that a user meets: documentation, stubs, names."""

import ast
import inspect
import json
import os
import pathlib
import subprocess

import jit_attention as ja
import pytest

PACKAGE = pathlib.Path(ja.__file__).parent


def public(module):
    names = getattr(module, "__all__", None) or [name for name in vars(module) if not name.startswith("_")]
    for name in names:
        value = getattr(module, name)
        if getattr(value, "__module__", "").startswith("jit_attention") and callable(value):
            yield f"{module.__name__}.{name}", value


EVERYTHING = [pair for module in (ja, ja.mask, ja.score, ja.cache) for pair in public(module)]


@pytest.mark.parametrize("value", [value for _, value in EVERYTHING], ids=[name for name, _ in EVERYTHING])
def test_public_names_are_documented(value):
    assert value.__doc__ and len(value.__doc__) > 15
    if inspect.isclass(value):
        for name, member in vars(value).items():
            if not name.startswith("_") and callable(member):
                assert member.__doc__, name


def test_the_stub_names_what_the_extension_has():
    stub = ast.parse((PACKAGE / "_core.pyi").read_text())
    declared = {node.name for node in stub.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    declared |= {node.target.id for node in stub.body if isinstance(node, ast.AnnAssign)} - {"__version__"}
    from jit_attention import _core

    assert {name for name in vars(_core) if not name.startswith("__")} == declared
    assert (PACKAGE / "py.typed").exists()


def test_the_tool_has_the_packages_version():
    tool = os.environ.get("JIT_ATTENTION_TOOL")
    if not tool:
        pytest.skip("JIT_ATTENTION_TOOL does not name the program")
    ask = lambda *words: subprocess.run([tool, *words], capture_output=True, text=True, check=True).stdout  # noqa: E731
    assert ask("--version").strip() == json.loads(ask("info", "--json"))["version"] == ja.__version__


def test_attention_has_the_arguments_that_the_readme_shows():
    shown = ["mask", "score", "softmax_scale", "return_lse", "out", "dtype", "layout", "tensors", "stream", "tuning"]
    assert set(shown) <= set(inspect.signature(ja.attention).parameters)


def test_all_is_true():
    assert set(ja.__all__) <= set(vars(ja))
    assert all(kind.__name__ in ja.__all__ for kind in ja.Error.__subclasses__())
