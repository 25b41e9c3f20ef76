"""Attention as a PyTorch operator, `torch.ops.jit_attention.attention`, and its gradient as another.

They are what `torch.compile`, `torch.export` and modes see. The arguments of an operator are tensors, numbers and strings,
so it carries masks and scores as text.
"""

import inspect
from typing import Optional, Sequence

import torch
from torch import library

from .. import attention as _attention
from .. import attention_backward as _attention_backward
from .._written import read, read_output
from ..errors import InvalidArgumentError
from . import block_mask as _block_mask

#: Outputs besides o and LSE, in the operator's result order.
OUTPUTS = "max_logit", "row_max", "o_raw", "mean_score", "o_descale"
#: Outputs that are written rather than raised to a maximum.
WRITTEN = "mean_score", "o_descale"


def _keywords(problem, tensors, block_numbers, q, layout):
    """A call's mask, score, tensors and block mask, from the operator's arguments."""
    mask, score, names, output = read(problem)
    block_mask, named = _block_mask.read_back(block_numbers, mask, dict(zip(names, tensors, strict=True)), q, layout)
    return dict(mask=mask, score=score, tensors=named, block_mask=block_mask, output=read_output(output))


def compute(q: torch.Tensor, k: torch.Tensor, v: Optional[torch.Tensor], tensors: Sequence[torch.Tensor], problem: str,
            softmax_scale: Optional[float], return_lse: bool, layout: str, tuning: Optional[str],
            cu_seqlens_q: Optional[torch.Tensor] = None, cu_seqlens_k: Optional[torch.Tensor] = None,
            seqused_q: Optional[torch.Tensor] = None, seqused_k: Optional[torch.Tensor] = None,
            page_table: Optional[torch.Tensor] = None, cache_leftpad: Optional[torch.Tensor] = None,
            sinks: Optional[torch.Tensor] = None, num_splits: int = 0, zero_padding: bool = False, split_keys: int = 0,
            k_descale: Optional[torch.Tensor] = None, v_descale: Optional[torch.Tensor] = None,
            kv_dtype: Optional[str] = None, descale_per: Optional[str] = None, head_dim_v: Optional[int] = None,
            q_descale: Optional[torch.Tensor] = None, v_mean: Optional[torch.Tensor] = None,
            lse_shift: Optional[torch.Tensor] = None, out_dtype: Optional[str] = None, interpolated_exponentials: bool = False,
            dropout_p: float = 0.0, rng_state: Optional[torch.Tensor] = None, deterministic: bool = False,
            block_numbers: Optional[Sequence[int]] = None, outputs: Optional[str] = None,
            o_descale: Optional[torch.Tensor] = None
            ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """o, LSE and OUTPUTS, empty if not requested: an operator has a fixed number of results."""
    result = _attention(q, k, v, **_keywords(problem, tensors, block_numbers, q, layout), softmax_scale=softmax_scale,
                        return_lse=return_lse, layout=layout, tuning=tuning, cu_seqlens_q=cu_seqlens_q,
                        cu_seqlens_k=cu_seqlens_k, seqused_q=seqused_q, seqused_k=seqused_k, page_table=page_table,
                        cache_leftpad=cache_leftpad, sinks=sinks, num_splits=num_splits, zero_padding=zero_padding,
                        split_keys=split_keys, k_descale=k_descale, v_descale=v_descale, kv_dtype=kv_dtype,
                        descale_per=descale_per, head_dim_v=head_dim_v, q_descale=q_descale, v_mean=v_mean,
                        lse_shift=lse_shift, out_dtype=out_dtype, interpolated_exponentials=interpolated_exponentials,
                        dropout_p=dropout_p, rng_state=rng_state, o_descale=o_descale,
                        return_aux=tuple(outputs.split(",")) if outputs else None)
    aux = {}
    if outputs:
        *result, aux = result
        result = result if return_lse else result[0]
    o, lse = result if return_lse else (result, _nothing(q))
    return (o, lse, *(aux[name] if name in aux else _nothing(q) for name in OUTPUTS))


attention_operator = library.custom_op("jit_attention::attention", compute, mutates_args=())


@attention_operator.register_fake
def _(q, k, v, tensors, problem, softmax_scale, return_lse, layout, tuning, cu_seqlens_q=None, cu_seqlens_k=None,
      seqused_q=None, seqused_k=None, page_table=None, cache_leftpad=None, sinks=None, num_splits=0,
      zero_padding=False, split_keys=0, k_descale=None, v_descale=None, kv_dtype=None, descale_per=None,
      head_dim_v=None, q_descale=None, v_mean=None, lse_shift=None, out_dtype=None, interpolated_exponentials=False,
      dropout_p=0.0, rng_state=None, deterministic=False, block_numbers=None, outputs=None, o_descale=None):
    if cu_seqlens_q is not None:
        lse_shape = q.size(1), q.size(0)
    else:
        heads, seqlen = (1, 2) if layout == "BHSD" else (2, 1)
        lse_shape = q.size(0), q.size(heads), q.size(seqlen)
    asked = (outputs or "").split(",")
    made = {name: q.new_empty(lse_shape[-2] if name == "max_logit" else lse_shape, dtype=torch.float32)
            for name in asked if name in OUTPUTS and name != "o_raw"}
    dtype = _RESULTS[out_dtype or "bf16"] if out_dtype is not None or q.element_size() == 1 else q.dtype
    numbers = 2 if kv_dtype == "int4" else 1  # per byte of v
    o = q.new_empty((*q.shape[:-1], head_dim_v if v is None else v.size(-1) * numbers), dtype=dtype)
    if "o_raw" in asked:
        made["o_raw"] = torch.empty_like(o)
    lse = q.new_empty(lse_shape, dtype=torch.float32) if return_lse else _nothing(q)
    return (o, lse, *(made[name] if name in made else _nothing(q) for name in OUTPUTS))


_RESULTS = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "fp8_e4m3": torch.float8_e4m3fn,
            "int8": torch.int8}


