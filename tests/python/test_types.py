"""The types of the package: calls of typed_calls.py run, and strict type checkers find nothing in them."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import jit_attention as ja
import pytest

CALLS = pathlib.Path(__file__).with_name("typed_calls.py")
FOLDERS = [str(pathlib.Path(ja.__file__).parents[1])]
FOLDERS += map(os.path.abspath, filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))


def checker(name):
    """The program, beside this Python or on the PATH."""
    found = shutil.which(name, path=os.pathsep.join((str(pathlib.Path(sys.executable).parent), os.environ["PATH"])))
    return found or pytest.skip(f"{name} is not installed: pip install {name}")


def check(folder, *command, **environment):
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, env=os.environ | environment)
    return done.returncode, done.stdout + done.stderr


def under_mypy(folder, text):
    (folder / CALLS.name).write_text(text)
    return check(folder, checker("mypy"), "--strict", "--python-executable", sys.executable, "--cache-dir", folder / "cache",
                 CALLS.name, PYTHONPATH=os.pathsep.join(FOLDERS))


def under_pyright(folder, text):
    (folder / CALLS.name).write_text(text)
    (folder / "pyrightconfig.json").write_text(json.dumps({
        "include": [CALLS.name], "extraPaths": FOLDERS, "typeCheckingMode": "strict", "enableTypeIgnoreComments": False,
        "reportUnnecessaryTypeIgnoreComment": "error", "pythonVersion": ".".join(map(str, sys.version_info[:2]))}))
    return check(folder, checker("pyright"), "-p", ".")


def test_the_calls_run(run_python, emulated):
    if not emulated:
        pytest.skip("they are NumPy's, which a process with a GPU does not compute")
    run_python(f"import runpy; runpy.run_path({str(CALLS)!r}, run_name='__main__')")


@pytest.mark.parametrize("check_strictly", [under_mypy, under_pyright])
def test_strict_checkers_find_nothing(check_strictly, tmp_path):
    status, told = check_strictly(tmp_path, CALLS.read_text())
    assert status == 0, told


@pytest.mark.parametrize("check_strictly", [under_mypy, under_pyright])
def test_checkers_look(check_strictly, tmp_path):
    text = CALLS.read_text()
    for right, wrong in (("assert_type(kernel.registers, int)", "assert_type(kernel.registers, str)"),
                         ("causal() & ~", "causal(upper=True) & ~")):
        assert right in text
        status, told = check_strictly(tmp_path, text.replace(right, wrong, 1))
        assert status == 1 and "error" in told, told


def test_the_stub_is_clean_under_pyright(tmp_path):
    package = pathlib.Path(ja.__file__).parent
    shutil.copytree(package, tmp_path / "jit_attention", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({
        "include": ["jit_attention/_core.pyi", "jit_attention/typing.py"], "typeCheckingMode": "strict", "extraPaths": FOLDERS}))
    status, told = check(tmp_path, checker("pyright"), "-p", ".")
    assert status == 0, told
