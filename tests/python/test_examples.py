"""The Python programs of examples/: what they say where a package that they need is not installed."""

import pathlib
import subprocess
import sys

import pytest

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.parametrize("name", ["minilm.py", "serve.py", "train_sums.py"])
def test_one_sentence_where_a_package_is_missing(name):
    run = "import runpy, sys; sys.modules['torch'] = None; runpy.run_path(sys.argv[1], run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", run, EXAMPLES / name], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith(f"{name} needs PyTorch") and "pip install torch" in done.stderr
