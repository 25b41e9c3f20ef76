"""Results in FlashMLA's conventions: sinks only change the output, and LSE of a query without keys is +∞."""

from __future__ import annotations

import torch

from ..errors import InvalidArgumentError
from ..sparse.gradients import requires_gradient


def refuse(argument: str, message: str) -> None:
    raise InvalidArgumentError(f"{argument}: {message}", "arguments", argument)


def refuse_gradients(*tensors: torch.Tensor | None) -> None:
    if requires_gradient(*tensors):
        refuse("q", "or another tensor requires grad, and FlashMLA's functions have no gradients: call them under "
                    "torch.no_grad(), or give detach()")


def finish(out: torch.Tensor, lse: torch.Tensor, attn_sink: torch.Tensor | None,
           dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Merges out (tokens, heads, columns), in this dtype or fp32, and lse (tokens, heads), which is modified."""
    keyless = lse == -torch.inf
    if attn_sink is not None:
        share = torch.sigmoid(lse.masked_fill(keyless, 0) - attn_sink)  # of the keys, against the sink
        out = (out * share[..., None]).to(dtype)
    return out, lse.masked_fill_(keyless, torch.inf)


def strided(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with contiguous columns."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def check_sink(attn_sink: torch.Tensor | None, heads: int) -> None:
    if attn_sink is not None and (tuple(attn_sink.shape) != (heads,) or attn_sink.dtype != torch.float32):
        refuse("attn_sink", f"is {attn_sink.dtype} {tuple(attn_sink.shape)}; it must be torch.float32 ({heads},)")
