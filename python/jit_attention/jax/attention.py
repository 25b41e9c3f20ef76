"""Attention as an operation of XLA, with gradients."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypedDict, overload

import jax
import jax.numpy as jnp

from .._keywords import hides_unknown, refuse_unknown
from ..block_mask import BlockMask
from ..errors import InvalidArgumentError
from ..mask import Mask
from ..score import Score
from ..typing import Layout, ScaleKind
from .call import alike, call
from .problem import Problem, refuse, sizes, spec_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

    class Options(TypedDict, total=False):
        """Arguments of `attention` that do not change the kind of its result."""

        mask: Mask | None
        score: Score | None
        softmax_scale: float | None
        layout: Layout
        tensors: Mapping[str, jax.Array] | None
        sinks: jax.Array | None
        cu_seqlens_q: jax.Array | None
        cu_seqlens_k: jax.Array | None
        seqused_q: jax.Array | None
        seqused_k: jax.Array | None
        page_table: jax.Array | None
        cache_leftpad: jax.Array | None
        split_keys: int
        q_descale: jax.Array | None
        k_descale: jax.Array | None
        v_descale: jax.Array | None
        descale_per: ScaleKind
        head_dim_v: int | None
        dropout_p: float
        rng_state: jax.Array | None
        block_mask: BlockMask | None
        deterministic: bool

_VARLEN = "cu_seqlens_q", "cu_seqlens_k", "seqused_q", "seqused_k"
_FORWARD_ONLY = "page_table", "cache_leftpad"


@overload
def attention(q: jax.Array, k: jax.Array, v: jax.Array | None = None, *, return_lse: Literal[False] = False,
              **options: Unpack[Options]) -> jax.Array: ...
@overload
def attention(q: jax.Array, k: jax.Array, v: jax.Array | None = None, *, return_lse: Literal[True],
              **options: Unpack[Options]) -> tuple[jax.Array, jax.Array]: ...
@hides_unknown
def attention(
    q: jax.Array, k: jax.Array, v: jax.Array | None = None, *, mask: Mask | None = None, score: Score | None = None,
    softmax_scale: float | None = None, return_lse: bool = False, layout: Layout = "BSHD",
    tensors: Mapping[str, jax.Array] | None = None, sinks: jax.Array | None = None,
    cu_seqlens_q: jax.Array | None = None, cu_seqlens_k: jax.Array | None = None,
    seqused_q: jax.Array | None = None, seqused_k: jax.Array | None = None, page_table: jax.Array | None = None,
    cache_leftpad: jax.Array | None = None, split_keys: int = 0, q_descale: jax.Array | None = None,
    k_descale: jax.Array | None = None, v_descale: jax.Array | None = None, descale_per: ScaleKind = "head",
    head_dim_v: int | None = None, dropout_p: float = 0.0, rng_state: jax.Array | None = None,
    block_mask: BlockMask | None = None, deterministic: bool = False, **unknown: Any,
) -> Any:
    """Computes `jit_attention.attention` of JAX arrays, also inside of ``jax.jit``, with gradients by ``jax.grad``.

    q, k, v, sinks and the arrays that scores read have gradients. Kernels are compiled before a compiled function
    first runs them, and launched on XLA's stream, also as part of a command buffer. ``jax.vmap``, gradients of
    gradients and forward-mode derivatives are refused: use the batch dimension. Inside of ``jax.shard_map`` each
    device computes its own batch entries and heads.

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
        page_table: As in `jit_attention.attention`; without gradients.
        cache_leftpad: As in `jit_attention.attention`; without gradients.
        split_keys: As in `jit_attention.attention`.
        q_descale: As in `jit_attention.attention`.
        k_descale: As in `jit_attention.attention`.
        v_descale: As in `jit_attention.attention`.
        descale_per: The elements of FP8 k and v that share a scale, as in `jit_attention.AttentionSpec`.
        head_dim_v: As in `jit_attention.attention`; without gradients.
        dropout_p: The rate of dropout, 0 ≤ dropout_p < 1.
        rng_state: A key of ``jax.random``, or int64 (2). Required with dropout_p; equal states drop the same
            probabilities. Ignored if dropout_p is 0.
        block_mask: A `jit_attention.BlockMask`, which may be an argument of the compiled function.
        deterministic: Whether equal inputs must give bitwise identical gradients. The result always is deterministic.

    Returns:
        o, or (o, LSE). Padding rows are 0, and −inf in LSE; padding rows of gradients are 0.

    Raises:
        InvalidArgumentError: Raised at tracing: an argument is missing or wrong, or a gradient does not exist.
        InvalidSpecError: The library does not serve this problem; the message says what would work.
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
    if layout not in ("BSHD", "BHSD"):
        refuse("layout", f"is {layout!r}; it must be 'BSHD' or 'BHSD'")
    for name, array in dict(q=q, k=k).items():
        if array is None:
            refuse(name, "is None; it must be an array")
    given = dict(q=q, k=k, v=v, sinks=sinks, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k,
                 seqused_q=seqused_q, seqused_k=seqused_k, page_table=page_table, cache_leftpad=cache_leftpad,
                 q_descale=q_descale, k_descale=k_descale, v_descale=v_descale,
                 rng_state=_random_numbers(dropout_p, rng_state))
    arrays = {name: jnp.asarray(array) for name, array in given.items() if array is not None}
    over, read = _over(block_mask, "_for_call", mask, score, tensors)
    backward_over, backward_read = _over(block_mask, "_for_gradients", mask, score, tensors)
    spec = spec_of(arrays, layout, head_dim_v, mask=over, score=score, split_keys=split_keys, descale_per=descale_per,
                   softmax_scale=None if softmax_scale is None else float(softmax_scale))
    if block_mask is not None:
        _check_sizes(block_mask, arrays, layout)
    problem = Problem(spec, backward_over, layout, bool(deterministic), float(dropout_p), tuple(read),
                      tuple(backward_read))
    tensors = {name: jnp.asarray(array) for name, array in {**backward_read, **read}.items()}
    return _attend_alike(problem, bool(return_lse), arrays, tensors)


