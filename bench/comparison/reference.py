"""fp32 attention, and the rule by which a result counts as correct."""

from dataclasses import dataclass

CHUNK_SCORES = 1 << 27  # scores held at once: 512 MB in fp32
ABSOLUTE = 1e-4
# Limits relative to the same computation in bf16. The worst of some hundred thousand rows is partly luck.
ELEMENT_SHARE, ROW_SHARE = 2, 2.5


@dataclass(frozen=True)
class Check:
    """How far a result is from fp32 attention. `error` is the largest difference of any element, `row_error` the
    largest |difference| / |row| of any output row; they may be ELEMENT_SHARE and ROW_SHARE times those of plain bf16
    attention, plus ABSOLUTE.
    `repeated`: whether another call gave the same bits; None where that is not asked for."""

    error: float
    limit: float
    row_error: float
    row_limit: float
    repeated: bool | None = None

    @property
    def correct(self):
        within = self.error <= self.limit and self.row_error <= self.row_limit  # a NaN is neither
        return within and self.repeated is not False


def masked_scores(cell, inputs, batch_entry, begin, end, dtype):
    """Scores of queries begin to end of one batch entry, step by step in `dtype`, -inf where the mask drops a key:
    (heads_q, end - begin, seqlen_kv)."""
    import torch

    q = inputs.q[batch_entry, begin:end].to(dtype).transpose(0, 1)
    k = inputs.k[batch_entry].to(dtype).transpose(0, 1)
    grouped = q.reshape(cell.heads_kv, -1, cell.head_dim)
    scores = (grouped @ k.transpose(1, 2)).reshape(cell.heads_q, end - begin, cell.seqlen_kv)
    scores *= cell.head_dim ** -0.5
    queries = torch.arange(begin, end, device=q.device)[:, None]
    keys = torch.arange(cell.seqlen_kv, device=q.device)[None]
    if cell.score == "softcap":
        scores = scores.div_(cell.softcap).tanh_() * cell.softcap  # autograd reads what tanh_ left
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
    """What masked scores make of the values of a batch entry: (heads_q, rows, head_dim_v). A query that sees no key
    gives 0."""
    weights = scores.softmax(-1)
    if cell.mask != "none":
        weights = weights.masked_fill(scores.isneginf().all(-1, keepdim=True), 0)
    v = inputs.v[batch_entry].to(scores.dtype).transpose(0, 1)
    output = weights.reshape(cell.heads_kv, -1, cell.seqlen_kv) @ v
    return output.reshape(cell.heads_q, -1, cell.head_dim_v)


class Expected:
    """What is right for a problem, `output`, computed in fp32, and how far the same, step by step in bf16, is from it."""

    def __init__(self, output, plain):
        self.output = output
        self.plain_error, self.plain_row_error = self._errors(plain)

    def _errors(self, output):
        difference = output.float() - self.output
        row_error = difference.norm(dim=-1) / self.output.norm(dim=-1).clamp_min(ABSOLUTE)
        return difference.abs().max().item(), row_error.max().item()

    def rows(self, output):
        """What a Runner's call() returned, in the shape of `output`."""
        import torch

        return torch.cat(output) if isinstance(output, tuple) else output

    def check(self, output, coarser=1):
        """The Check of what a Runner's call() returned, whose roundings may be as much coarser than those of bf16. Raises
        ValueError for another shape."""
        output = self.rows(output)
        if output.shape != self.output.shape:
            raise ValueError(f"the result has shape {tuple(output.shape)}, not {tuple(self.output.shape)}")
        error, row_error = self._errors(output)
        return Check(error, ELEMENT_SHARE * coarser * self.plain_error + ABSOLUTE,
                     row_error, ROW_SHARE * coarser * self.plain_row_error + ABSOLUTE)


class Reference(Expected):
    """Attention of one problem, computed for each batch entry or request by itself."""

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
