"""Reading a kernel: its source, what the assembler says of it, and what it does line by line.

    JIT_ATTENTION_DEVICE=emulated:sm_80 python examples/read_a_kernel.py

Compiling needs no GPU. On an emulated device a trace counts instructions, bytes and bank conflicts of each source line.
`jit-attention dump` writes the same to files, with PTX, SASS and templates.
"""

from arrays import random_arrays

import jit_attention as ja

spec = ja.AttentionSpec(dtype="fp16", head_dim=64, mask=ja.mask.causal())
kernel = ja.compile(spec, "sm_80", config="family=forward_mma_sync tile_q=64 tile_kv=64 warps=4")
print(kernel.source)
print(f"{kernel.name}: {kernel.registers} registers, {kernel.spill_bytes} bytes spilled, "
      f"{kernel.smem_bytes} bytes of shared memory, {kernel.threads} threads")  # fmt: skip
print(f"mma.sync stands in the PTX {kernel.ptx.count('mma.sync')} times")

if ja.devices()[0].emulated:
    q, k, v = random_arrays(3, 1, 128, 2, 64)
    with ja.trace() as seen:
        ja.attention(q, k, v, mask=ja.mask.causal())
    (launch,) = seen.launches
    print(f"\n{launch.kernel}: {launch.warp_instructions} warp instructions, findings: {launch.findings or 'none'}")
    kinds = sorted(launch.counts["by_class"].items(), key=lambda kind: -kind[1]["warp_instructions"])
    print(", ".join(f"{name} {counts['warp_instructions']}" for name, counts in kinds))
    lines = sorted(launch.counts["by_line"], key=lambda line: -line["warp_instructions"])
    for line in lines[:5]:
        conflicts = line.get("bank_wavefronts", 0) - line.get("ideal_wavefronts", 0)
        print(f"  {line['warp_instructions']:6} instructions, {conflicts} bank conflicts: {line['file']}:{line['line']}")
