"""Gradients: a backward cell's inputs, and fp32 gradients to check results against."""

from dataclasses import dataclass

from .inputs import Inputs, make_inputs
from .reference import ABSOLUTE, ELEMENT_SHARE, Check, masked_scores, weighted_sum

GRADIENT_ROW_SHARE = 3  # of plain bf16 gradients' worst row; all peers exceed twice that in some cells


@dataclass
class BackwardInputs(Inputs):
    """Inputs with d_o, the gradient of the output, in its shape."""

    d_o: "torch.Tensor | None" = None

    def with_gradients(self):
        """q, k and v as leaves for autograd, sharing memory."""
        return tuple(t.detach().requires_grad_() for t in (self.q, self.k, self.v))


def make_backward_inputs(cell, device, seed):
    """Inputs of `cell` on `device`, determined by the seed."""
    import torch

    inputs = make_inputs(cell, device, seed)
    d_o = torch.randn(cell.output_shape(), device=device, dtype=torch.bfloat16,
                      generator=torch.Generator(device).manual_seed(seed + 1))
    return BackwardInputs(**vars(inputs), d_o=d_o)


def _of_heads(cell, inputs, kv_head):
    """The problem of one KV head and its query heads."""
    import dataclasses

    heads = slice(kv_head * cell.gqa_ratio, (kv_head + 1) * cell.gqa_ratio)
    part = dataclasses.replace(inputs, q=inputs.q[:, :, heads], k=inputs.k[:, :, kv_head:kv_head + 1],
                               v=inputs.v[:, :, kv_head:kv_head + 1], d_o=inputs.d_o[:, :, heads])
    if inputs.alibi_slopes is not None:
        part.alibi_slopes = inputs.alibi_slopes[heads]
    if inputs.bias is not None:
        part.bias = inputs.bias[heads]
    return dataclasses.replace(cell, heads_q=cell.gqa_ratio, heads_kv=1), part, heads


def _of_entry(cell, inputs, entry, dtype):
    """Gradients of q, k and v for one batch entry."""
    import dataclasses

    import torch

    with torch.enable_grad():
        leaves = [t[entry:entry + 1].to(dtype).detach().requires_grad_() for t in (inputs.q, inputs.k, inputs.v)]
        ids = None if inputs.document_ids is None else inputs.document_ids[entry:entry + 1]
        own = dataclasses.replace(inputs, q=leaves[0], k=leaves[1], v=leaves[2], document_ids=ids)
        scores = masked_scores(cell, own, 0, 0, cell.seqlen_q, dtype)
        output = weighted_sum(cell, own, 0, scores).transpose(0, 1)
        return torch.autograd.grad(output, leaves, inputs.d_o[entry].to(dtype))


def gradients_in(dtype, cell, inputs):
    """[dq, dk, dv] by torch's autograd, head by head, with every operation in `dtype`."""
    import torch

    gradients = [torch.empty(t.shape, dtype=dtype, device=t.device) for t in (inputs.q, inputs.k, inputs.v)]
    for kv_head in range(cell.heads_kv):
        one, part, heads = _of_heads(cell, inputs, kv_head)
        for entry in range(cell.batch):
            found = _of_entry(one, part, entry, dtype)
            for target, gradient, of in zip(gradients, found, (heads, kv_head, kv_head)):
                target[entry, :, of] = gradient.reshape(target[entry, :, of].shape)
    return gradients


class BackwardReference:
    """A problem's fp32 gradients, and the errors of plain bf16 attention's."""

    def __init__(self, cell, inputs):
        import torch

        self.gradients = gradients_in(torch.float32, cell, inputs)
        self.plain_errors = self._errors(gradients_in(torch.bfloat16, cell, inputs))

    def _errors(self, gradients):
        """For all three gradients: the largest difference, and the largest |difference| / |row|."""
        error = row_error = 0.0
        for gradient, right in zip(gradients, self.gradients):
            difference = gradient.float() - right
            rows = difference.norm(dim=-1) / right.norm(dim=-1).clamp_min(right.norm(dim=-1).mean())
            error, row_error = max(error, difference.abs().max().item()), max(row_error, rows.max().item())
            if not difference.isfinite().all():
                return float("nan"), float("nan")
        return error, row_error

    def check(self, gradients):
        """The Check of (dq, dk, dv) from a Runner's call(). Raises ValueError for other shapes."""
        for gradient, right in zip(gradients, self.gradients, strict=True):
            if gradient.shape != right.shape:
                raise ValueError(f"a gradient has shape {tuple(gradient.shape)}, not {tuple(right.shape)}")
        error, row_error = self._errors(gradients)
        return Check(error, ELEMENT_SHARE * self.plain_errors[0] + ABSOLUTE,
                     row_error, GRADIENT_ROW_SHARE * self.plain_errors[1] + ABSOLUTE)
