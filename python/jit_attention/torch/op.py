"""Attention as one PyTorch operator, `torch.ops.jit_attention.attention`.

Eager calls go straight to `jit_attention.attention`; the operator is what `torch.compile` and `torch.export` see.
The arguments of an operator are tensors, numbers and strings, so it carries masks and scores as text.
"""

import ast
import functools
from typing import Optional, Sequence

import torch
from torch import library

from .. import attention as _attention
from .. import functor as _functor
from .. import mask as _mask
from .. import score as _score
from ..errors import InvalidArgumentError
from ..functor import FunctorText

NO_BACKWARD = ("jit_attention has no backward yet: an input requires grad; compute under torch.no_grad() or "
               "torch.inference_mode(), or give detach()")


def attention(q, k, v, *, mask=None, score=None, softmax_scale=None, return_lse=False, layout="BSHD", tensors=None,
              tuning=None, cu_seqlens_q=None, cu_seqlens_k=None, seqused_q=None, seqused_k=None, page_table=None,
              cache_leftpad=None, sinks=None, num_splits=0, zero_padding=False):
    """`jit_attention.attention` of PyTorch tensors, eager or compiled.

    Under ``torch.compile`` the call is one operator without a graph break, whatever the sizes: ``fullgraph=True`` and
    ``dynamic=True`` work, with masks and scores built outside or inside of the compiled function (``~mask`` outside
    only: the compiler does not know that operator). A CUDA graph may capture it once a call with the same sizes has
    run before, which is when its kernel is compiled and tuned.

    Args:
        q, k, v: tensors of one dtype, bf16 or fp16.
        mask, score, softmax_scale, return_lse, layout, tensors, tuning, cu_seqlens_q, cu_seqlens_k, seqused_q,
            seqused_k, page_table, cache_leftpad, sinks, num_splits, zero_padding: as those of
            `jit_attention.attention`. What it has beside them (out, dtype, stream) an operator has not: its result is
            new, on torch's current stream. With ``seqused_q``, rows of the result that are no query's hold anything
            unless ``zero_padding`` is set.

    Returns:
        o, contiguous, of q's dtype, or (o, lse), as `jit_attention.attention` does.

    Raises:
        InvalidArgumentError: a tensor requires grad while grad mode is on (there is no backward yet).
        Error: what `jit_attention.attention` raises. Compiled without graph breaks, the compiler wraps all of these in
            an error of its own.
    """
    sequences = dict(cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k, seqused_q=seqused_q, seqused_k=seqused_k,
                     page_table=page_table, cache_leftpad=cache_leftpad, sinks=sinks, num_splits=num_splits,
                     zero_padding=zero_padding)
    if torch.compiler.is_compiling() or type(q) is not torch.Tensor:
        return _through_operator(q, k, v, mask, score, softmax_scale, return_lse, layout, tensors, tuning, sequences)
    return _attention(q, k, v, mask=mask, score=score, softmax_scale=softmax_scale, return_lse=return_lse,
                      layout=layout, tensors=tensors, tuning=tuning, **sequences)


def _through_operator(q, k, v, mask, score, softmax_scale, return_lse, layout, tensors, tuning, sequences):
    tensors = tensors or {}
    problem = repr((_plain(mask), _plain(score), tuple(tensors)))
    o, lse = _operator(q, k, v, list(tensors.values()), problem, softmax_scale, return_lse, layout, tuning,
                       **sequences)
    return (o, lse) if return_lse else o


def _plain(functor):
    """A mask or score as strings and tuples: a compiler watches these for changes, and repr makes them text."""
    return None if functor is None else (functor.text, tuple(text.plain for text in functor.texts))


@functools.lru_cache(maxsize=1024)
def _problem(text):
    """Mask, score and names of tensors that `_through_operator` wrote down."""
    mask, score, names = ast.literal_eval(text)

    def parsed(parse, functor):
        return functor and parse(functor[0], [FunctorText(**ast.literal_eval(fields)) for fields in functor[1]])

    return parsed(_mask.parse, mask), parsed(_score.parse, score), names


@library.custom_op("jit_attention::attention", mutates_args=())
def _operator(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, tensors: Sequence[torch.Tensor], problem: str,
              softmax_scale: Optional[float], return_lse: bool, layout: str, tuning: Optional[str],
              cu_seqlens_q: Optional[torch.Tensor] = None, cu_seqlens_k: Optional[torch.Tensor] = None,
              seqused_q: Optional[torch.Tensor] = None, seqused_k: Optional[torch.Tensor] = None,
              page_table: Optional[torch.Tensor] = None, cache_leftpad: Optional[torch.Tensor] = None,
              sinks: Optional[torch.Tensor] = None, num_splits: int = 0,
              zero_padding: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    mask, score, names = _problem(problem)
    named = dict(zip(names, tensors, strict=True))
    result = _attention(q, k, v, mask=mask, score=score, softmax_scale=softmax_scale, return_lse=return_lse,
                        layout=layout, tensors=named, tuning=tuning, cu_seqlens_q=cu_seqlens_q,
                        cu_seqlens_k=cu_seqlens_k, seqused_q=seqused_q, seqused_k=seqused_k, page_table=page_table,
                        cache_leftpad=cache_leftpad, sinks=sinks, num_splits=num_splits, zero_padding=zero_padding)
    return result if return_lse else (result, _empty_lse(q))


@_operator.register_fake
def _(q, k, v, tensors, problem, softmax_scale, return_lse, layout, tuning, cu_seqlens_q=None, *sequences):
    if cu_seqlens_q is not None:
        lse_shape = q.size(1), q.size(0)
    else:
        heads, seqlen = (1, 2) if layout == "BHSD" else (2, 1)
        lse_shape = q.size(0), q.size(heads), q.size(seqlen)
    lse = q.new_empty(lse_shape, dtype=torch.float32) if return_lse else _empty_lse(q)
    return q.new_empty((*q.shape[:-1], v.size(-1))), lse


def _empty_lse(q):
    """What stands for the lse that was not asked for: an operator has a fixed number of results."""
    return q.new_empty(0, dtype=torch.float32)


def _refuse_backward(*arguments, **keywords):
    raise InvalidArgumentError(NO_BACKWARD)


_operator.register_autograd(_refuse_backward, setup_context=_refuse_backward)


_functor.being_traced = torch.compiler.is_compiling
