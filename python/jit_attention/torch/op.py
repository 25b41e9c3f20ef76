"""Attention as one PyTorch operator, `torch.ops.jit_attention.attention`, and its gradient as another.

Eager calls without gradients go straight to `jit_attention.attention`; the operator is what `torch.compile`,
`torch.export` and autograd see. The arguments of an operator are tensors, numbers and strings, so it carries masks
and scores as text.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Optional, Sequence, TypedDict, overload

import torch
from torch import library
from torch.autograd import forward_ad

from .. import attention as _attention
from .. import attention_backward as _attention_backward
from .. import functor as _functor
from .._keywords import hides_unknown, refuse_unknown
from .._written import plain, read, read_output, written
from ..errors import InvalidArgumentError
from ..mask import Mask
from ..output import OutputFunctor
from ..score import Score
from ..typing import Layout, OutputDType, OutputName, ScaleKind, StoredDType, TuningMode
from . import block_mask as _block_mask

if TYPE_CHECKING:
    from typing_extensions import Unpack

    class Options(TypedDict, total=False):
        """Arguments of `attention` that do not change the kind of its result."""

        mask: Mask | None
        score: Score | None
        softmax_scale: float | None
        layout: Layout
        tensors: Mapping[str, torch.Tensor] | None
        tuning: TuningMode | None
        cu_seqlens_q: torch.Tensor | None
        cu_seqlens_k: torch.Tensor | None
        seqused_q: torch.Tensor | None
        seqused_k: torch.Tensor | None
        page_table: torch.Tensor | None
        cache_leftpad: torch.Tensor | None
        sinks: torch.Tensor | None
        num_splits: int
        zero_padding: bool
        split_keys: int
        k_descale: torch.Tensor | None
        v_descale: torch.Tensor | None
        kv_dtype: StoredDType | torch.dtype | None
        descale_per: ScaleKind | None
        head_dim_v: int | None
        q_descale: torch.Tensor | None
        v_mean: torch.Tensor | None
        lse_shift: torch.Tensor | None
        out_dtype: OutputDType | torch.dtype | None
        exact_exponentials: bool
        dropout_p: float
        rng_state: torch.Tensor | None
        deterministic: bool
        block_mask: Any
        q_positions: torch.Tensor | None
        k_positions: torch.Tensor | None
        global_seqlens: torch.Tensor | None
        output: OutputFunctor | None


@overload
def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor | None = None, *, return_lse: Literal[False] = False,
              return_rng_state: Literal[False] = False, **options: "Unpack[Options]") -> torch.Tensor: ...
@overload
def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor | None = None, *, return_lse: Literal[True],
              return_rng_state: Literal[False] = False,
              **options: "Unpack[Options]") -> tuple[torch.Tensor, torch.Tensor]: ...
@overload
def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor | None = None, *, return_lse: Literal[False] = False,
              return_rng_state: Literal[True],
              **options: "Unpack[Options]") -> tuple[torch.Tensor, torch.Tensor | None]: ...
@overload
def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor | None = None, *, return_lse: Literal[True],
              return_rng_state: Literal[True],
              **options: "Unpack[Options]") -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]: ...
@overload
def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor | None = None, *, return_lse: bool = False,
              return_rng_state: bool = False,
              return_aux: Sequence[OutputName] | Mapping[OutputName, torch.Tensor | None],
              **options: "Unpack[Options]") -> tuple[Any, ...]: ...
@hides_unknown
def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor | None = None, *, mask: Mask | None = None,
              score: Score | None = None, softmax_scale: float | None = None, return_lse: bool = False,
              layout: Layout = "BSHD", tensors: Mapping[str, torch.Tensor] | None = None,
              tuning: TuningMode | None = None, cu_seqlens_q: torch.Tensor | None = None,
              cu_seqlens_k: torch.Tensor | None = None, seqused_q: torch.Tensor | None = None,
              seqused_k: torch.Tensor | None = None, page_table: torch.Tensor | None = None,
              cache_leftpad: torch.Tensor | None = None, sinks: torch.Tensor | None = None, num_splits: int = 0,
              zero_padding: bool = False, split_keys: int = 0, k_descale: torch.Tensor | None = None,
              v_descale: torch.Tensor | None = None, kv_dtype: Any = None, descale_per: ScaleKind | None = None,
              head_dim_v: int | None = None, q_descale: torch.Tensor | None = None, v_mean: torch.Tensor | None = None,
              lse_shift: torch.Tensor | None = None, out_dtype: Any = None, exact_exponentials: bool = False,
              dropout_p: float = 0, rng_state: torch.Tensor | None = None, return_rng_state: bool = False,
              deterministic: bool = False, block_mask: Any = None, q_positions: torch.Tensor | None = None,
              k_positions: torch.Tensor | None = None, global_seqlens: torch.Tensor | None = None,
              return_aux: Sequence[OutputName] | Mapping[OutputName, torch.Tensor | None] | None = None,
              output: OutputFunctor | None = None, **unknown: Any) -> Any:
    """Computes `jit_attention.attention` of PyTorch tensors, eager or compiled, with gradients.

    q, k, v, sinks and the tensors that scores read, and outputs at places of o, have gradients. Under ``torch.compile`` the call is one operator
    without a graph break: ``fullgraph=True`` and ``dynamic=True`` work, with masks and scores that are built outside
    or inside of the compiled function (``~mask`` only outside). A CUDA graph may capture the call after one call of
    the same sizes, which compiles and tunes its kernel. Kernels of gradients are compiled at the first backward pass
    of a size.

    Args:
        q: Queries, bf16 or fp16, or FP8 if k and v are FP8. Under ``torch.autocast``, fp32 and 16-bit tensors are
            converted to its dtype, unless k and v are pages. FP8 tensors have no gradients.
        k: Keys, of q's dtype or FP8.
        v: Values, of k's dtype. None with head_dim_v, without gradients.
        mask: As in `jit_attention.attention`.
        score: As in `jit_attention.attention`.
        softmax_scale: As in `jit_attention.attention`.
        return_lse: Whether to return LSE, too.
        layout: As in `jit_attention.attention`.
        tensors: As in `jit_attention.attention`.
        tuning: As in `jit_attention.attention`.
        cu_seqlens_q: As in `jit_attention.attention`.
        cu_seqlens_k: As in `jit_attention.attention`.
        seqused_q: As in `jit_attention.attention`. Padding rows of the result are uninitialized unless zero_padding
            is set.
        seqused_k: As in `jit_attention.attention`.
        page_table: As in `jit_attention.attention`.
        cache_leftpad: As in `jit_attention.attention`.
        sinks: As in `jit_attention.attention`.
        num_splits: As in `jit_attention.attention`.
        zero_padding: As in `jit_attention.attention`.
        split_keys: As in `jit_attention.attention`.
        k_descale: As in `jit_attention.attention`.
        v_descale: As in `jit_attention.attention`.
        kv_dtype: As in `jit_attention.attention`.
        descale_per: As in `jit_attention.attention`.
        head_dim_v: As in `jit_attention.attention`.
        q_descale: As in `jit_attention.attention`.
        v_mean: As in `jit_attention.attention`.
        lse_shift: As in `jit_attention.attention`.
        out_dtype: As in `jit_attention.attention`.
        exact_exponentials: As in `jit_attention.attention`.
        dropout_p: The rate of dropout, 0 ≤ dropout_p < 1.
        rng_state: int64 (2). Seed and offset of dropout's random numbers. None: they are drawn from the default
            generator of q's device, so that a CUDA graph drops other probabilities at each replay, and
            ``torch.utils.checkpoint`` drops the same ones again. Ignored if dropout_p is 0.
        return_rng_state: Whether to return the rng_state that was used, after o and LSE.
        deterministic: Whether equal inputs must give bitwise identical gradients, as they do under
            ``torch.use_deterministic_algorithms``. The result always is deterministic.
        block_mask: A `jit_attention.BlockMask`; or FlexAttention's, with `mask` instead of its ``mask_mod``. The
            latter is converted in each call: for many calls, convert it once with
            ``jit_attention.BlockMask.from_torch``.
        q_positions: As in `jit_attention.attention`.
        k_positions: As in `jit_attention.attention`.
        global_seqlens: As in `jit_attention.attention`.
        return_aux: As in `jit_attention.attention`. These outputs have no gradients.
        output: As in `jit_attention.attention`. Calls with gradients keep o before it, too.

    Returns:
        o, contiguous, of q's dtype or out_dtype; with return_lse (o, LSE); with return_aux also a dict of tensors;
        with return_rng_state also the state, None if dropout_p is 0. Padding rows of gradients are 0.

    Raises:
        InvalidArgumentError: An argument is wrong, or a gradient is wanted that does not exist: with paged keys or
            cache_leftpad, of a tensor that only the mask reads, or of a gradient. Call under ``torch.no_grad()``, or
            pass ``detach()``. Also inside of ``torch.vmap``, ``torch.func.grad``, and forward-mode differentiation.
        InvalidSpecError: The library does not serve this problem; the message says what would work.
        Error: Compiling, loading or launching failed. ``torch.compile`` wraps errors in its own.

    Thread safety:
        Any number of threads may call at the same time.

    Examples:
        >>> q, k, v = (torch.randn(1, 16, 2, 64, dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
        >>> o = jit_attention.torch.attention(q, k, v, mask=jit_attention.mask.causal())
        >>> o.sum().backward()
        >>> q.grad.shape
        torch.Size([1, 16, 2, 64])
    """
    if unknown:
        refuse_unknown(attention, unknown)
    sequences = dict(cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k, seqused_q=seqused_q, seqused_k=seqused_k,
                     page_table=page_table, cache_leftpad=cache_leftpad, sinks=sinks, num_splits=num_splits,
                     zero_padding=zero_padding, split_keys=split_keys, k_descale=k_descale, v_descale=v_descale,
                     kv_dtype=kv_dtype, descale_per=descale_per, head_dim_v=head_dim_v, q_descale=q_descale,
                     v_mean=v_mean, lse_shift=lse_shift, exact_exponentials=exact_exponentials,
                     out_dtype=None if out_dtype is None else _functor.element_type(out_dtype))
    tensors = _with_positions(tensors or {}, q_positions=q_positions, k_positions=k_positions,
                              global_seqlens=global_seqlens)
    if not torch.compiler.is_compiling():
        if torch._C._are_functorch_transforms_active():
            _refuse_transforms(tensors | {"q": q, "k": k, "v": v, "sinks": sinks})
        if forward_ad._current_level >= 0:
            _refuse_tangents(tensors | {"q": q, "k": k, "v": v, "sinks": sinks})
    if page_table is None:  # else all pages would be copied, in each call
        q, k, v = autocast(q, k, v)
    if dropout_p == 0:  # else a rate is part of what is compiled
        rng_state = None
    else:
        if rng_state is None:
            rng_state = torch.randint(2**63 - 1, (2,), dtype=torch.int64, device=q.device)
        sequences.update(dropout_p=dropout_p, rng_state=rng_state)
    read = *tensors.values(), *getattr(block_mask, "read", {}).values()
    if torch.compiler.is_compiling() or type(q) is not torch.Tensor or _wants_gradient(q, k, v, sinks, *read):
        result = _through_operator(q, k, v, mask, score, softmax_scale, return_lse, layout, tensors, tuning, sequences,
                                   deterministic, block_mask, return_aux, output)
    else:
        result = _attention(q, k, v, mask=mask, score=score, softmax_scale=softmax_scale, return_lse=return_lse,
                            layout=layout, tensors=tensors, tuning=tuning, return_aux=return_aux, output=output,
                            block_mask=_block_mask.for_eager_call(block_mask, mask, tensors, q, layout), **sequences)
    if not return_rng_state:
        return result
    return (*result, rng_state) if isinstance(result, tuple) else (result, rng_state)


def _with_positions(tensors, **positions):
    """The tensors that mask and score read, and those of positions that are given."""
    given = {name: tensor for name, tensor in positions.items() if tensor is not None}
    for name in given:
        if name in tensors:
            raise InvalidArgumentError(f"{name}: was given twice: by itself, and among tensors; leave one of the two "
                                       "out", "arguments", name)
    return {**tensors, **given} if given else tensors


#: What autocast converts; not fp8, whose numbers mean something beside their scales alone, and, as in torch, not fp64.
_CONVERTED = torch.float32, torch.bfloat16, torch.float16


def autocast(*tensors):
    """The tensors as `torch.autocast` would hand them to PyTorch's own attention; as they are where it is off."""
    if not torch._C._is_any_autocast_enabled():  # the quicker question
        return tensors
    device = tensors[0].device.type
    if not torch.is_autocast_enabled(device):
        return tensors
    dtype = torch.get_autocast_dtype(device)
    return tuple(x.to(dtype) if x is not None and x.dtype in _CONVERTED else x for x in tensors)


def _refuse_transforms(tensors):
    """Raises where one of these is what torch.vmap, torch.func.grad or the like put in a tensor's place."""
    for name, tensor in tensors.items():
        if isinstance(tensor, torch.Tensor) and torch._C._functorch.is_functorch_wrapped_tensor(tensor):
            raise InvalidArgumentError(f"{name}: is inside of torch.vmap or a transform of torch.func, which have no "
                                       "rule for this operator: give a batch in place of torch.vmap, and use "
                                       "backward() or torch.autograd.grad in place of torch.func.grad", "arguments",
                                       name)


def _refuse_tangents(tensors):
    """Raises where one of these has one, which PyTorch would look for a rule of the operator's gradient for."""
    for name, tensor in tensors.items():
        if isinstance(tensor, torch.Tensor) and forward_ad.unpack_dual(tensor).tangent is not None:
            raise InvalidArgumentError(f"{name}: has a tangent, and forward-mode differentiation has no rule for "
                                       "attention: give the primal of torch.autograd.forward_ad.unpack_dual outside of "
                                       "the dual level, or use backward() or torch.autograd.grad", "arguments", name)


def _through_operator(q, k, v, mask, score, softmax_scale, return_lse, layout, tensors, tuning, sequences,
                      deterministic, block_mask, return_aux, output):
    mask, tensors, block_numbers = _block_mask.written_down(block_mask, mask, tensors)
    problem = written(mask, score, tuple(tensors), plain(output))
    with_lse = return_lse or _wants_gradient(q, k, v, sequences["sinks"], *tensors.values())
    asked = ()
    if return_aux is not None:
        _check_outputs(return_aux, q)
        asked = tuple(return_aux)
    if output is not None and "o_raw" not in asked and _wants_gradient(q, k, v, sequences["sinks"], *tensors.values()):
        asked += ("o_raw",)
    if asked:
        sequences = sequences | {"outputs": ",".join(asked)}
    o, lse, *outputs = _operator(q, k, v, list(tensors.values()), problem, softmax_scale, with_lse, layout, tuning,
                                 deterministic=bool(deterministic), block_numbers=block_numbers, **sequences)
    if return_aux is not None:
        aux = _raised(return_aux, dict(zip(_OUTPUTS, outputs, strict=True)))
        return (o, lse, aux) if return_lse else (o, aux)
    return (o, lse) if return_lse else o


#: Outputs beside o and LSE, in the order of the operator's results.
_OUTPUTS = "max_logit", "row_max", "o_raw"


def _refuse_output(name, why):
    raise InvalidArgumentError(f"{name}: {why}", "arguments", name)


def _check_outputs(asked, q):
    """Raises what a call without the operator would: for unknown names, and tensors that cannot be raised in place."""
    if isinstance(asked, str):
        raise TypeError('return_aux must be names, as ("max_logit",), or a mapping of names to arrays')
    for name in asked:
        if name not in _OUTPUTS:
            _refuse_output("return_aux", f"names {name!r}, which is no output; there are {', '.join(_OUTPUTS)}")
    if len(set(asked)) < len(asked):
        _refuse_output("return_aux", "names an output twice")
    for name, held in asked.items() if isinstance(asked, Mapping) else ():
        if held is None:
            continue
        if name == "o_raw":
            _refuse_output(name, "was given an array, which the operator does not write: give None")
        if not isinstance(held, torch.Tensor) or held.dtype != torch.float32:
            _refuse_output(name, f"is {getattr(held, 'dtype', type(held).__name__)}; it must be a tensor of fp32")
        if held.device != q.device:
            _refuse_output(name, f"is on {held.device}; q is on {q.device}")
        if held.requires_grad:
            _refuse_output(name, "requires grad; it is raised in place")


def _raised(asked, outputs):
    """The outputs that are asked for: those that were given, raised to what the operator made, or these."""
    given = asked if isinstance(asked, Mapping) else dict.fromkeys(asked)
    made = {name: outputs[name].detach() for name in given}
    for name, held in given.items():
        if held is not None and held.shape != made[name].shape:
            _refuse_output(name, f"has shape {tuple(held.shape)}; it must have {tuple(made[name].shape)}")
    with torch.no_grad():
        return {name: made[name] if held is None else torch.maximum(held, made[name], out=held)
                for name, held in given.items()}


def _wants_gradient(*tensors):
    return torch.is_grad_enabled() and any(
        isinstance(tensor, torch.Tensor) and tensor.requires_grad for tensor in tensors)


def _keywords(problem, tensors, block_numbers, q, layout):
    """Mask, score, tensors and block mask of a call, from what the operator was given."""
    mask, score, names, output = read(problem)
    block_mask, named = _block_mask.read_back(block_numbers, mask, dict(zip(names, tensors, strict=True)), q, layout)
    return dict(mask=mask, score=score, tensors=named, block_mask=block_mask, output=read_output(output))


@library.custom_op("jit_attention::attention", mutates_args=())
def _operator(q: torch.Tensor, k: torch.Tensor, v: Optional[torch.Tensor], tensors: Sequence[torch.Tensor], problem: str,
              softmax_scale: Optional[float], return_lse: bool, layout: str, tuning: Optional[str],
              cu_seqlens_q: Optional[torch.Tensor] = None, cu_seqlens_k: Optional[torch.Tensor] = None,
              seqused_q: Optional[torch.Tensor] = None, seqused_k: Optional[torch.Tensor] = None,
              page_table: Optional[torch.Tensor] = None, cache_leftpad: Optional[torch.Tensor] = None,
              sinks: Optional[torch.Tensor] = None, num_splits: int = 0,
               zero_padding: bool = False, split_keys: int = 0, k_descale: Optional[torch.Tensor] = None,
               v_descale: Optional[torch.Tensor] = None, kv_dtype: Optional[str] = None,
               descale_per: Optional[str] = None, head_dim_v: Optional[int] = None,
               q_descale: Optional[torch.Tensor] = None, v_mean: Optional[torch.Tensor] = None,
               lse_shift: Optional[torch.Tensor] = None, out_dtype: Optional[str] = None,
               exact_exponentials: bool = False, dropout_p: float = 0.0,
               rng_state: Optional[torch.Tensor] = None, deterministic: bool = False,
               block_numbers: Optional[Sequence[int]] = None,
               outputs: Optional[str] = None) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor,
                                                       torch.Tensor]:
    result = _attention(q, k, v, **_keywords(problem, tensors, block_numbers, q, layout), softmax_scale=softmax_scale,
                        return_lse=return_lse, layout=layout, tuning=tuning, cu_seqlens_q=cu_seqlens_q,
                        cu_seqlens_k=cu_seqlens_k, seqused_q=seqused_q, seqused_k=seqused_k, page_table=page_table,
                        cache_leftpad=cache_leftpad, sinks=sinks, num_splits=num_splits, zero_padding=zero_padding,
                        split_keys=split_keys, k_descale=k_descale, v_descale=v_descale, kv_dtype=kv_dtype,
                        descale_per=descale_per, head_dim_v=head_dim_v, q_descale=q_descale, v_mean=v_mean,
                        lse_shift=lse_shift, out_dtype=out_dtype, exact_exponentials=exact_exponentials,
                        dropout_p=dropout_p, rng_state=rng_state,
                        return_aux=tuple(outputs.split(",")) if outputs else None)
    aux = {}
    if outputs:
        *result, aux = result
        result = result if return_lse else result[0]
    o, lse = result if return_lse else (result, _empty_lse(q))
    return (o, lse, *(aux[name] if name in aux else _empty_lse(q) for name in _OUTPUTS))


@_operator.register_fake
def _(q, k, v, tensors, problem, softmax_scale, return_lse, layout, tuning, cu_seqlens_q=None, cu_seqlens_k=None,
      seqused_q=None, seqused_k=None, page_table=None, cache_leftpad=None, sinks=None, num_splits=0,
      zero_padding=False, split_keys=0, k_descale=None, v_descale=None, kv_dtype=None, descale_per=None,
      head_dim_v=None, q_descale=None, v_mean=None, lse_shift=None, out_dtype=None, exact_exponentials=False,
      dropout_p=0.0, rng_state=None, deterministic=False, block_numbers=None, outputs=None):
    if cu_seqlens_q is not None:
        lse_shape = q.size(1), q.size(0)
    else:
        heads, seqlen = (1, 2) if layout == "BHSD" else (2, 1)
        lse_shape = q.size(0), q.size(heads), q.size(seqlen)
    of_rows = [q.new_empty(lse_shape, dtype=torch.float32) if wanted else _empty_lse(q)
               for wanted in (return_lse, "row_max" in (outputs or ""))]
    max_logit = q.new_empty(lse_shape[-2], dtype=torch.float32) if "max_logit" in (outputs or "") else _empty_lse(q)
    dtype = _RESULTS[out_dtype or "bf16"] if out_dtype is not None or q.element_size() == 1 else q.dtype
    numbers = 2 if kv_dtype == "int4" else 1  # in a byte of v
    o = q.new_empty((*q.shape[:-1], head_dim_v if v is None else v.size(-1) * numbers), dtype=dtype)
    return o, of_rows[0], max_logit, of_rows[1], torch.empty_like(o) if "o_raw" in (outputs or "") else _empty_lse(q)


_RESULTS = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def _empty_lse(q):
    """What stands for the lse that was not asked for: an operator has a fixed number of results."""
    return q.new_empty(0, dtype=torch.float32)


@library.custom_op("jit_attention::attention_backward", mutates_args=())
def _backward_operator(do: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, o: torch.Tensor,
                       lse: torch.Tensor, tensors: Sequence[torch.Tensor], problem: str,
                       softmax_scale: Optional[float], layout: str, cu_seqlens_q: Optional[torch.Tensor] = None,
                       cu_seqlens_k: Optional[torch.Tensor] = None, seqused_q: Optional[torch.Tensor] = None,
                       seqused_k: Optional[torch.Tensor] = None, dlse: Optional[torch.Tensor] = None,
                       sinks: Optional[torch.Tensor] = None, wanted: Optional[Sequence[int]] = None,
                       want_sinks: bool = False, dropout_p: float = 0.0,
                       rng_state: Optional[torch.Tensor] = None, deterministic: bool = False,
                       block_numbers: Optional[Sequence[int]] = None,
                       tuning: Optional[str] = None) -> list[torch.Tensor]:
    """dq, dk and dv, then the gradients of `tensors` whose numbers are `wanted`, then that of the sinks if wanted."""
    names = read(problem)[2]
    tensors, shapes = _in_full(tensors, problem, o)
    do = do if do.stride(-1) == 1 else do.contiguous()
    (dq,) = _zeros_if(cu_seqlens_q, seqused_q, q)
    dk, dv = _zeros_if(cu_seqlens_k, seqused_k, k, v)
    gradients = _attention_backward(do, q, k, v, o, lse, **_keywords(problem, tensors, block_numbers, q, layout),
                                    softmax_scale=softmax_scale, layout=layout, dq=dq, dk=dk, dv=dv,
                                    cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k, seqused_q=seqused_q,
                                    seqused_k=seqused_k, dlse=dlse, sinks=sinks, d_sinks=want_sinks,
                                    d_tensors=[names[i] for i in wanted or ()], dropout_p=dropout_p, rng_state=rng_state,
                                    deterministic=deterministic or torch.are_deterministic_algorithms_enabled(),
                                    tuning=tuning)
    dq, dk, dv, by_name, *of_sinks = gradients
    of_read = (gradient.sum_to_size(shapes[name]) if name in shapes else gradient for name, gradient in by_name.items())
    return [dq, dk, dv, *of_read, *of_sinks]


def _in_full(tensors, problem, o):
    """The tensors, with o's sizes where an output reads one at places of o and a size of 1 stands for all; and the shapes of
    those, by name."""
    names, output = read(problem)[2:]
    kinds = read_output(output).tensors if output else {}
    full, shapes = [], {}
    for name, tensor in zip(names, tensors, strict=True):
        kind = kinds.get(name, "")
        shape = o.shape if kind.endswith("as_o") else o.shape[:-1] if kind.endswith("as_row") else tensor.shape
        if tensor.shape != shape:
            shapes[name] = tensor.shape
        full.append(tensor.expand(shape))
    return full, shapes


def _zeros_if(cu_seqlens, seqused, *tensors):
    """What gradients of these tensors are written over; None for each where all rows will be."""
    if cu_seqlens is None and seqused is None:
        return [None] * len(tensors)
    return [torch.zeros_like(tensor, memory_format=torch.contiguous_format) for tensor in tensors]


@_backward_operator.register_fake
def _(do, q, k, v, o, lse, tensors, problem, softmax_scale, layout, cu_seqlens_q=None, cu_seqlens_k=None,
      seqused_q=None, seqused_k=None, dlse=None, sinks=None, wanted=None, want_sinks=False, *dropout):
    of = [q, k, v, *(tensors[i] for i in wanted or ()), *([sinks] if want_sinks else [])]
    return [tensor.new_empty(tensor.shape) for tensor in of]


_SINKS = 6  # among the operator's arguments behind `tuning`


def _refuse_gradients(**refused):
    """Raises where one of these stands in the way of gradients."""
    for name, given in refused.items():
        if given is not None:
            raise InvalidArgumentError(f"{name}: was given with a q, k or v that requires grad, and there are no "
                                       "gradients with it: compute under torch.no_grad(), or give detach()",
                                       "arguments", name)


def _save_for_backward(ctx, inputs, output):
    q, k, v, tensors, problem, softmax_scale, return_lse, layout, ctx.tuning, *sequences = inputs
    *sequences, dropout_p, rng_state, deterministic, ctx.block_numbers, _ = sequences
    varlen, (page_table, cache_leftpad, sinks) = sequences[:4], sequences[4:7]
    if v is None:
        raise InvalidArgumentError("head_dim_v: was given with a q or k that requires grad, and there are no gradients "
                                   "with it: compute under torch.no_grad(), or give detach()", "arguments", "head_dim_v")
    if k.element_size() == 1:
        raise InvalidArgumentError("k: is of fp8 beside a q, k or v that requires grad, and there are no gradients "
                                   "with it: compute under torch.no_grad(), or give detach()", "arguments", "k")
    if output[0].dtype != q.dtype:
        raise InvalidArgumentError(f"out_dtype: is {output[0].dtype} beside a q, k or v that requires grad, and there are no "
                                   "gradients with it: leave it out", "arguments", "out_dtype")
    _refuse_gradients(page_table=page_table, cache_leftpad=cache_leftpad)
    _, score, names, functor = read(problem)
    differentiable = dict(score.tensors) if score is not None else {}
    if functor is not None:
        differentiable |= {name: kind for name, kind in read_output(functor).tensors.items() if " " in kind}
    for name, tensor in zip(names, tensors, strict=True):
        if tensor.requires_grad and name not in differentiable:
            raise InvalidArgumentError(f"tensors: {name!r} requires grad, and no score reads it, nor an output at "
                                       "places of o, so that it has no gradient: compute under torch.no_grad(), or give detach()")
    if not return_lse:
        raise InvalidArgumentError("return_lse: is False, and gradients need lse: call jit_attention.torch.attention, "
                                   "which asks for it, compute under torch.no_grad(), or give detach()")
    o, lse = output[:2]
    ctx.save_for_backward(q, k, v, sinks, rng_state, o if functor is None else output[4], lse, *varlen, *tensors)
    ctx.set_materialize_grads(False)
    ctx.facts = problem, softmax_scale, layout
    ctx.wanted = [i for i, tensor in enumerate(tensors) if tensor.requires_grad]
    ctx.wants_sinks = sinks is not None and sinks.requires_grad
    ctx.dropout_p, ctx.deterministic = dropout_p, deterministic
    ctx.others = len(inputs) - 9  # those behind `tuning`


def _gradients(ctx, do, dlse, *_):
    q, k, v, sinks, rng_state, o, lse, *others = ctx.saved_tensors
    varlen, tensors = others[:4], others[4:]
    of_others = [None] * ctx.others
    of_tensors = [None] * len(tensors)
    if do is None and dlse is None:
        return _of_inputs(ctx, None, None, None, of_tensors, of_others)
    do = torch.zeros_like(o) if do is None else do
    dq, dk, dv, *of_read = _backward_operator(do, q, k, v, o, lse, tensors, *ctx.facts, *varlen, dlse, sinks,
                                              ctx.wanted, ctx.wants_sinks, ctx.dropout_p, rng_state, ctx.deterministic,
                                              ctx.block_numbers, ctx.tuning)
    for i, gradient in zip(ctx.wanted, of_read):
        of_tensors[i] = gradient
    if ctx.wants_sinks:
        of_others[_SINKS] = of_read[-1]
    return _of_inputs(ctx, dq, dk, dv, of_tensors, of_others)


def _of_inputs(ctx, dq, dk, dv, of_tensors, of_others):
    """Gradients in the order of the operator's arguments, for as many as this call gave.

    PyTorch's dispatcher takes trailing arguments away that equal their defaults. It hands them back to
    `_save_for_backward`, but from 2.6 to 2.11 an operator with a list of tensors must return as many gradients as
    arguments were given (torch/_library/autograd.py, supports_tensorlist). 2.15 takes either number.
    """
    gradients = dq, dk, dv, of_tensors, None, None, None, None, None, *of_others
    return gradients[:len(ctx.needs_input_grad)]


def _refuse_second_gradients(ctx, *_):
    raise InvalidArgumentError("do: requires grad, and the gradients of attention have no gradients themselves: leave "
                               "out create_graph, or compute attention that is differentiated twice in another way")


_backward_operator.register_autograd(_refuse_second_gradients, setup_context=lambda ctx, inputs, output: None)
_operator.register_autograd(_gradients, setup_context=_save_for_backward)


_functor.being_traced = torch.compiler.is_compiling