def attend_by(arrays: dict[str, jax.Array], tensors: dict[str, jax.Array], *, head_dim_v: int | None, return_lse: bool,
              **fields: Any) -> Any:
    """Attention by a spec that these arrays and `fields` decide, of varlen q."""
    spec = spec_of(arrays, "BSHD", head_dim_v, **fields)
    names = tuple(tensors)
    return _attend_alike(Problem(spec, spec.mask, "BSHD", False, 0.0, names, names), return_lse, arrays, tensors)


def _attend_alike(problem, return_lse, arrays, tensors):
    both = alike(arrays | {f"tensors.{name}": array for name, array in tensors.items()})
    o, *lse = _attend(problem, return_lse, {name: both[name] for name in arrays},
                      {name: both[f"tensors.{name}"] for name in tensors})
    return (o, *lse) if return_lse else o


def _random_numbers(dropout_p, rng_state):
    """The 16-byte state for the library, from a key; None without dropout."""
    if not 0 <= dropout_p < 1:
        refuse("dropout_p", f"is {dropout_p}; it must be at least 0 and less than 1")
    if dropout_p == 0:
        return None
    if rng_state is None:
        refuse("rng_state", "is missing beside dropout_p; give a key, such as jax.random.key(0)")
    state = jnp.asarray(rng_state)
    if jnp.issubdtype(state.dtype, jax.dtypes.prng_key):
        state = jax.random.key_data(state)
    if state.dtype == jnp.uint32 and state.shape in ((2,), (4,)):
        return jnp.pad(state, (0, 4 - state.size))
    if state.dtype != jnp.int64 or state.shape != (2,):
        refuse("rng_state", f"is {state.dtype} {state.shape}; it must be a key of jax.random, or int64 (2,)")
    return state


def _over(block_mask, method, mask, score, tensors):
    """Mask and tensors of a call, restricted by its block mask if there is one."""
    if block_mask is None:
        return mask, dict(tensors or {})
    if not isinstance(block_mask, BlockMask):
        raise TypeError(f"block_mask must be a jit_attention.BlockMask, or None, not a {type(block_mask).__name__}")
    return getattr(block_mask, method)(mask, score, tensors)


def _check_sizes(block_mask, arrays, layout):
    seqlen_q, heads = sizes("q", arrays["q"], layout, "cu_seqlens_q" in arrays)
    seqlen_k, _ = sizes("k", arrays["k"], layout, "cu_seqlens_k" in arrays)
    batch = arrays["q"].shape[0]
    if "page_table" in arrays:
        seqlen_k *= arrays["page_table"].shape[1]
    if "cu_seqlens_q" in arrays:
        seqlen_q, batch = -1, arrays["cu_seqlens_q"].shape[0] - 1
    lengths = {name: arrays[name] for name in (*_VARLEN, "cache_leftpad") if name in arrays}
    block_mask._check(seqlen_q, -1 if "cu_seqlens_k" in arrays else seqlen_k, batch, heads, lengths)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _attend(problem, return_lse, arrays, tensors):
    q, v = arrays["q"], arrays.get("v")
    head_dim_v = problem.spec.head_dim_v if v is None else v.shape[-1]
    dtype = jnp.bfloat16 if q.dtype.itemsize == 1 else q.dtype
    results = dict(o=jax.ShapeDtypeStruct((*q.shape[:-1], head_dim_v), dtype))
    if return_lse:
        seqlen, heads = sizes("q", q, problem.layout, "cu_seqlens_q" in arrays)
        shape = (heads, seqlen) if "cu_seqlens_q" in arrays else (q.shape[0], heads, seqlen)
        results["lse"] = jax.ShapeDtypeStruct(shape, jnp.float32)
    return call("forward", problem.spec, problem.layout, arrays, {name: tensors[name] for name in problem.tensors},
                results, dropout_p=problem.dropout_p,
                zero_padding="cu_seqlens_q" in arrays or "seqused_q" in arrays)


