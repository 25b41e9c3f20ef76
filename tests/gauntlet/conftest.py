"""A scratch cache for kernels, no tuning, and the other folder of tests in Python, whose seeds this one uses."""

import os
import pathlib
import sys
import tempfile

os.environ.setdefault("JIT_ATTENTION_CACHE_DIR", tempfile.mkdtemp(prefix="jit-attention-test-"))
os.environ.setdefault("JIT_ATTENTION_TUNING", "off")
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "python")]
