"""The programs of examples/: each runs and is in the index, or says which package is missing."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.parametrize("name", ["distributed_training.py", "grpo.py", "minilm.py", "serve.py", "train_sums.py"])
def test_one_sentence_where_a_package_is_missing(name):
    run = "import runpy, sys; sys.modules['torch'] = None; runpy.run_path(sys.argv[1], run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", run, EXAMPLES / name], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith(f"{name} needs PyTorch") and "pip install torch" in done.stderr


def run(name):
    paths = os.pathsep.join(path for path in sys.path if path)
    return subprocess.run([sys.executable, EXAMPLES / name], capture_output=True, text=True, timeout=240,
                          env=os.environ | {"PYTHONPATH": paths})  # fmt: skip


# Each ends with an error where a result is wrong.
@pytest.mark.parametrize("name, said", [
    ("first_attention.py", "lse: largest error against double precision "),
    ("own_mask_and_score.py", "gradient of the table: largest error against double precision "),
    ("paged_decoding.py", "step 2, request 2 of 23 keys: largest error against double precision "),
    ("video_mask.py", "1536 tokens, 24% of the scores\n"),
    ("packs_offline.py", "window: is neither in the cache nor in a pack, and compiling is forbidden"),
    ("read_a_kernel.py", " registers, 0 bytes spilled, "),
    ("find_race.py", "mended: no findings, "),
])  # fmt: skip
def test_it_runs(name, said, emulated):
    if not emulated:
        pytest.importorskip("torch", reason="arrays on a GPU are PyTorch's in the examples")
    done = run(name)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout, done.stdout


def test_an_example_notices_a_wrong_result(tmp_path):
    for name in ("arrays.py", "first_attention.py"):
        text = (EXAMPLES / name).read_text()
        (tmp_path / name).write_text(text.replace("mask=ja.mask.causal()", "mask=None"))
    done = run(tmp_path / "first_attention.py")
    assert done.returncode == 1 and done.stderr.startswith("o is wrong: the error is above "), done.stderr


def test_the_index_has_every_program():
    linked = set(re.findall(r"\]\((\w+\.(?:py|cpp))\)", (EXAMPLES / "README.md").read_text()))
    assert linked == {path.name for path in EXAMPLES.glob("*.*") if path.suffix in (".py", ".cpp")} - {"arrays.py"}
