"""A pack: all kernels of a program in one file, for machines without a compiler.

    JIT_ATTENTION_DEVICE=emulated:sm_90a python examples/packs_offline.py

The program writes a pack, which needs NVRTC but no GPU. Then a second process, with an empty cache and compiling
forbidden, computes with it. A problem that the pack does not have is an error that says so, not a wait.
"""

import os
import subprocess
import sys
import tempfile

import jit_attention as ja

SERVICE = """
import jit_attention as ja
from arrays import random_arrays

q, k, v = random_arrays(3, 2, 40, 2, 64)
print("causal:", ja.attention(q, k, v, mask=ja.mask.causal()).shape)
try:
    ja.attention(q, k, v, mask=ja.mask.sliding_window(16))
except ja.errors.OfflineError as error:
    print("window:", str(error).rsplit(") ", 1)[-1].split(";")[0])
"""

device = ja.devices()[0]
target = f"emulated:{device.arch}" if device.emulated else device.arch
with tempfile.TemporaryDirectory() as folder:
    pack = os.path.join(folder, "service.pack")
    spec = ja.AttentionSpec(dtype="fp16", head_dim=64, mask=ja.mask.causal())
    kernels = ja.write_pack(pack, [spec], [target], heads_q=2, max_batch=2, max_seqlen=64)
    print(f"{len(kernels)} kernels for {target}, {os.path.getsize(pack) / 1000:.0f} KB")

    paths = [os.path.dirname(os.path.abspath(__file__)), *filter(None, sys.path)]
    settings = {"JIT_ATTENTION_PACK": pack, "JIT_ATTENTION_OFFLINE": "1", "PYTHONPATH": os.pathsep.join(paths),
                "JIT_ATTENTION_CACHE_DIR": os.path.join(folder, "empty")}  # fmt: skip
    subprocess.run([sys.executable, "-c", SERVICE], env=os.environ | settings, check=True)
