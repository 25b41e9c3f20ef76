"""Calls of this package as strict type checkers see them. Run, it checks that the results have these types."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import jit_attention as ja
import ml_dtypes
import numpy as np
from jit_attention import flash_attn as fa
from jit_attention import typing as jt
from jit_attention.flash_attn import v3, v4

if sys.version_info >= (3, 11):
    from typing import assert_type
else:
    from typing_extensions import assert_type

Floats = np.ndarray[Any, np.dtype[Any]]


def ones(*shape: int) -> Floats:
    return np.ones(shape, np.dtype(ml_dtypes.bfloat16))


def stacked(*arrays: Floats, axis: int = 0) -> Floats:
    return np.stack(arrays, axis)


class Tensor:
    """An array of another framework."""

    def __dlpack__(self, *, stream: int | None = None) -> object:
        raise NotImplementedError


def forward() -> tuple[Floats, Floats, Floats]:
    q = ones(1, 16, 2, 64)
    o = ja.attention(q, q, q, mask=ja.mask.causal() & ~ja.mask.prefix(4), layout="BSHD")
    assert_type(o, Floats)
    o, lse = ja.attention(q, q, q, score=ja.score.softcap(30).then(ja.score.alibi()), return_lse=True,
                          tensors={"alibi_slopes": np.ones(2, np.float32)}, dtype="bf16", tuning="off")
    assert_type(lse, Floats)
    written = ja.attention(q, q, q, return_lse=np.empty((1, 2, 16), np.float32), out=ones(1, 16, 2, 64))
    assert_type(written, tuple[Floats, Floats])
    return q, o, lse


def backward(q: Floats, o: Floats, lse: Floats) -> None:
    assert_type(ja.attention_backward(o, q, q, q, o, lse), tuple[Floats, Floats, Floats])
    sinks = np.ones(2, np.float32)
    *_, d_sinks = ja.attention_backward(o, q, q, q, o, lse, sinks=sinks, d_sinks=True)
    assert d_sinks.shape == (2,)
    bias = np.zeros((1, 2, 16, 16), np.float32)
    dq, dk, dv, gradients = ja.attention_backward(o, q, q, q, o, lse, score=ja.score.bias(), tensors={"bias": bias},
                                                  d_tensors=["bias"])
    assert_type(gradients, dict[str, Floats])
    assert dq.shape == dk.shape == dv.shape and gradients["bias"].shape == bias.shape
    kernels = ja.prepare_backward(o, q, q, q, o, lse)
    assert_type(kernels, list[ja.Kernel])


def prepared(q: Floats) -> None:
    spec = ja.AttentionSpec(head_dim=64, sequences_kv="dense")
    call = ja.prepare(spec, q, q, q)
    assert_type(call, ja.Attention)
    assert_type(call(q, q, q), Floats)
    assert_type(call(q, q, q, return_lse=True), tuple[Floats, Floats])
    kernel = ja.compile(spec, "sm_80")
    assert_type(kernel.config, dict[str, Any])
    assert_type(kernel.registers, int)
    assert_type(call.spec, ja.AttentionSpec)
    assert ja.supports("sm_90a", head_dim=64) and ja.refusals("sm_90a", head_dim=100)[0].nearest == "104"


def serving(q: Floats) -> None:
    new, cache = ones(3, 2, 64), ones(4, 16, 2, 64)
    slots = np.arange(3)
    assert_type(ja.append(new, new, cache, cache.copy(), slot_mapping=slots), None)
    assert_type(ja.append(new, new, cache, cache.copy(), slot_mapping=slots, q=ones(3, 4, 64)), Floats)
    o, lse = ja.attention(q, q, q, return_lse=True)
    assert_type(ja.merge([o, o], [lse, lse]), tuple[Floats, Floats])
    z = ja.quantize_qkv(q, q, q, scales="head")
    assert_type(ja.attention(q, q, q, block_mask=ja.block_mask(q, q, mask=ja.mask.causal())), Floats)
    assert_type(z, ja.QuantizedQkv)


def of_flash_attention(q: Floats, asked: bool) -> None:
    assert_type(fa.flash_attn_func(q, q, q, causal=True, window_size=(8, 0)), Floats)
    assert_type(fa.flash_attn_func(q, q, q, return_attn_probs=True), tuple[Floats, Floats, None])
    assert not isinstance(fa.flash_attn_func(q, q, q, return_attn_probs=asked), tuple)
    assert_type(fa.flash_attn_qkvpacked_func(stacked(q, q, q, axis=2), return_attn_probs=True), tuple[Floats, Floats, None])
    assert_type(fa.flash_attn_with_kvcache(q, q, q, cache_seqlens=3), Floats)
    o, lse = fa.flash_attn_with_kvcache(q, q, q, return_softmax_lse=True)
    parts = stacked(lse, lse).swapaxes(2, 3)
    assert_type(fa.flash_attn_combine(stacked(o, o), parts, out_dtype="fp32"), tuple[Floats, Floats])
    assert_type(v3.flash_attn_func(q, q, q), Floats)
    assert_type(v3.flash_attn_func(q, q, q, return_attn_probs=True), tuple[Floats, Floats])
    assert_type(v3.flash_attn_with_kvcache(q, q, q, return_softmax_lse=True), tuple[Floats, Floats, Floats, Floats])
    assert_type(v4.flash_attn_func(q, q, q), tuple[Floats, None])
    assert_type(v4.flash_attn_func(q, q, q, return_lse=True), tuple[Floats, Floats])
    assert_type(v4.flash_attn_combine(stacked(o, o), parts, return_lse=False), tuple[Floats, None])
    sequences, begins = ones(16, 2, 64), np.array([0, 9, 16], np.int32)
    assert_type(fa.flash_attn_varlen_func(sequences, sequences, sequences, begins, begins, 9, 9), Floats)
    assert_type(v4.flash_attn_varlen_func(sequences, sequences, sequences, cu_seqlens_q=begins, cu_seqlens_k=begins,
                                          return_lse=True), tuple[Floats, Floats])


def emulator(q: Floats) -> None:
    with ja.trace() as recorded:
        ja.attention(q, q, q)
    assert_type(recorded.launches, list[ja.LaunchTrace])
    assert_type(ja.devices()[0].arch, str)
    assert_type(ja.tile_map(ja.mask.causal(), seqlen_q=256, seqlen_kv=256).counts, dict[str, int])
    try:
        ja.AttentionSpec(head_dim=100)
    except ja.InvalidSpecError as error:
        assert error.field == "head_dim"


def any_kernel() -> None:
    module = ja.emulator.load(".version 8.7\n.target sm_80\n.address_size 64\n.entry k(.param .u64 p) { ret; }\n")
    x = np.zeros(4, np.float32)
    report = module["k"](1, (32, 1), (ja.emulator.Output(x),), seed=3, allow=["data race"])
    assert_type(module.kernels, tuple[ja.emulator.Kernel, ...])
    assert_type(report.findings, tuple[ja.emulator.Finding, ...])
    assert_type(module["k"](1, 32, None).warp_instructions, int)


def in_any_framework(q: jt.ArrayT, k: jt.Array) -> jt.ArrayT:
    return ja.attention(q, k, k)


if TYPE_CHECKING:
    assert_type(in_any_framework(Tensor(), Tensor()), Tensor)
    assert_type(ja.attention(Tensor(), Tensor(), Tensor(), return_lse=True), tuple[Tensor, Tensor])

    # Each of these is an error, and a checker that finds none where one is expected says so.
    ja.attention([1.0], Tensor(), Tensor())  # type: ignore[call-overload] # pyright: ignore
    ja.attention(Tensor(), Tensor(), Tensor(), layout="SBHD")  # type: ignore[call-overload] # pyright: ignore
    ja.attention(Tensor(), Tensor(), Tensor(), causal=True)  # type: ignore[call-overload] # pyright: ignore
    ja.attention(Tensor(), Tensor(), Tensor(), dtype="float8")  # type: ignore[call-overload] # pyright: ignore
    ja.mask.causal(upper=True)  # type: ignore[arg-type] # pyright: ignore
    ja.mask.causal("top")  # type: ignore[arg-type] # pyright: ignore
    fa.flash_attn_func(Tensor(), Tensor(), Tensor(), return_lse=True)  # type: ignore[call-overload] # pyright: ignore
    ja.merge([Tensor()], [Tensor()], out_dtype="int32")  # type: ignore[arg-type] # pyright: ignore

if __name__ == "__main__":
    made = forward()
    backward(*made)
    prepared(made[0])
    serving(made[0])
    of_flash_attention(made[0], False)
    emulator(made[0])
    any_kernel()
