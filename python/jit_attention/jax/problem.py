"""The static problem of a call of `jit_attention.jax.attention`, without its arrays."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..errors import InvalidArgumentError, InvalidSpecError
from ..functor import element_type
from ..mask import Mask
from ..spec import AttentionSpec
from ..typing import Layout

#: Spec fields and the arguments that determine them.
_ARGUMENTS = {"dtype": "q", "head_dim": "q", "head_dim_v": "v", "gqa_ratio": "k", "alignment": "q", "kv_dtype": "k",
              "sequences_q": "cu_seqlens_q", "sequences_kv": "cu_seqlens_k", "page_size": "k", "dropout": "dropout_p",
              "values_in_keys": "head_dim_v"}


class Problem(NamedTuple):
    """Hashable; equal problems compare equal."""

    spec: AttentionSpec
    backward_mask: Mask | None  # for gradients
    layout: Layout
    deterministic: bool
    dropout_p: float
    tensors: tuple[str, ...]  # names of the forward pass's tensors
    backward_tensors: tuple[str, ...]


def refuse(name: str, reason: str) -> None:
    raise InvalidArgumentError(f"{name}: {reason}", "arguments", name)


def sizes(name: str, array: Any, layout: Layout, is_varlen: bool) -> tuple[int, int]:
    """Rows and heads of a sequence of q, k or v; for pages, a page's rows."""
    wanted = 3 if is_varlen else 4
    if array.ndim != wanted:
        refuse(name, f"has {array.ndim} dimensions; it must have {wanted}")
    if is_varlen:
        return array.shape[0], array.shape[1]
    return (array.shape[2], array.shape[1]) if layout == "BHSD" else (array.shape[1], array.shape[2])


def spec_of(arrays: dict[str, Any], layout: Layout, head_dim_v: int | None, **fields: Any) -> AttentionSpec:
    """The spec of a call with these arrays, by name. Raises errors that name the arguments."""
    q, k, v = arrays["q"], arrays["k"], arrays.get("v")
    if v is None and head_dim_v is None:
        refuse("v", "is None; give values, or say with head_dim_v how many leading columns of k they are")
    if v is not None and head_dim_v is not None:
        refuse("head_dim_v", "was given beside v, whose last dimension it is; give None for v where values are columns "
                             "of k")
    if "page_table" in arrays and "cu_seqlens_k" in arrays:
        refuse("page_table", "was given beside cu_seqlens_k; keys are paged or varlen, not both")
    _, heads_q = sizes("q", q, layout, "cu_seqlens_q" in arrays)
    page_size, heads_k = sizes("k", k, layout, "cu_seqlens_k" in arrays)
    if v is not None:
        sizes("v", v, layout, "cu_seqlens_k" in arrays)
    if (heads_k == 0) != (heads_q == 0) or (heads_k and heads_q % heads_k):
        refuse("k", f"has {heads_k} heads and q has {heads_q}; the number of q's must be a multiple of k's")
    dtype, kv_dtype = _dtypes(arrays)
    is_paged, descale = "page_table" in arrays, arrays.get("v_descale")
    try:
        return AttentionSpec(
            dtype=dtype, head_dim=q.shape[-1], head_dim_v=v.shape[-1] if v is not None else head_dim_v,
            gqa_ratio=heads_q // heads_k if heads_k else 1, alignment=_alignment(q, k, v, head_dim_v),
            sequences_q="varlen" if "cu_seqlens_q" in arrays else "dense",
            sequences_kv="paged" if is_paged else "varlen" if "cu_seqlens_k" in arrays else "dense",
            page_size=page_size if is_paged else 0, sinks="sinks" in arrays, dropout="rng_state" in arrays,
            kv_dtype=None if kv_dtype == dtype else kv_dtype,
            v_descale_per="channel" if dtype.startswith("fp8") and descale is not None and descale.ndim == 3 else "head",
            values_in_keys=v is None, **fields)
    except InvalidSpecError as error:
        name = _ARGUMENTS.get(error.field.removeprefix("spec."))
        if name is None:
            raise
        raise InvalidSpecError(f"{name}: its {error.message.removeprefix('spec.')}", error.stage, name) from None


def _dtypes(arrays):
    """The types of q, and of k and v."""
    dtypes = {name: element_type(arrays[name].dtype) for name in ("q", "k", "v") if name in arrays}
    for name, dtype in dtypes.items():
        if dtype not in ("bf16", "fp16", "fp8_e4m3", "fp8_e5m2"):
            refuse(name, f"is {dtype}; attention takes bf16, fp16 and fp8")
    if dtypes.get("v", dtypes["k"]) != dtypes["k"]:
        refuse("v", f"is {dtypes['v']}; it must be {dtypes['k']}, as k is")
    return dtypes["q"], dtypes["k"]


def _alignment(q, k, v, head_dim_v):
    """The alignment of all rows of q, k, v and o; XLA aligns the first ones to at least 16 bytes."""
    o = head_dim_v if v is None else v.shape[-1]
    rows = 16 | q.shape[-1] * q.dtype.itemsize | k.shape[-1] * k.dtype.itemsize | o * max(q.dtype.itemsize, 2)
    if v is not None:
        rows |= o * v.dtype.itemsize
    return max(rows & -rows, 2)
