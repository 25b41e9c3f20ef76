"""The loss of an indexer as a PyTorch operator, `torch.ops.jit_attention.indexer_loss`, with its gradient as another, and
the masses of listed keys for compiled programs."""

from typing import Optional

import torch
from torch import library

from .. import _core
from ..errors import InvalidArgumentError
from .op import refuse_transforms


def _refuse_stream(stream):
    if stream is not None:
        raise InvalidArgumentError("stream: was given with a q, k or weights that requires grad, or under torch.compile: "
                                   "enter torch.cuda.stream", "arguments", "stream")


def indexer_loss(q, k, weights, indices, targets, counts, stream):
    """`jit_attention.sparse.indexer_loss` with autograd or a compiler."""
    _refuse_stream(stream)
    if targets.requires_grad:
        raise InvalidArgumentError("targets: requires grad, and there are no gradients of targets: give detach()", "arguments",
                                   "targets")
    refuse_transforms(dict(q=q, k=k, weights=weights, targets=targets))
    return _loss(q, k, weights, indices, targets, counts)


def listed_mass(q, k, lse, indices, counts, softmax_scale, stream):
    """`jit_attention.sparse.list_mass` under a compiler."""
    _refuse_stream(stream)
    return _mass(q.detach(), k.detach(), lse.detach(), indices, counts, softmax_scale)


@library.custom_op("jit_attention::list_mass", mutates_args=())
def _mass(q: torch.Tensor, k: torch.Tensor, lse: torch.Tensor, indices: torch.Tensor, counts: Optional[torch.Tensor],
          softmax_scale: Optional[float]) -> torch.Tensor:
    return _core._list_mass(q, k, lse, indices, counts, softmax_scale=softmax_scale)


@_mass.register_fake
def _(q, k, lse, indices, counts, softmax_scale):
    return q.new_empty(indices.shape, dtype=torch.float32)


@library.custom_op("jit_attention::indexer_loss", mutates_args=())
def _loss(q: torch.Tensor, k: torch.Tensor, weights: torch.Tensor, indices: torch.Tensor, targets: torch.Tensor,
          counts: Optional[torch.Tensor]) -> torch.Tensor:
    return _core._index_loss(q, k, weights, indices, targets, counts)


@_loss.register_fake
def _(q, k, weights, indices, targets, counts):
    return q.new_empty(q.shape[:1], dtype=torch.float32)


@library.custom_op("jit_attention::indexer_loss_backward", mutates_args=())
def _backward(d_loss: torch.Tensor, q: torch.Tensor, k: torch.Tensor, weights: torch.Tensor, indices: torch.Tensor,
              targets: torch.Tensor, counts: Optional[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return _core._index_loss(q, k, weights, indices, targets, counts, d_loss=d_loss)


@_backward.register_fake
def _(d_loss, q, k, weights, indices, targets, counts):
    return q.new_empty(q.shape), k.new_empty(k.shape), weights.new_empty(weights.shape)


def _save_for_backward(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def _gradients(ctx, d_loss):
    return (*_backward(d_loss, *ctx.saved_tensors), None, None, None)


def _refuse_second_gradients(ctx, *_):
    raise InvalidArgumentError("d_loss: requires grad, and the gradients of an indexer's loss have no gradients themselves: leave "
                               "out create_graph")


_backward.register_autograd(_refuse_second_gradients, setup_context=lambda ctx, inputs, output: None)
_loss.register_autograd(_gradients, setup_context=_save_for_backward)
