"""Attention over key lists as a PyTorch operator, `torch.ops.jit_attention.listed_attention`, with its gradient as
another."""

from typing import Optional, Sequence

import torch
from torch import library

from .. import _core
from .._written import read, written
from ..errors import InvalidArgumentError
from ..sparse.lists import list_tensors, prepared, spec_fields
from ..spec import AttentionSpec
from .op import refuse_transforms


def listed_attention(q, k, v, indices, counts, *, limit, mask, score, facts, softmax_scale, return_lse=False, tensors=None,
                     cu_seqlens_q=None, cu_seqlens_k=None, seqused_q=None, seqused_k=None, sinks=None, num_splits=0, **others):
    """`jit_attention.sparse.block_top_k` with autograd or a compiler."""
    for name, given in others.items():
        if given is not None:
            raise InvalidArgumentError(f"{name}: was given with a q, k or v that requires grad, or under torch.compile, and "
                                       "there are no gradients with it: compute under torch.no_grad(), or give detach()",
                                       "arguments", name)
    if not isinstance(return_lse, bool):
        raise InvalidArgumentError("return_lse: is an array, which the operator does not write: give True", "arguments",
                                   "return_lse")
    tensors = tensors or {}
    refuse_transforms(tensors | dict(q=q, k=k, v=v, sinks=sinks))
    problem = written(mask, score, tuple(tensors), tuple(facts.items()))
    o, lse = _operator(q, k, v, indices, counts, list(tensors.values()), problem, softmax_scale, limit, cu_seqlens_q,
                       cu_seqlens_k, seqused_q, seqused_k, sinks, num_splits)
    return (o, lse) if return_lse else o


def _lists(q, k, v, indices, counts, sinks, tensors, problem, limit):
    """The spec's fields including mask and score, and a call's tensors by name."""
    mask, score, names, facts = read(problem)
    fields = spec_fields(q, k, v, has_sinks=sinks is not None, **dict(facts))
    lists = list_tensors(q, indices, counts, fields["list_queries"], limit)
    return fields | dict(mask=mask, score=score), lists | dict(zip(names, tensors, strict=True))


@library.custom_op("jit_attention::listed_attention", mutates_args=())
def _operator(q: torch.Tensor, k: torch.Tensor, v: Optional[torch.Tensor], indices: torch.Tensor,
              counts: Optional[torch.Tensor], tensors: Sequence[torch.Tensor], problem: str,
              softmax_scale: Optional[float], limit: int, cu_seqlens_q: Optional[torch.Tensor],
              cu_seqlens_k: Optional[torch.Tensor], seqused_q: Optional[torch.Tensor], seqused_k: Optional[torch.Tensor],
              sinks: Optional[torch.Tensor], num_splits: int) -> tuple[torch.Tensor, torch.Tensor]:
    fields, named = _lists(q, k, v, indices, counts, sinks, tensors, problem, limit)
    attention = prepared(**fields, softmax_scale=softmax_scale)
    return attention(q, k, v, tensors=named, return_lse=True, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k,
                     seqused_q=seqused_q, seqused_k=seqused_k, sinks=sinks, num_splits=num_splits)


@_operator.register_fake
def _(q, k, v, indices, counts, tensors, problem, softmax_scale, limit, cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k,
      sinks, num_splits):
    head_dim_v = dict(read(problem)[3])["head_dim_v"] if v is None else v.size(-1)
    return q.new_empty((*q.shape[:2], head_dim_v)), q.new_empty((q.size(1), q.size(0)), dtype=torch.float32)


@library.custom_op("jit_attention::listed_attention_backward", mutates_args=())
def _backward_operator(do: torch.Tensor, dlse: Optional[torch.Tensor], q: torch.Tensor, k: torch.Tensor,
                       v: Optional[torch.Tensor], o: torch.Tensor, lse: torch.Tensor, indices: torch.Tensor,
                       counts: Optional[torch.Tensor], tensors: Sequence[torch.Tensor], problem: str,
                       softmax_scale: Optional[float], limit: int, cu_seqlens_q: torch.Tensor, cu_seqlens_k: torch.Tensor,
                       seqused_q: Optional[torch.Tensor], seqused_k: Optional[torch.Tensor],
                       sinks: Optional[torch.Tensor], want_sinks: bool) -> list[torch.Tensor]:
    """dq, dk, then dv if there is a v, then the gradient of sinks if requested."""
    fields, named = _lists(q, k, v, indices, counts, sinks, tensors, problem, limit)
    gradients = _core._list_gradients(
        do.contiguous(), q, k, v, o, lse, AttentionSpec(**fields, softmax_scale=softmax_scale), tensors=named,
        cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k, seqused_q=seqused_q, seqused_k=seqused_k, dlse=dlse,
        sinks=sinks, d_sinks=want_sinks)
    return [gradient for gradient in gradients if gradient is not None]


@_backward_operator.register_fake
def _(do, dlse, q, k, v, o, lse, indices, counts, tensors, problem, softmax_scale, limit, cu_seqlens_q, cu_seqlens_k,
      seqused_q, seqused_k, sinks, want_sinks):
    of = [q, k, *([] if v is None else [v]), *([sinks] if want_sinks else [])]
    return [tensor.new_empty(tensor.shape) for tensor in of]


def _save_for_backward(ctx, inputs, output):
    q, k, v, indices, counts, tensors, *ctx.facts = inputs
    ctx.facts, (*varlen, sinks, _) = ctx.facts[:3], ctx.facts[3:]
    if k.dim() == 4:
        raise InvalidArgumentError("page_table: was given with a q, k or v that requires grad, and there are no gradients "
                                   "with it: compute under torch.no_grad(), or give detach()", "arguments", "page_table")
    for name, tensor in zip(read(ctx.facts[0])[2], tensors, strict=True):
        if tensor.requires_grad:
            raise InvalidArgumentError(f"tensors: {name!r} requires grad, and gradients from lists have none of it: compute "
                                       "under torch.no_grad(), or give detach()", "arguments", "tensors")
    ctx.wants_sinks = sinks is not None and sinks.requires_grad
    ctx.save_for_backward(q, k, v, *output, indices, counts, sinks, *varlen, *tensors)
    ctx.set_materialize_grads(False)


def _gradients(ctx, do, dlse):
    q, k, v, o, lse, indices, counts, sinks, *others = ctx.saved_tensors
    varlen, tensors = others[:4], others[4:]
    none = [None] * (len(ctx.needs_input_grad))
    if do is None and dlse is None:
        return (*none[:5], [None] * len(tensors), *none[6:])
    do = torch.zeros_like(o) if do is None else do
    dq, dk, *rest = _backward_operator(do, dlse, q, k, v, o, lse, indices, counts, tensors, *ctx.facts, *varlen, sinks,
                                       ctx.wants_sinks)
    dv = None if v is None else rest.pop(0)
    d_sinks = rest[0] if ctx.wants_sinks else None
    return dq, dk, dv, None, None, [None] * len(tensors), None, None, None, None, None, None, None, d_sinks, None


def _refuse_second_gradients(ctx, *_):
    raise InvalidArgumentError("do: requires grad, and the gradients of attention have no gradients themselves: leave "
                               "out create_graph, or compute attention that is differentiated twice in another way")


_backward_operator.register_autograd(_refuse_second_gradients, setup_context=lambda ctx, inputs, output: None)
_operator.register_autograd(_gradients, setup_context=_save_for_backward)