def _nothing(q):
    """A placeholder for an output that was not asked for."""
    return q.new_empty(0, dtype=torch.float32)


def compute_gradients(do: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, o: torch.Tensor,
                      lse: torch.Tensor, tensors: Sequence[torch.Tensor], problem: str, softmax_scale: Optional[float],
                      layout: str, cu_seqlens_q: Optional[torch.Tensor] = None,
                      cu_seqlens_k: Optional[torch.Tensor] = None, seqused_q: Optional[torch.Tensor] = None,
                      seqused_k: Optional[torch.Tensor] = None, dlse: Optional[torch.Tensor] = None,
                      sinks: Optional[torch.Tensor] = None, wanted: Optional[Sequence[int]] = None,
                      want_sinks: bool = False, dropout_p: float = 0.0, rng_state: Optional[torch.Tensor] = None,
                      deterministic: bool = False, block_numbers: Optional[Sequence[int]] = None,
                      tuning: Optional[str] = None, mean_score: Optional[torch.Tensor] = None,
                      d_mean_score: Optional[torch.Tensor] = None) -> list[torch.Tensor]:
    """dq, dk and dv, then gradients of the `tensors` with indices `wanted`, then that of sinks if requested."""
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
                                    tuning=tuning, mean_score=mean_score, d_mean_score=d_mean_score)
    dq, dk, dv, by_name, *of_sinks = gradients
    of_read = (gradient.sum_to_size(shapes[name]) if name in shapes else gradient for name, gradient in by_name.items())
    return [dq, dk, dv, *of_read, *of_sinks]


def _in_full(tensors, problem, o):
    """The tensors, expanded to o's sizes where an output functor reads one per element of o with sizes of 1; and the
    original shapes, by name."""
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
    """Zeros like these tensors for gradients; None when all rows are written."""
    if cu_seqlens is None and seqused is None:
        return [None] * len(tensors)
    return [torch.zeros_like(tensor, memory_format=torch.contiguous_format) for tensor in tensors]


backward_operator = library.custom_op("jit_attention::attention_backward", compute_gradients, mutates_args=())


@backward_operator.register_fake
def _(do, q, k, v, o, lse, tensors, problem, softmax_scale, layout, cu_seqlens_q=None, cu_seqlens_k=None,
      seqused_q=None, seqused_k=None, dlse=None, sinks=None, wanted=None, want_sinks=False, *dropout):
    of = [q, k, v, *(tensors[i] for i in wanted or ()), *([sinks] if want_sinks else [])]
    return [tensor.new_empty(tensor.shape) for tensor in of]


