"""Writes the PTX of FlashAttention-4's forward kernels of an architecture to the folder that it runs in: NAME.ptx.

usage: CUTE_DSL_ARCH=ARCH CUTE_DSL_KEEP_PTX=1 flash_attention_4.py, with sm_90a, sm_100a or sm_120a. Needs no GPU.
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
from cutlass import BFloat16, Float32, cute  # noqa: E402


class Hardware:
    """A GPU that is not there."""

    def __init__(self, *_, **__):
        pass

    def __getattr__(self, _):
        return lambda *_, **__: 148


cutlass.utils.HardwareInfo = Hardware
from flash_attn.cute.flash_fwd_sm90 import FlashAttentionForwardSm90  # noqa: E402
from flash_attn.cute.flash_fwd_sm100 import FlashAttentionForwardSm100  # noqa: E402
from flash_attn.cute.flash_fwd_sm120 import FlashAttentionForwardSm120  # noqa: E402

ARCH = os.environ["CUTE_DSL_ARCH"]


def tensor(dtype, shape, divisibility):
    strides = (*(cute.sym_int64(divisibility=divisibility) for _ in shape[1:]), 1)
    return cute.runtime.make_fake_tensor(dtype, shape, stride=strides, assumed_align=divisibility * dtype.width // 8)


def compile_forward(head_dim, is_causal):
    batch, seqlen_q, seqlen_k, heads, heads_k = (cute.sym_int() for _ in range(5))
    q, o = (tensor(BFloat16, (batch, seqlen_q, heads, head_dim), 8) for _ in range(2))
    k, v = (tensor(BFloat16, (batch, seqlen_k, heads_k, head_dim), 8) for _ in range(2))
    lse = tensor(Float32, (batch, heads, seqlen_q), 1)
    options = dict(is_causal=is_causal, is_local=False, pack_gqa=False, tile_m=128, Q_in_regs=False)
    if ARCH == "sm_90a":
        forward = FlashAttentionForwardSm90(BFloat16, head_dim, head_dim, 1, tile_n=128, num_stages=2, num_threads=384,
                                            **options)
    elif ARCH == "sm_100a":
        forward = FlashAttentionForwardSm100(head_dim, head_dim, 1, is_causal=is_causal, is_local=False, q_stage=2,
                                             is_static_persistent=True, use_2cta_instrs=False)
    else:
        forward = FlashAttentionForwardSm120(BFloat16, head_dim, head_dim, 1, tile_n=64, num_stages=1, num_threads=128,
                                             **options)
    stream = cute.runtime.make_fake_stream(use_tvm_ffi_env_stream=True)
    cute.compile(forward, q, k, v, o, lse, 1.0, stream=stream, options="--enable-tvm-ffi")


if __name__ == "__main__":
    kinds = {"full_64": (64, False), "full_128": (128, False)}
    if ARCH == "sm_120a":
        kinds["causal_64"] = 64, True
    for name, kind in kinds.items():
        compile_forward(*kind)
        (written,) = pathlib.Path().glob(f"*.{ARCH}.ptx")
        written.rename(f"{name}.ptx")
