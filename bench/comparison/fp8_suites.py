"""Problems with fp8 q, k and v."""

from dataclasses import dataclass

from .cells import Cell, backward_of
from .grid import HEAD_DIMS, sized
from .inputs import make_inputs

SEQLENS = (1024, 4096, 8192, 16384)
#: Ratio of rounding errors: P has 3 fraction bits, bf16 has 8.
COARSER = 32
E4M3_MAX = 448


@dataclass(frozen=True)
class Fp8Cell(Cell):
    """A Cell with e4m3 q, k and v, scales of 1, and bf16 o."""

    def bytes(self):
        """Bytes of q, k, v and o."""
        queries, keys = self.batch * self.seqlen_q * self.heads_q, self.batch * self.seqlen_kv * self.heads_kv
        return queries * (self.head_dim + 2 * self.head_dim_v) + keys * (self.head_dim + self.head_dim_v)


def make_fp8_inputs(cell, device, seed):
    """Inputs with values representable in e4m3, held in bf16."""
    import torch

    inputs = make_inputs(cell, device, seed)
    for name in "qkv":
        setattr(inputs, name, getattr(inputs, name).to(torch.float8_e4m3fn).to(torch.bfloat16))
    return inputs


def as_fp8(inputs):
    """q, k and v in e4m3, exactly."""
    import torch

    return tuple(tensor.to(torch.float8_e4m3fn) for tensor in (inputs.q, inputs.k, inputs.v))


def quantized(x, heads=None):
    """(x in e4m3, its fp32 scales): shape (1), or (batch, heads), where consecutive heads of x share one. A scale is
    the largest magnitude over E4M3_MAX."""
    import torch

    values = x.float()
    if heads is None:
        scales = values.abs().amax().div(E4M3_MAX).clamp_min(2.0 ** -100).view(1)
        each = scales
    else:
        largest = values.abs().unflatten(2, (heads, -1)).amax((1, 3, 4))
        scales = largest.div(E4M3_MAX).clamp_min(2.0 ** -100)
        each = scales.repeat_interleave(x.shape[2] // heads, 1)[:, None, :, None]
    return (values / each).clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn), scales


def _fp8():
    cells = []
    for mask, words in (("none", "without a mask"), ("causal", "causal")):
        for head_dim in HEAD_DIMS:
            for seqlen in SEQLENS:
                label = f"d{head_dim}-s{seqlen}" + ("" if mask == "none" else f"-{mask}")
                one = sized("fp8", label, head_dim, seqlen, mask=mask, tick=str(seqlen),
                            panel=f"{words}, head_dim {head_dim}, by seqlen")
                cells.append(backward_of(one, "fp8", Fp8Cell))
    return cells


FP8_SUITES = {"fp8": _fp8()}
