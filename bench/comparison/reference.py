"""fp32 attention, and the rule for correct results."""

from dataclasses import dataclass

CHUNK_SCORES = 1 << 27  # scores held at once: 512 MB in fp32
ABSOLUTE = 1e-4
# Limits relative to the same computation in bf16. The worst of some hundred thousand rows is partly luck.
ELEMENT_SHARE, ROW_SHARE = 2, 2.5


@dataclass(frozen=True)
class Check:
    """The error of a result against fp32 attention. `error` is the largest difference of any element, `row_error` the
    largest |difference| / |row| of any output row; they may be ELEMENT_SHARE and ROW_SHARE times those of plain bf16
    attention, plus ABSOLUTE. `repeated`: whether another call gave the same bits; None: not required."""

    error: float
    limit: float
    row_error: float
    row_limit: float
    repeated: bool | None = None

    @property
    def correct(self):
        within = self.error <= self.limit and self.row_error <= self.row_limit  # false for NaN
        return within and self.repeated is not False


def masked_scores(cell, inputs, batch_entry, begin, end, dtype):
    """Scores of queries begin to end of one batch entry, every operation in `dtype`, -inf for masked keys: (heads_q,
    end - begin, seqlen_kv)."""
    import torch

    q = inputs.q[batch_entry, begin:end].to(dtype).transpose(0, 1)
    k = inputs.k[batch_entry].to(dtype).transpose(0, 1)
    grouped = q.reshape(cell.heads_kv, -1, cell.head_dim)
    scores = (grouped @ k.transpose(1, 2)).reshape(cell.heads_q, end - begin, cell.seqlen_kv)
    scores *= cell.head_dim ** -0.5
    queries = torch.arange(begin, end, device=q.device)[:, None]
    keys = torch.arange(cell.seqlen_kv, device=q.device)[None]
    if cell.score == "softcap":
        scores = scores.div_(cell.softcap).tanh_() * cell.softcap  # autograd reads tanh_'s result
    elif cell.score == "alibi":
        distance = (queries + (cell.seqlen_kv - cell.seqlen_q) - keys).abs()
        scores -= (inputs.alibi_slopes[:, None, None] * distance).to(dtype)
    elif cell.score == "bias":
        scores += inputs.bias[:, begin:end].to(dtype)
    if cell.mask != "none":
        heads = torch.arange(cell.heads_q, device=q.device)[:, None, None]
        scores.masked_fill_(~inputs.keep(cell, batch_entry, heads, queries, keys), float("-inf"))
    return scores


def weighted_sum(cell, inputs, batch_entry, scores):
    """Attention output for masked scores of a batch entry: (heads_q, rows, head_dim_v). A query without keys gives
    0."""
    weights = scores.softmax(-1)
    if cell.mask != "none":
        weights = weights.masked_fill(scores.isneginf().all(-1, keepdim=True), 0)
    v = inputs.v[batch_entry].to(scores.dtype).transpose(0, 1)
    output = weights.reshape(cell.heads_kv, -1, cell.seqlen_kv) @ v
    return output.reshape(cell.heads_q, -1, cell.head_dim_v)


class Expected:
    """The expected `output` of a problem in fp32, and the error of the same computation with every operation in
    bf16."""

    def __init__(self, output, plain):
        self.output = output
        self.plain_error, self.plain_row_error = self._errors(plain)

    def _errors(self, output):
        difference = output.float() - self.output
        row_error = difference.norm(dim=-1) / self.output.norm(dim=-1).clamp_min(ABSOLUTE)
        return difference.abs().max().item(), row_error.max().item()

    def rows(self, output):
        """A Runner's result in the shape of `output`."""
        import torch

        return torch.cat(output) if isinstance(output, tuple) else output

    def check(self, output, coarser=1, shift=0.0):
        """The Check of a Runner's result, whose roundings may be `coarser` times those of bf16, and which may be off by
        `shift` in each element besides. Raises ValueError for another shape."""
        output = self.rows(output)
        if output.shape != self.output.shape:
            raise ValueError(f"the result has shape {tuple(output.shape)}, not {tuple(self.output.shape)}")
        error, row_error = self._errors(output)
        shortest = self.output.norm(dim=-1).min().clamp_min(ABSOLUTE).item() if shift else 1
        return Check(error, ELEMENT_SHARE * coarser * self.plain_error + ABSOLUTE + shift,
                     row_error, ROW_SHARE * coarser * self.plain_row_error + ABSOLUTE
                     + shift * output.shape[-1] ** 0.5 / shortest)


class Reference(Expected):
    """Attention of one problem, computed separately for each batch entry or request."""

    def __init__(self, problem, inputs):
        import torch

        exact = torch.empty(problem.output_shape(), dtype=torch.float32, device=inputs.q.device)
        plain, first = torch.empty_like(exact), 0
        for cell, part, entry in inputs.entries(problem):
            rows = max(1, CHUNK_SCORES // (cell.heads_q * cell.seqlen_kv))
            for begin in range(0, cell.seqlen_q, rows):
                end = min(begin + rows, cell.seqlen_q)
                for target, dtype in ((exact, torch.float32), (plain, torch.bfloat16)):
                    scores = masked_scores(cell, part, entry, begin, end, dtype)
                    result = weighted_sum(cell, part, entry, scores)
                    flat = target.view(-1, *target.shape[-2:])
                    flat[first + begin:first + end] = result.transpose(0, 1).float()
            first += cell.seqlen_q
        super().__init__(exact, plain)
