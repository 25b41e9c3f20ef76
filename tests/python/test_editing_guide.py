"""The commands of docs/editing-kernels.md, as a reader would run them, in one folder."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

PAGE = (pathlib.Path(__file__).parents[2] / "docs/editing-kernels.md").read_text()
STRICT_KEEP, STRICT_RANGE = "return k < q + shift;", "minimum(seqlen_kv, q + shift)"


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where all blocks of the shell have run; what they printed is in `printed`."""
    tool = os.environ.get("JIT_ATTENTION_TOOL")
    if not tool:
        pytest.skip("JIT_ATTENTION_TOOL does not name the program")
    folder = tmp_path_factory.mktemp("guide")
    (folder / "bin").mkdir()
    (folder / "bin/jit-attention").symlink_to(tool)
    (folder / "bin/python3").symlink_to(sys.executable)
    shell = blocks("sh")
    (folder / "first_row.py").write_text(blocks("python")[0])
    paths = os.pathsep.join(path for path in sys.path if path)
    environment = os.environ | {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": paths}
    done = subprocess.run(["bash", "-e", "-c", "\n".join(shell)], cwd=folder, env=environment, capture_output=True,
                          text=True, timeout=600)  # fmt: skip
    assert done.returncode == 0, done.stderr
    (folder / "printed").write_text(done.stdout)
    return folder


def test_every_step_works(folder):
    expected = re.search(r"It prints `(.*?)`", PAGE)[1]
    printed = (folder / "printed").read_text()
    assert expected in printed.splitlines()
    masks = (folder / "kernel/templates/problem/masks.cuh").read_text()
    assert STRICT_KEEP in masks and STRICT_RANGE in masks and "q + shift + 1)" not in masks
    kernels = [(folder / name / "kernel.ptx").read_text() for name in ("kernel", "edited")]
    assert kernels[0] != kernels[1] and "\n< " in printed and "\n> " in printed  # what diff shows


def test_a_forgotten_half_is_found_as_the_page_says(folder, run_python):
    first, second = blocks("python")
    masks = folder / "kernel/templates/problem/masks.cuh"
    masks.write_text(masks.read_text().replace(STRICT_RANGE, "minimum(seqlen_kv, q + shift + 1)"))
    code, comment = second.split("# ", 1)
    message = re.sub(r"\s*\n# ", " ", comment).strip().removeprefix("InvalidSpecError: ")
    script = f"{first}\ntry:\n" + "".join(f"    {line}\n" for line in code.splitlines()) + (
        "except ja.InvalidSpecError as error:\n    print(error)\n")  # fmt: skip
    printed = run_python(script, JIT_ATTENTION_DEVICE="emulated:sm_90a",
                         JIT_ATTENTION_TEMPLATES=str(folder / "kernel/templates"))  # fmt: skip
    any_place = re.sub(r"\d+", "[0-9]+", re.escape(message))  # whichever query was found first
    assert re.search(any_place, printed), printed
