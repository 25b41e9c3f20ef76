"""A wheel's trial, run by its Python: an import, an emulated GPU's result, the tool."""

import os
import subprocess
import sys
import tempfile
import time

LONGEST_IMPORT = 0.06  # seconds of CPU time; the best of several processes

os.environ["JIT_ATTENTION_DEVICE"] = "emulated:sm_90a"
os.environ["JIT_ATTENTION_CACHE_DIR"] = tempfile.mkdtemp()


def import_seconds():
    program = "import time; start = time.process_time(); import jit_attention; print(time.process_time() - start)"
    return min(float(subprocess.check_output([sys.executable, "-c", program])) for _ in range(5))


def attention_error():
    """The largest difference of an emulated result from an fp64 one."""
    import jit_attention as ja
    import numpy as np

    q, k, v = (np.random.default_rng(i).standard_normal((2, 33, 4, 64)).astype(np.float16) for i in range(3))
    o = ja.attention(q, k, v, mask=ja.mask.causal())
    scores = np.einsum("bqhd,bkhd->bhqk", q.astype(float), k.astype(float)) / 8
    weights = np.exp(np.where(np.tri(33, dtype=bool), scores, -np.inf))
    exact = np.einsum("bhqk,bkhd->bqhd", weights / weights.sum(-1, keepdims=True), v.astype(float))
    return np.abs(o - exact).max()


def main():
    began, cpu_began = time.perf_counter(), time.process_time()
    error = attention_error()
    first, cpu = time.perf_counter() - began, time.process_time() - cpu_began
    assert error < 2e-3, f"the result is off by {error}"
    seconds = import_seconds()
    if "--any-speed" not in sys.argv:
        assert seconds < LONGEST_IMPORT, f"the import takes {seconds * 1e3:.0f} ms"
    tool = [sys.executable, "-m", "jit_attention"]
    compiled = subprocess.check_output([*tool, "compile", "--arch", "sm_90a", "--head-dim", "128"], text=True)
    assert "forward_wgmma" in compiled, compiled
    info = subprocess.check_output([*tool, "info"], text=True)
    (nvrtc,) = (line.strip() for line in info.splitlines() if "found by" in line)
    print(f"Python {sys.version.split()[0]}: import {seconds * 1e3:.0f} ms, "
          f"first result {first:.1f} s ({cpu:.1f} s of CPU), error {error:.1e}, {nvrtc}")


if __name__ == "__main__":
    main()