#: The operator's arguments after `tuning`, with their defaults.
DEFAULTS = {name: given.default for name, given in list(inspect.signature(compute).parameters.items())[9:]}
_SINKS = list(DEFAULTS).index("sinks")


def _refuse_gradients(**refused):
    """Raises when one of these arguments excludes gradients."""
    for name, given in refused.items():
        if given is not None:
            raise InvalidArgumentError(f"{name}: was given with a q, k or v that requires grad, and there are no "
                                       "gradients with it: compute under torch.no_grad(), or give detach()",
                                       "arguments", name)


def save_for_backward(ctx, inputs, output):
    q, k, v, tensors, problem, softmax_scale, return_lse, layout, ctx.tuning, *sequences = inputs
    *sequences, dropout_p, rng_state, deterministic, ctx.block_numbers, outputs, _ = sequences
    varlen, (page_table, cache_leftpad, sinks) = sequences[:4], sequences[4:7]
    if v is None:
        raise InvalidArgumentError("head_dim_v: was given with a q or k that requires grad, and there are no gradients "
                                   "with it: compute under torch.no_grad(), or give detach()", "arguments", "head_dim_v")
    if k.element_size() == 1:
        raise InvalidArgumentError("k: has 8-bit elements beside a q, k or v that requires grad, and there are no gradients "
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
    mean_score = output[2 + OUTPUTS.index("mean_score")] if "mean_score" in (outputs or "") else None
    ctx.save_for_backward(q, k, v, sinks, rng_state, o if functor is None else output[4], lse, mean_score, *varlen, *tensors)
    ctx.set_materialize_grads(False)
    ctx.facts = problem, softmax_scale, layout
    ctx.wanted = [i for i, tensor in enumerate(tensors) if tensor.requires_grad]
    ctx.wants_sinks = sinks is not None and sinks.requires_grad
    ctx.dropout_p, ctx.deterministic = dropout_p, deterministic


def gradients_of(ctx, do, dlse, outputs, backward):
    """dq, dk, dv, a list for the tensors, and that of sinks, by an operator or function such as `compute_gradients`.
    `outputs`: gradients of OUTPUTS, of which only mean_score has one."""
    q, k, v, sinks, rng_state, o, lse, mean_score, *others = ctx.saved_tensors
    d_mean_score = None if mean_score is None else outputs[OUTPUTS.index("mean_score")]
    varlen, tensors = others[:4], others[4:]
    of_tensors = [None] * len(tensors)
    if do is None and dlse is None and d_mean_score is None:
        return None, None, None, of_tensors, None
    do = torch.zeros_like(o) if do is None else do
    dq, dk, dv, *of_read = backward(do, q, k, v, o, lse, tensors, *ctx.facts, *varlen, dlse, sinks, ctx.wanted,
                                    ctx.wants_sinks, ctx.dropout_p, rng_state, ctx.deterministic, ctx.block_numbers,
                                    ctx.tuning, None if d_mean_score is None else mean_score, d_mean_score)
    for i, gradient in zip(ctx.wanted, of_read):
        of_tensors[i] = gradient
    return dq, dk, dv, of_tensors, of_read[-1] if ctx.wants_sinks else None


def _gradients(ctx, do, dlse, *outputs):
    return _of_inputs(ctx, *gradients_of(ctx, do, dlse, outputs, backward_operator))


def _of_inputs(ctx, dq, dk, dv, of_tensors, d_sinks):
    """Gradients in the order of the operator's arguments, as many as this call passed.

    PyTorch's dispatcher drops trailing arguments that equal their defaults. It restores them for `save_for_backward`,
    but from 2.6 to 2.11 an operator with a list of tensors must return as many gradients as arguments were given
    (torch/_library/autograd.py, supports_tensorlist). 2.15 takes either number.
    """
    of_others = [None] * len(DEFAULTS)
    of_others[_SINKS] = d_sinks
    return (dq, dk, dv, of_tensors, None, None, None, None, None, *of_others)[:len(ctx.needs_input_grad)]


def _refuse_second_gradients(ctx, *_):
    raise InvalidArgumentError("do: requires grad, and the gradients of attention have no gradients themselves: leave "
                               "out create_graph, or compute attention that is differentiated twice in another way")


backward_operator.register_autograd(_refuse_second_gradients, setup_context=lambda ctx, inputs, output: None)
attention_operator.register_autograd(_gradients, setup_context=save_for_backward)
