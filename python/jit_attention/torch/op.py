"""Attention on PyTorch tensors: by the operator when a compiler or mode observes, else directly."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Sequence, TypedDict, overload

import torch
from torch.autograd import forward_ad

from .. import attention as _attention
from .. import functor as _functor
from .._keywords import hides_unknown, refuse_unknown
from .._written import plain, written
from ..errors import InvalidArgumentError
from ..mask import Mask
from ..output import OutputFunctor
from ..score import Score
from ..typing import Layout, OutputDType, OutputName, ScaleKind, StoredDType, TuningMode
from . import block_mask as _block_mask
from .eager import attention_with_gradients, is_watched
from .operator import OUTPUTS, WRITTEN, attention_operator

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
        o_descale: torch.Tensor | None
        out_dtype: OutputDType | torch.dtype | None
        interpolated_exponentials: bool
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
              lse_shift: torch.Tensor | None = None, out_dtype: Any = None, interpolated_exponentials: bool = False,
              dropout_p: float = 0, rng_state: torch.Tensor | None = None, return_rng_state: bool = False,
              deterministic: bool = False, block_mask: Any = None, q_positions: torch.Tensor | None = None,
              k_positions: torch.Tensor | None = None, global_seqlens: torch.Tensor | None = None,
              return_aux: Sequence[OutputName] | Mapping[OutputName, torch.Tensor | None] | None = None,
              output: OutputFunctor | None = None, o_descale: torch.Tensor | None = None, **unknown: Any) -> Any:
    """Computes `jit_attention.attention` of PyTorch tensors, eager or compiled, with gradients.

    q, k, v, sinks, the tensors that scores read, and those that outputs read as_o or as_row have gradients. Under
    ``torch.compile`` the call is one operator
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
        interpolated_exponentials: As in `jit_attention.attention`.
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
        return_aux: As in `jit_attention.attention`. Only a new mean_score has gradients.
        output: As in `jit_attention.attention`. Calls with gradients also store o before it for the backward pass.
        o_descale: As in `jit_attention.attention`.

    Returns:
        o, contiguous, of q's dtype or out_dtype; with return_lse (o, LSE); with return_aux also a dict of tensors;
        with return_rng_state also the state, None if dropout_p is 0. Padding rows of gradients are 0.

    Raises:
        InvalidArgumentError: An argument is wrong, or a gradient does not exist: with paged keys or cache_leftpad, of
            a tensor that only the mask reads, or of a gradient. Then call under ``torch.no_grad()``, or pass
            ``detach()``. Also inside of ``torch.vmap``, ``torch.func.grad``, and forward-mode differentiation.
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
                     v_mean=v_mean, lse_shift=lse_shift, o_descale=o_descale,
                     interpolated_exponentials=interpolated_exponentials,
                     out_dtype=None if out_dtype is None else _functor.element_type(out_dtype))
    tensors = _with_positions(tensors or {}, q_positions=q_positions, k_positions=k_positions,
                              global_seqlens=global_seqlens)
    refuse_transforms(tensors | {"q": q, "k": k, "v": v, "sinks": sinks})
    if page_table is None:  # else each call would copy all pages
        q, k, v = autocast(q, k, v)
    if dropout_p == 0:  # else the rate becomes a compile-time constant
        rng_state = None
    else:
        if rng_state is None:
            rng_state = torch.randint(2**63 - 1, (2,), dtype=torch.int64, device=q.device)
        sequences.update(dropout_p=dropout_p, rng_state=rng_state)
    read = *tensors.values(), *getattr(block_mask, "read", {}).values()
    if torch.compiler.is_compiling() or type(q) is not torch.Tensor or _wants_gradient(q, k, v, sinks, *read):
        result = _differentiable(q, k, v, mask, score, softmax_scale, return_lse, layout, tensors, tuning, sequences,
                                 deterministic, block_mask, return_aux, output)
    else:
        result = _attention(q, k, v, mask=mask, score=score, softmax_scale=softmax_scale, return_lse=return_lse,
                            layout=layout, tensors=tensors, tuning=tuning, return_aux=return_aux, output=output,
                            block_mask=_block_mask.for_eager_call(block_mask, mask, tensors, q, layout), **sequences)
    if not return_rng_state:
        return result
    return (*result, rng_state) if isinstance(result, tuple) else (result, rng_state)


def _with_positions(tensors, **positions):
    """The tensors of mask and score, with the given positions."""
    given = {name: tensor for name, tensor in positions.items() if tensor is not None}
    for name in given:
        if name in tensors:
            raise InvalidArgumentError(f"{name}: was given twice: by itself, and among tensors; leave one of the two "
                                       "out", "arguments", name)
    return {**tensors, **given} if given else tensors


#: Types that autocast converts; not fp8, which needs its scales, nor, as in torch, fp64.
_CONVERTED = torch.float32, torch.bfloat16, torch.float16


