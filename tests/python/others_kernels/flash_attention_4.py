"""Writes the PTX of FlashAttention-4's kernels to the folder that it runs in: NAME.ptx. Needs no GPU.

usage: CUTE_DSL_ARCH=sm_120a CUTE_DSL_KEEP_PTX=1 flash_attention_4.py               forward kernels of sm_90a or sm_120a
       CUTE_DSL_ARCH=sm_100a CUTE_DSL_KEEP_PTX=1 flash_attention_4.py NAME...       of sm_100: forward_128,
       backward_causal_pair_192_128…
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
from cutlass import BFloat16, Float8E4M3FN, Float32, Int32, cute  # noqa: E402


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


def compile_kernel(kernel, *arguments, **more):
    stream = cute.runtime.make_fake_stream(use_tvm_ffi_env_stream=True)
    cute.compile(kernel, *arguments, stream=stream, options="--enable-tvm-ffi", **more)


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


def compile_backward_sm100(words):
    """Reads words such as ``["causal", "pair", "gqa", "128"]``: the kernel's problem and its head dims."""
    from flash_attn.cute.flash_bwd_sm100 import FlashAttentionBackwardSm100

    head_dims = [int(word) for word in words if word.isdigit()]
    head_dim, head_dim_v = head_dims[0], head_dims[-1]
    of_pair, is_gqa, is_varlen, in_order = (word in words for word in ("pair", "gqa", "varlen", "deterministic"))
    batch, heads, heads_k, rows, keys = (cute.sym_int() for _ in range(5))

    def dense(dtype, divisibility, *shape):
        return tensor(dtype, shape[1:] if is_varlen else shape, divisibility)

    q, dout = (dense(BFloat16, 8, batch, rows, heads, d) for d in (head_dim, head_dim_v))
    k, v, dk, dv = (dense(BFloat16, 8, batch, keys, heads_k, d) for d in (head_dim, head_dim_v) * 2)
    lse, sums, dq = (dense(Float32, 4, batch, heads, cute.sym_int()) for _ in range(3))
    if is_gqa:  # sums over the heads of a group
        dk, dv = (dense(Float32, 4, batch, heads_k, cute.sym_int()) for _ in range(2))
    more = {}
    if is_varlen:
        more |= {f"mCuSeqlens{x}": tensor(Int32, (cute.sym_int(),), 1) for x in "QK"}
    if in_order:
        names = ("mdQ_semaphore", "mdK_semaphore", "mdV_semaphore") if is_gqa else ("mdQ_semaphore",)
        more |= {name: tensor(Int32, (batch, heads, cute.sym_int(), cute.sym_int()), 1) for name in names}
    backward = FlashAttentionBackwardSm100(head_dim, head_dim_v, is_causal="causal" in words, is_local=False,
                                           qhead_per_kvhead=2 if is_gqa else 1, tile_m=128, tile_n=128,
                                           cluster_size=2 if of_pair else 1, use_2cta_instrs=of_pair,
                                           deterministic=in_order)  # fmt: skip
    compile_kernel(backward, q, k, v, dout, lse, sums, dq, dk, dv, 0.1, **more)


FORWARD = {"full_64": (64, False), "full_128": (128, False)}
if ARCH == "sm_120a":
    FORWARD["causal_64"] = 64, True
SM100 = {
    "forward_64": lambda: compile_forward_sm100(64),
    "forward_128": lambda: compile_forward_sm100(128),
    "causal_128": lambda: compile_forward_sm100(128, is_causal=True),
    "fp8_128": lambda: compile_forward_sm100(128, dtype=Float8E4M3FN),
    "pair_128": lambda: compile_forward_sm100(128, of_pair=True),
}

if __name__ == "__main__":
    kernels = {name: SM100.get(name, lambda name=name: compile_backward_sm100(name.split("_")[1:]))
               for name in sys.argv[1:]}  # fmt: skip
    for name, compile_it in (kernels or {name: lambda o=o: compile_forward(*o) for name, o in FORWARD.items()}).items():
        compile_it()
        (written,) = pathlib.Path().glob(f"*.{ARCH}.ptx")
        written.rename(f"{name}.ptx")