def _forward(problem, return_lse, arrays, tensors):
    """Returns results and residuals, which include the names of tensors and sinks with gradients, as keys."""
    perturbed = {name for name, array in {**arrays, **tensors}.items() if array.perturbed}
    arrays, tensors = ({name: array.value for name, array in given.items()} for given in (arrays, tensors))
    _check_gradients(problem, arrays, tensors, perturbed)
    o, lse = _attend(problem, True, arrays, tensors)
    results = [o, lse] if return_lse else [o]
    return results, (arrays, tensors, o, lse, {name: () for name in sorted(perturbed)})


def _check_gradients(problem, arrays, tensors, perturbed):
    has_lists, has_rows = problem.spec.list_block > 0, problem.spec.list_slots
    reasons = {**{name: name in arrays and not has_rows for name in _FORWARD_ONLY},
               "head_dim_v": problem.spec.values_in_keys and not has_lists, "k": arrays["k"].dtype.itemsize == 1}
    for name, is_one in reasons.items():
        if perturbed and is_one:
            reason = "is FP8" if name == "k" else "was given"
            refuse(name, f"{reason}, and a gradient is wanted, and there are none with it: give jax.lax.stop_gradient(…) "
                         "of q, k and v")
    if has_lists and perturbed & set(tensors):
        raise InvalidArgumentError(f"tensors: a gradient of {min(perturbed & set(tensors))!r} is wanted, and gradients from "
                                   "lists have none of it: give jax.lax.stop_gradient(…)", "arguments", "tensors")
    differentiable = problem.spec.score.tensors if problem.spec.score is not None else ()
    for name in sorted(perturbed & set(tensors) - set(differentiable)):
        raise InvalidArgumentError(f"tensors: a gradient of {name!r} is wanted, and no score reads it, only the mask, "
                                   "of which there is no gradient: give jax.lax.stop_gradient(…)", "arguments", name)


def _backward(problem, return_lse, kept, gradients):
    arrays, tensors, o, lse, perturbed = kept
    do, dlse = gradients if return_lse else (*gradients, None)
    spec, shapes = dataclasses.replace(problem.spec, mask=problem.backward_mask), {}
    if "page_table" in arrays:  # rows one behind another, which lists name
        shapes = {name: arrays[name].shape for name in ("k", "v") if name in arrays}
        rows = {name: arrays[name].reshape(-1, *shape[2:]) for name, shape in shapes.items()}
        arrays = {name: array for name, array in arrays.items() if name not in ("page_table", "seqused_k")} | rows | dict(
            cu_seqlens_k=jnp.zeros_like(arrays["cu_seqlens_q"]))
        spec = dataclasses.replace(spec, sequences_kv="varlen", page_size=0)
    operands = {**arrays, "o": o, "lse": lse, "do": jnp.zeros_like(o) if _is_zero(do) else do}
    if dlse is not None and not _is_zero(dlse):
        operands["dlse"] = dlse
    of = {f"d{name}": arrays[name] for name in ("q", "k", "v") if name in arrays}
    if "sinks" in perturbed:
        of["d_sinks"] = arrays["sinks"]
    of |= {f"d_tensors.{name}": array for name, array in tensors.items() if name in perturbed}
    results = {name: jax.ShapeDtypeStruct(array.shape, array.dtype) for name, array in of.items()}
    begun = {"dq", "dk", "dv"} if any(name in arrays for name in _VARLEN) and spec.list_block == 0 else ()
    made = dict(zip(results, call("backward", spec, problem.layout, operands,
                                  {name: tensors[name] for name in problem.backward_tensors}, results, begun=begun,
                                  dropout_p=problem.dropout_p, deterministic=problem.deterministic)))
    made |= {f"d{name}": made[f"d{name}"].reshape(shape) for name, shape in shapes.items()}
    of_arrays = {name: made.get(f"d_{name}" if name == "sinks" else f"d{name}") for name in kept[0]}
    return of_arrays, {name: made.get(f"d_tensors.{name}") for name in tensors}


def _is_zero(gradient):
    return isinstance(gradient, jax.custom_derivatives.SymbolicZero)


_attend.defvjp(_forward, _backward, symbolic_zeros=True)
