"""Random tensors and expected results for append and merge."""

from dataclasses import dataclass

from .operations import Append, Merge
from .reference import Expected
from .serving_inputs import permuted_pages

BASE = 10_000.0  # of the rotation's angles, as in RoFormer
LOG2_E = 1.4426950408889634


@dataclass
class AppendInputs:
    """The tensors of an Append on one device.

    qkv: the projection, normally distributed; q, k, v: views of it, (tokens, heads, head_dim). k_cache, v_cache (pages,
    page_size, heads_kv, head_dim), contiguous, with other numbers. cos_sin fp32 (longest, head_dim): cosines, then sines,
    of pairs (j, j + head_dim / 2). page_table int32 (batch, max_pages); seqused_k int32 (batch), new keys included;
    cu_seqlens_q int32 (batch + 1), of the new tokens. Of each token: positions int64, batch_indices int32, and slots
    int64, page · page_size + place.
    """

    qkv: "torch.Tensor"
    q: "torch.Tensor"
    k: "torch.Tensor"
    v: "torch.Tensor"
    k_cache: "torch.Tensor"
    v_cache: "torch.Tensor"
    cos_sin: "torch.Tensor"
    page_table: "torch.Tensor"
    seqused_k: "torch.Tensor"
    cu_seqlens_q: "torch.Tensor"
    positions: "torch.Tensor"
    batch_indices: "torch.Tensor"
    slots: "torch.Tensor"


def make_append_inputs(problem, device, seed):
    """AppendInputs of `problem` on `device`, determined by the seed."""
    import torch

    generator = torch.Generator(device).manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, device=device, dtype=torch.bfloat16, generator=generator)

    heads = problem.heads_q, problem.heads_kv, problem.heads_kv
    width, size = problem.head_dim, problem.page_size
    qkv = normal(problem.tokens, sum(heads) * width)
    q, k, v = (t.unflatten(1, (-1, width)) for t in qkv.split([count * width for count in heads], 1))
    table, pages = permuted_pages(problem.seqlens_k, size, device, seed)
    new, lengths = (torch.tensor(list(values)) for values in (problem.new_tokens, problem.seqlens_k))
    batch = torch.arange(len(new)).repeat_interleave(new)
    begins = new.cumsum(0) - new
    positions = torch.arange(problem.tokens) - begins[batch] + (lengths - new)[batch]
    slots = table.cpu().long()[batch, positions // size] * size + positions % size
    angles = torch.arange(max(problem.seqlens_k))[:, None] * BASE ** (-torch.arange(0, width, 2) / width)
    place = lambda t, dtype: t.to(device=device, dtype=dtype)
    return AppendInputs(
        qkv, q, k, v, normal(pages, size, problem.heads_kv, width), normal(pages, size, problem.heads_kv, width),
        place(torch.cat([angles.cos(), angles.sin()], 1), torch.float32), table, place(lengths, torch.int32),
        place(torch.tensor([0, *new.cumsum(0)]), torch.int32), place(positions, torch.int64),
        place(batch, torch.int32), place(slots, torch.int64))


class AppendReference(Expected):
    """Expected (q, k_cache, v_cache) after an Append: the rotated rows of q, and the rows in the tokens' slots. Other
    cache rows must be unchanged, or NaN if they were filled with NaN."""

    def __init__(self, problem, inputs):
        import torch

        self.problem, self.slots = problem, inputs.slots
        self.caches = [t.clone() for t in (inputs.k_cache, inputs.v_cache)]
        cos_sin = inputs.cos_sin[inputs.positions][:, None]
        rows = [torch.cat([rotated(inputs.q, cos_sin, dtype), rotated(inputs.k, cos_sin, dtype),
                           inputs.v.to(dtype)], 1).float() for dtype in (torch.float32, torch.bfloat16)]
        super().__init__(*rows)

    def rows(self, output):
        import torch

        q, *caches = output
        stored = []
        for cache, before in zip(caches, self.caches):
            after, other = cache.flatten(0, 1), torch.ones(before.shape[0] * before.shape[1], dtype=torch.bool)
            other[self.slots.cpu()] = False
            left = other.to(cache.device)[:, None, None] & ~after.isnan() & (after != before.flatten(0, 1))
            if left.any():
                raise ValueError("a row of the cache that is no new token's was written")
            stored.append(after[self.slots])
        return torch.cat([q.view(self.problem.tokens, -1, self.problem.head_dim), *stored], 1)


def rotated(x, cos_sin, dtype):
    """x (tokens, heads, head_dim) with pairs (j, j + head_dim / 2) rotated, every operation in `dtype`."""
    import torch

    a, b, cos, sin = (half for t in (x, cos_sin) for half in t.to(dtype).chunk(2, -1))
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


@dataclass
class MergeInputs:
    """The tensors of a Merge on one device: o (states, tokens, heads, head_dim) and lse fp32 (states, tokens, heads),
    views in the problem's layout, normally distributed; lse2 is lse in base 2, for FlashInfer. A tenth of the states
    has no keys for a row: lse is −inf there."""

    o: "torch.Tensor"
    lse: "torch.Tensor"
    lse2: "torch.Tensor"


def make_merge_inputs(problem, device, seed):
    """MergeInputs of `problem` on `device`, determined by the seed."""
    import torch

    generator = torch.Generator(device).manual_seed(seed)
    inside = problem.states_inside
    lead = (problem.tokens, problem.states) if inside else (problem.states, problem.tokens)
    dtype = dict(bf16=torch.bfloat16, fp32=torch.float32)[problem.dtype]
    o = torch.randn(*lead, problem.heads, problem.head_dim, device=device, dtype=dtype, generator=generator)
    lse = torch.randn(*lead, problem.heads, device=device, generator=generator)
    lse[torch.rand(lse.shape, device=device, generator=generator) < 0.1] = -torch.inf
    views = (t.transpose(0, 1) if inside else t for t in (o, lse, lse * LOG2_E))
    return MergeInputs(*views)


class MergeReference(Expected):
    """Expected o of a Merge. Rows without keys in all states are 0."""

    def __init__(self, problem, inputs):
        import torch

        weights = inputs.lse.softmax(0).nan_to_num(0)[..., None]
        exact = (weights * inputs.o.float()).sum(0)
        plain = torch.zeros_like(exact, dtype=torch.bfloat16)
        for weight, o in zip(weights.bfloat16(), inputs.o.bfloat16()):
            plain += weight * o
        super().__init__(exact, plain.float())


MAKE_INPUTS = {Append: make_append_inputs, Merge: make_merge_inputs}
REFERENCES = {Append: AppendReference, Merge: MergeReference}
