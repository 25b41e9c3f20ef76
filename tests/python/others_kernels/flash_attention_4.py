"""Writes the PTX of FlashAttention-4's kernels to the folder that it runs in: NAME.ptx. Needs no GPU.

usage: CUTE_DSL_ARCH=sm_120a CUTE_DSL_KEEP_PTX=1 flash_attention_4.py               forward kernels of sm_90a or sm_120a
       CUTE_DSL_ARCH=sm_100a CUTE_DSL_KEEP_PTX=1 flash_attention_4.py forward_128   one of sm_100
"""

import importlib.util
import os
import pathlib
import sys
import types


def without_init(name, path):
    """A package whose own module does not run: it imports what asks for a GPU."""
    module = types.ModuleType(name)
    module.__path__ = path
    sys.modules[name] = module


for package in ("flash_attn", "quack"):
    folders = list(importlib.util.find_spec(package).submodule_search_locations)
    without_init(package, folders)
    if package == "flash_attn":
        without_init("flash_attn.cute", [f"{folder}/cute" for folder in folders])

import cutlass.utils  # noqa: E402
from cutlass import BFloat16, Float8E4M3FN, Float32, cute  # noqa: E402


class Hardware:
    """A GPU that is not there."""

    def __init__(self, *_, **__):
        pass

    def __getattr__(self, _):
        return lambda *_, **__: 148


cutlass.utils.HardwareInfo = Hardware
ARCH = os.environ["CUTE_DSL_ARCH"]


def tensor(dtype, shape, divisibility):
    strides = (*(cute.sym_int64(divisibility=divisibility) for _ in shape[1:]), 1)
    return cute.runtime.make_fake_tensor(dtype, shape, stride=strides, assumed_align=divisibility * dtype.width // 8)


def forward_tensors(dtype, head_dim):
    batch, seqlen_q, seqlen_k, heads, heads_k = (cute.sym_int() for _ in range(5))
    divisibility = 128 // dtype.width
    q = tensor(dtype, (batch, seqlen_q, heads, head_dim), divisibility)
    k, v = (tensor(dtype, (batch, seqlen_k, heads_k, head_dim), divisibility) for _ in range(2))
    return q, k, v, tensor(BFloat16, (batch, seqlen_q, heads, head_dim), 8), tensor(Float32, (batch, heads, seqlen_q), 1)


def compile_kernel(kernel, *arguments):
    stream = cute.runtime.make_fake_stream(use_tvm_ffi_env_stream=True)
    cute.compile(kernel, *arguments, stream=stream, options="--enable-tvm-ffi")


def compile_forward(head_dim, is_causal):
    options = dict(is_causal=is_causal, is_local=False, pack_gqa=False, tile_m=128, Q_in_regs=False)
    if ARCH == "sm_90a":
        from flash_attn.cute.flash_fwd_sm90 import FlashAttentionForwardSm90

        forward = FlashAttentionForwardSm90(BFloat16, head_dim, head_dim, 1, tile_n=128, num_stages=2, num_threads=384,
                                            **options)
    else:
        from flash_attn.cute.flash_fwd_sm120 import FlashAttentionForwardSm120

        forward = FlashAttentionForwardSm120(BFloat16, head_dim, head_dim, 1, tile_n=64, num_stages=1, num_threads=128,
                                             **options)
    compile_kernel(forward, *forward_tensors(BFloat16, head_dim), 1.0)


def compile_forward_sm100(head_dim, is_causal=False, of_pair=False, dtype=BFloat16):
    from flash_attn.cute.flash_fwd_sm100 import FlashAttentionForwardSm100

    forward = FlashAttentionForwardSm100(head_dim, head_dim, 1, is_causal=is_causal, is_local=False, q_stage=2,
                                         is_static_persistent=not is_causal, use_2cta_instrs=of_pair)
    compile_kernel(forward, *forward_tensors(dtype, head_dim), 1.0)


def compile_backward_sm100(head_dim, of_pair=False):
    from flash_attn.cute.flash_bwd_sm100 import FlashAttentionBackwardSm100

    batch, heads, rows, dq_elements = (cute.sym_int() for _ in range(4))
    q, k, v, _, _ = forward_tensors(BFloat16, head_dim)
    dout, dk, dv = (tensor(BFloat16, x.shape, 8) for x in (q, k, v))
    lse, sums = (tensor(Float32, (batch, heads, rows), 4) for _ in range(2))
    backward = FlashAttentionBackwardSm100(head_dim, head_dim, is_causal=False, is_local=False, qhead_per_kvhead=1,
                                           tile_m=128, tile_n=128, cluster_size=2 if of_pair else 1,
                                           use_2cta_instrs=of_pair)
    compile_kernel(backward, q, k, v, dout, lse, sums, tensor(Float32, (batch, heads, dq_elements), 4), dk, dv, 0.1)


FORWARD = {"full_64": (64, False), "full_128": (128, False)}
if ARCH == "sm_120a":
    FORWARD["causal_64"] = 64, True
SM100 = {
    "forward_64": lambda: compile_forward_sm100(64),
    "forward_128": lambda: compile_forward_sm100(128),
    "causal_128": lambda: compile_forward_sm100(128, is_causal=True),
    "fp8_128": lambda: compile_forward_sm100(128, dtype=Float8E4M3FN),
    "pair_128": lambda: compile_forward_sm100(128, of_pair=True),
    "backward_128": lambda: compile_backward_sm100(128),
    "backward_pair_128": lambda: compile_backward_sm100(128, of_pair=True),
}

if __name__ == "__main__":
    kernels = {name: SM100[name] for name in sys.argv[1:]}
    for name, compile_it in (kernels or {name: lambda o=o: compile_forward(*o) for name, o in FORWARD.items()}).items():
        compile_it()
        (written,) = pathlib.Path().glob(f"*.{ARCH}.ptx")
        written.rename(f"{name}.ptx")
