"""A scratch cache for kernels, no tuning, and the other folder of tests in Python, whose seeds this one uses."""

import os
import pathlib
import sys
import tempfile

if not any(map(os.path.exists, ("/dev/nvidiactl", "/dev/dxg"))):  # no GPU
    os.environ.setdefault("JIT_ATTENTION_DEVICE", "emulated:sm_90a")
os.environ.setdefault("JIT_ATTENTION_CACHE_DIR", tempfile.mkdtemp(prefix="jit-attention-test-"))
os.environ.setdefault("JIT_ATTENTION_TUNING", "off")
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "python")]
