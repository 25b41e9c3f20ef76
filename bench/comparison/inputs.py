"""Random tensors of a cell."""

import itertools
from dataclasses import dataclass


@dataclass
class Inputs:
    """The tensors of a cell on one device.

    q (batch, seqlen_q, heads_q, head_dim), k and v (batch, seqlen_kv, heads_kv, head_dim[_v]): bf16, contiguous,
    normally distributed. alibi_slopes fp32 (heads_q). bias bf16 (heads_q, seqlen_q, seqlen_kv). document_ids int32
    (batch, seqlen), document_offsets int32 (documents + 1): where each document begins when the batch is laid end to
    end. blocks bool (heads_q or 1, block rows, block columns): which blocks a SparseCell chose. None where the cell
    needs none.
    """

    q: "torch.Tensor"
    k: "torch.Tensor"
    v: "torch.Tensor"
    alibi_slopes: "torch.Tensor | None" = None
    bias: "torch.Tensor | None" = None
    document_ids: "torch.Tensor | None" = None
    document_offsets: "torch.Tensor | None" = None
    longest_document: int = 0
    blocks: "torch.Tensor | None" = None

    def keep(self, cell, b, h, q, k):
        """Whether query `q` sees key `k` in batch entry `b` and head `h`: cell.keep of integers or broadcastable
        tensors, with the mask's arrays."""
        reads = {}
        if self.document_ids is not None:
            reads.update(document_q=self.document_ids[b, q], document_k=self.document_ids[b, k])
        if self.blocks is not None:
            reads["block"] = self.blocks[h if len(self.blocks) > 1 else 0, q // cell.block, k // cell.block]
        return cell.keep(q, k, **reads)

    def bhsd(self):
        """q, k, v as views (batch, heads, seqlen, head_dim), without a copy."""
        return tuple(t.transpose(1, 2) for t in (self.q, self.k, self.v))

    def entries(self, cell):
        """(cell, inputs, batch entry) for each batch entry."""
        return ((cell, self, entry) for entry in range(cell.batch))

    def packed(self):
        """q, k, v as views (batch * seqlen, heads, head_dim), without a copy."""
        return tuple(t.flatten(0, 1) for t in (self.q, self.k, self.v))


def alibi_slopes(heads):
    """The ALiBi paper's slopes, a list of floats: powers of 2^(-8/n), with n the largest power of two up to `heads`;
    further heads take every other power of 2^(-4/n)."""
    n = 1 << (heads.bit_length() - 1)
    return [2 ** (-8 * i / n) for i in range(1, n + 1)] + [2 ** (-4 * i / n) for i in range(1, 2 * (heads - n), 2)]


def make_inputs(cell, device, seed):
    """Inputs of `cell` on `device`, determined by the seed."""
    import torch

    generator = torch.Generator(device).manual_seed(seed)

    def tensor(seqlen, heads, head_dim):
        return torch.randn(cell.batch, seqlen, heads, head_dim, device=device, dtype=torch.bfloat16,
                           generator=generator)

    inputs = Inputs(tensor(cell.seqlen_q, cell.heads_q, cell.head_dim),
                    tensor(cell.seqlen_kv, cell.heads_kv, cell.head_dim),
                    tensor(cell.seqlen_kv, cell.heads_kv, cell.head_dim_v))
    if cell.score == "alibi":
        inputs.alibi_slopes = torch.tensor(alibi_slopes(cell.heads_q), device=device, dtype=torch.float32)
    if cell.score == "bias":
        inputs.bias = torch.randn(cell.heads_q, cell.seqlen_q, cell.seqlen_kv, device=device, dtype=torch.bfloat16,
                                  generator=generator)
    if "document" in cell.mask:
        lengths = [cell.document_lengths(entry) for entry in range(cell.batch)]
        ids = [torch.arange(len(row)).repeat_interleave(torch.tensor(row)) for row in lengths]
        inputs.document_ids = torch.stack(ids).to(device=device, dtype=torch.int32)
        flat = torch.tensor([0, *(n for row in lengths for n in row)])
        inputs.document_offsets = flat.cumsum(0).to(device=device, dtype=torch.int32)
        inputs.longest_document = max(n for row in lengths for n in row)
    if getattr(cell, "random_blocks", 0):
        rows, columns = cell.seqlen_q // cell.block, cell.seqlen_kv // cell.block
        chosen = torch.zeros(cell.heads_q if cell.per_head else 1, rows, columns, dtype=torch.bool)
        for head, row in itertools.product(range(len(chosen)), range(rows)):
            chosen[head, row, cell.block_columns(head, row)] = True
        inputs.blocks = chosen.to(device)
    return inputs
