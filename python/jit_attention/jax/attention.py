"""Attention as an operation of XLA, with gradients."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Literal, overload

import jax
import jax.numpy as jnp

from .._keywords import hides_unknown, refuse_unknown
from .._written import read, written
from ..errors import InvalidArgumentError
from ..mask import Mask
from ..score import Score
from ..typing import Layout
from .call import call

_SEQUENCES = "cu_seqlens_q", "cu_seqlens_k", "seqused_q", "seqused_k"


@overload
def attention(
    q: jax.Array, k: jax.Array, v: jax.Array, *, mask: Mask | None = None, score: Score | None = None,
    softmax_scale: float | None = None, return_lse: Literal[False] = False, layout: Layout = "BSHD",
    tensors: Mapping[str, jax.Array] | None = None, sinks: jax.Array | None = None,
    cu_seqlens_q: jax.Array | None = None, cu_seqlens_k: jax.Array | None = None,
    seqused_q: jax.Array | None = None, seqused_k: jax.Array | None = None, deterministic: bool = False,
) -> jax.Array: ...
@overload
def attention(
    q: jax.Array, k: jax.Array, v: jax.Array, *, mask: Mask | None = None, score: Score | None = None,
    softmax_scale: float | None = None, return_lse: Literal[True], layout: Layout = "BSHD",
    tensors: Mapping[str, jax.Array] | None = None, sinks: jax.Array | None = None,
    cu_seqlens_q: jax.Array | None = None, cu_seqlens_k: jax.Array | None = None,
    seqused_q: jax.Array | None = None, seqused_k: jax.Array | None = None, deterministic: bool = False,
) -> tuple[jax.Array, jax.Array]: ...
@hides_unknown
def attention(
    q: jax.Array, k: jax.Array, v: jax.Array, *, mask: Mask | None = None, score: Score | None = None,
    softmax_scale: float | None = None, return_lse: bool = False, layout: Layout = "BSHD",
    tensors: Mapping[str, jax.Array] | None = None, sinks: jax.Array | None = None,
    cu_seqlens_q: jax.Array | None = None, cu_seqlens_k: jax.Array | None = None,
    seqused_q: jax.Array | None = None, seqused_k: jax.Array | None = None, deterministic: bool = False,
    **unknown: Any,
) -> Any:
    """Computes `jit_attention.attention` of JAX arrays, also inside of ``jax.jit``, with gradients by ``jax.grad``.

    q, k, v, sinks and the arrays that scores read have gradients. Kernels are compiled when a compiled function first
    runs them, and launched on XLA's stream. ``jax.vmap``, gradients of gradients and forward-mode derivatives are
    refused: use the batch dimension.

    Args:
        q: As in `jit_attention.attention`.
        k: As in `jit_attention.attention`.
        v: As in `jit_attention.attention`.
        mask: As in `jit_attention.attention`.
        score: As in `jit_attention.attention`.
        softmax_scale: As in `jit_attention.attention`.
        return_lse: Whether to return LSE, too, which may be part of a loss.
        layout: As in `jit_attention.attention`.
        tensors: The arrays that mask and score read, by name.
        sinks: As in `jit_attention.attention`.
        cu_seqlens_q: As in `jit_attention.attention`.
        cu_seqlens_k: As in `jit_attention.attention`.
        seqused_q: As in `jit_attention.attention`.
        seqused_k: As in `jit_attention.attention`.
        deterministic: Whether equal inputs must give bitwise identical gradients. The result always is deterministic.

    Returns:
        o, or (o, LSE). Padding rows are 0, and −inf in LSE; padding rows of gradients are 0.

    Raises:
        InvalidArgumentError: An argument is missing or wrong, when the call is traced.
        jax.errors.JaxRuntimeError: The call fails when it runs, with the message of `jit_attention.attention`.

    Thread safety:
        Any number of threads may call at the same time.

    Examples:
        >>> q = jnp.ones((1, 16, 2, 64), jnp.bfloat16)
        >>> attend = jax.jit(lambda q: jit_attention.jax.attention(q, q, q, mask=jit_attention.mask.causal()))
        >>> attend(q).shape
        (1, 16, 2, 64)
    """
    if unknown:
        refuse_unknown(attention, unknown)
    tensors = dict(tensors or {})
    for name, array in dict(q=q, k=k, v=v).items():
        if array is None:
            raise InvalidArgumentError(f"{name}: is None; it must be an array", "arguments", name)
    if layout not in ("BSHD", "BHSD"):
        raise InvalidArgumentError(f"layout: is {layout!r}; it must be 'BSHD' or 'BHSD'", "arguments", "layout")
    arrays = dict(q=q, k=k, v=v, sinks=sinks, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k,
                  seqused_q=seqused_q, seqused_k=seqused_k)
    arrays = {name: jnp.asarray(array) for name, array in arrays.items() if array is not None}
    wanted = 3 if cu_seqlens_q is not None else 4
    if arrays["q"].ndim != wanted:
        raise InvalidArgumentError(f"q: has {arrays['q'].ndim} dimensions; it must have {wanted}", "arguments", "q")
    scale = None if softmax_scale is None else float(softmax_scale)
    differentiable = tuple(score.tensors) if score is not None else ()
    problem = written(mask, score, scale, layout, bool(deterministic), differentiable)
    o, lse = _attend(problem, arrays, {name: jnp.asarray(array) for name, array in tensors.items()})
    return (o, lse) if return_lse else o


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(problem, arrays, tensors):
    q, v = arrays["q"], arrays["v"]
    if "cu_seqlens_q" in arrays:
        lse = q.shape[1], q.shape[0]
    else:
        heads, seqlen = (1, 2) if _layout(problem) == "BHSD" else (2, 1)
        lse = q.shape[0], q.shape[heads], q.shape[seqlen]
    results = dict(o=jax.ShapeDtypeStruct((*q.shape[:-1], v.shape[-1]), q.dtype),
                   lse=jax.ShapeDtypeStruct(lse, jnp.float32))
    o, lse = call("forward", problem, arrays, tensors, results)
    return o, lse


def _layout(problem):
    return read(problem)[3]


def _forward(problem, arrays, tensors):
    """Keeps what gradients need, and the names of tensors and sinks whose gradients are wanted, as keys."""
    perturbed = {name for name, array in {**arrays, **tensors}.items() if array.perturbed}
    arrays, tensors = ({name: array.value for name, array in given.items()} for given in (arrays, tensors))
    *_, differentiable = read(problem)
    for name in sorted(perturbed & set(tensors) - set(differentiable)):
        raise InvalidArgumentError(f"tensors: a gradient of {name!r} is wanted, and no score reads it, only the mask, "
                                   "of which there is no gradient: give jax.lax.stop_gradient(…)", "arguments", name)
    o, lse = _attend(problem, arrays, tensors)
    return (o, lse), (arrays, tensors, o, lse, {name: () for name in sorted(perturbed)})


def _backward(problem, kept, gradients):
    arrays, tensors, o, lse, perturbed = kept
    do, dlse = gradients
    given = {**arrays, "o": o, "lse": lse}
    given["do"] = jnp.zeros_like(o) if _is_zero(do) else do
    if not _is_zero(dlse):
        given["dlse"] = dlse
    wanted = [*(name for name in ("sinks",) if name in perturbed), *(name for name in tensors if name in perturbed)]
    of = {"dq": arrays["q"], "dk": arrays["k"], "dv": arrays["v"],
          **{f"d_{name}": arrays[name] if name == "sinks" else tensors[name] for name in wanted}}
    zeros = {"dq", "dk", "dv"} if any(name in arrays for name in _SEQUENCES) else set()
    results = {name: jax.ShapeDtypeStruct(array.shape, array.dtype) for name, array in of.items()}
    made = dict(zip(results, call("backward", problem, given, tensors, results, zeros)))
    of_arrays = {name: made.get(f"d{name}", made.get(f"d_{name}")) for name in arrays}
    return of_arrays, {name: made.get(f"d_{name}") for name in tensors}


def _is_zero(gradient):
    return isinstance(gradient, jax.custom_derivatives.SymbolicZero)


_attend.defvjp(_forward, _backward, symbolic_zeros=True)