def autocast(*tensors):
    """The tensors converted as `torch.autocast` does for PyTorch's attention; unchanged without autocast."""
    if not torch._C._is_any_autocast_enabled():  # the faster check
        return tensors
    device = tensors[0].device.type
    if not torch.is_autocast_enabled(device):
        return tensors
    dtype = torch.get_autocast_dtype(device)
    return tuple(x.to(dtype) if x is not None and x.dtype in _CONVERTED else x for x in tensors)


def refuse_transforms(tensors):
    """Raises when a torch.func transform or forward-mode differentiation applies to one of these tensors."""
    if torch.compiler.is_compiling():
        return
    if torch._C._are_functorch_transforms_active():
        _refuse_wrapped(tensors)
    if forward_ad._current_level >= 0:
        _refuse_tangents(tensors)


def _refuse_wrapped(tensors):
    """Raises when one of these is a wrapper of torch.vmap, torch.func.grad etc."""
    for name, tensor in tensors.items():
        if isinstance(tensor, torch.Tensor) and torch._C._functorch.is_functorch_wrapped_tensor(tensor):
            raise InvalidArgumentError(f"{name}: is inside of torch.vmap or a transform of torch.func, which have no "
                                       "rule for this operator: give a batch in place of torch.vmap, and use "
                                       "backward() or torch.autograd.grad in place of torch.func.grad", "arguments",
                                       name)


def _refuse_tangents(tensors):
    """Raises when one of these has a tangent, for which the operator's gradient has no rule."""
    for name, tensor in tensors.items():
        if isinstance(tensor, torch.Tensor) and forward_ad.unpack_dual(tensor).tangent is not None:
            raise InvalidArgumentError(f"{name}: has a tangent, and forward-mode differentiation has no rule for "
                                       "attention: give the primal of torch.autograd.forward_ad.unpack_dual outside of "
                                       "the dual level, or use backward() or torch.autograd.grad", "arguments", name)


def _differentiable(q, k, v, mask, score, softmax_scale, return_lse, layout, tensors, tuning, sequences, deterministic,
                    block_mask, return_aux, output):
    """The result of a call that autograd or a compiler observes."""
    mask, tensors, block_numbers = _block_mask.written_down(block_mask, mask, tensors)
    problem = written(mask, score, tuple(tensors), plain(output))
    wants_gradient = _wants_gradient(q, k, v, sequences["sinks"], *tensors.values())
    asked = ()
    if return_aux is not None:
        _check_outputs(return_aux, q)
        asked = tuple(return_aux)
    if output is not None and "o_raw" not in asked and wants_gradient:
        asked += ("o_raw",)
    if asked:
        sequences = sequences | {"outputs": ",".join(asked)}
    watched = is_watched(q, k, v, sequences["sinks"], *tensors.values())
    compute = attention_with_gradients if wants_gradient and not watched else attention_operator
    o, lse, *outputs = compute(q, k, v, list(tensors.values()), problem, softmax_scale, return_lse or wants_gradient, layout,
                               tuning, deterministic=bool(deterministic), block_numbers=block_numbers, **sequences)
    if return_aux is not None:
        aux = _raised(return_aux, dict(zip(OUTPUTS, outputs, strict=True)))
        return (o, lse, aux) if return_lse else (o, aux)
    return (o, lse) if return_lse else o


def _refuse_output(name, why):
    raise InvalidArgumentError(f"{name}: {why}", "arguments", name)


def _check_outputs(asked, q):
    """Raises as a call without the operator would: for unknown names, and tensors that cannot be updated in place."""
    if isinstance(asked, str):
        raise TypeError('return_aux must be names, as ("max_logit",), or a mapping of names to arrays')
    for name in asked:
        if name == "running_lse":
            _refuse_output("return_aux", "names 'running_lse', which has neither gradients nor an operator: call "
                           "jit_attention.attention")
        if name not in OUTPUTS:
            _refuse_output("return_aux", f"names {name!r}, which is no output; there are {', '.join(OUTPUTS)}")
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
    """The requested outputs: given tensors, raised to or overwritten by the operator's results, or these."""
    given = asked if isinstance(asked, Mapping) else dict.fromkeys(asked)
    made = {name: outputs[name] if name == "mean_score" else outputs[name].detach() for name in given}
    for name, held in given.items():
        if held is not None and held.shape != made[name].shape:
            _refuse_output(name, f"has shape {tuple(held.shape)}; it must have {tuple(made[name].shape)}")
    with torch.no_grad():
        return {name: made[name] if held is None else
                held.copy_(made[name]) if name in WRITTEN else torch.maximum(held, made[name], out=held)
                for name, held in given.items()}


def _wants_gradient(*tensors):
    return torch.is_grad_enabled() and any(
        isinstance(tensor, torch.Tensor) and tensor.requires_grad for tensor in tensors)


_functor.being_traced = torch.compiler.is_compiling
