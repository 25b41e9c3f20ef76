"""Random tensors of problems of chosen keys, and what is right for them."""

from dataclasses import dataclass

from .chosen_suites import ChosenBlocks, ChosenKeys, ChosenLatents, IndexKeys
from .reference import Expected

SAMPLED = 64  # tokens that are compared
CHUNK = 1 << 25  # random numbers at once, of which lists are the largest


def generator_of(device, seed):
    import torch

    return torch.Generator(device).manual_seed(seed)


def normal(generator, *shape, fits_e4m3=False):
    """bf16, normally distributed."""
    import torch

    x = torch.randn(*shape, device=generator.device, dtype=torch.bfloat16, generator=generator)
    return x.to(torch.float8_e4m3fn).to(torch.bfloat16) if fits_e4m3 else x


def random_lists(generator, rows, entries, most):
    """Ascending int32 (rows, entries): different numbers below those of `most`, int (rows)."""
    import torch

    lists, step = [], max(1, CHUNK // int(most.max()))
    for some in most.split(step):
        numbers = torch.rand(len(some), int(most.max()), device=most.device, generator=generator)
        numbers.masked_fill_(torch.arange(numbers.shape[1], device=most.device) >= some[:, None], -1)
        lists.append(numbers.topk(entries).indices.sort(-1).values)
    return torch.cat(lists).int()


def sample_of(tokens, device):
    """Rows that are compared, the first and the last one among them."""
    import torch

    return torch.linspace(0, tokens - 1, min(tokens, SAMPLED), device=device).long()


class SampledReference(Expected):
    """Of rows of some tokens alone."""

    def __init__(self, problem, inputs):
        import torch

        self.problem, self.sample = problem, sample_of(problem.tokens, inputs.q.device)
        super().__init__(*(torch.stack([self.row(inputs, int(i), dtype) for i in self.sample]).float()
                           for dtype in (torch.float32, torch.bfloat16)))

    def row(self, inputs, token, dtype):
        raise NotImplementedError

    def rows(self, output):
        return output[self.sample]


@dataclass
class LatentInputs:
    """q bf16 (tokens, heads, 576); rows bf16 (keys, 1, 576); packed uint8 (pages, 64, 1, 656), the same numbers, or None;
    lists int32 (tokens, 1, chosen)."""

    q: "torch.Tensor"
    rows: "torch.Tensor"
    packed: "torch.Tensor | None"
    lists: "torch.Tensor"


def make_latent_inputs(problem, device, seed):
    """LatentInputs of `problem` on `device`, the same for the same seed."""
    import torch

    generator = generator_of(device, seed)
    values, packed = problem.HEAD_DIM_V, None
    rows = normal(generator, problem.keys, 1, problem.HEAD_DIM, fits_e4m3=problem.packed)
    if problem.packed:
        codes, rotated = rows[:, 0, :values].to(torch.float8_e4m3fn), rows[:, 0, values:].contiguous()
        scales = torch.ones(problem.keys, values // 128, device=device)
        packed = torch.cat([x.view(torch.uint8) for x in (codes, scales, rotated)], 1).view(-1, 64, 1, 656)
    most = torch.full((problem.tokens,), problem.keys, device=device)
    return LatentInputs(normal(generator, problem.tokens, problem.heads, problem.HEAD_DIM), rows, packed,
                        random_lists(generator, problem.tokens, problem.chosen, most)[:, None])


class LatentReference(SampledReference):
    def row(self, inputs, token, dtype):
        chosen = inputs.rows[inputs.lists[token, 0].long(), 0].to(dtype)
        scores = inputs.q[token].to(dtype) @ chosen.T * self.problem.HEAD_DIM ** -0.5
        return scores.softmax(-1) @ chosen[:, : self.problem.HEAD_DIM_V]


@dataclass
class IndexInputs:
    """q e4m3 (tokens, heads, head_dim), k e4m3 (keys, head_dim), k_scale fp32 (keys), weights fp32 (tokens, heads), starts and
    ends int32 (tokens): zeros, and the key behind the last one that a token sees."""

    q: "torch.Tensor"
    k: "torch.Tensor"
    k_scale: "torch.Tensor"
    weights: "torch.Tensor"
    starts: "torch.Tensor"
    ends: "torch.Tensor"


def make_index_inputs(problem, device, seed):
    """IndexInputs of `problem` on `device`, the same for the same seed."""
    import torch

    generator = generator_of(device, seed)
    q, k = (normal(generator, *shape).to(torch.float8_e4m3fn) for shape in (
        (problem.tokens, problem.heads, problem.head_dim), (problem.keys, problem.head_dim)))
    k_scale = torch.rand(problem.keys, device=device, generator=generator) + 0.5
    weights = torch.randn(problem.tokens, problem.heads, device=device, generator=generator)
    ends = torch.arange(problem.keys - problem.tokens + 1, problem.keys + 1, dtype=torch.int32, device=device)
    return IndexInputs(q, k, k_scale, weights, torch.zeros_like(ends), ends)


class IndexReference(SampledReference):
    """Scores of keys that a token does not see count as 0, whatever was written there."""

    def __init__(self, problem, inputs):
        self.ends = inputs.ends
        super().__init__(problem, inputs)

    def row(self, inputs, token, dtype):
        products = (inputs.q[token].to(dtype) @ inputs.k.to(dtype).T).relu()
        scores = (inputs.weights[token].to(dtype) @ products) * inputs.k_scale.to(dtype)
        return self.seen(scores, inputs.ends[token])

    def seen(self, scores, ends):
        import torch

        return scores.masked_fill(torch.arange(scores.shape[-1], device=scores.device) >= ends, 0)

    def rows(self, output):
        return self.seen(output[self.sample], self.ends[self.sample, None])


class ChoiceReference(IndexReference):
    """Exact scores of the chosen keys of some tokens, descending: keys whose scores differ by less than roundings may stand for
    each other, and a key that is chosen twice counts as one of score −inf."""

    def row(self, inputs, token, dtype):
        import torch

        end, count = int(inputs.ends[token]), self.problem.chosen
        exact = super().row(inputs, token, torch.float32)
        chosen = super().row(inputs, token, dtype)[:end].float().topk(count).indices
        if dtype == torch.float32:
            self.scores = [*getattr(self, "scores", []), exact.masked_fill(torch.arange(len(exact), device=exact.device) >= end,
                                                                          float("-inf"))]
        return exact[chosen].sort(descending=True).values

    def rows(self, output):
        import torch

        indices = output[self.sample].long().sort(-1).values
        taken = torch.stack([scores[own.clamp(min=0)] for scores, own in zip(self.scores, indices)])
        twice = torch.nn.functional.pad(indices.diff(dim=-1) == 0, (1, 0))
        return taken.masked_fill(twice | (indices < 0), float("-inf")).sort(-1, descending=True).values


@dataclass
class BlockInputs:
    """q bf16 (tokens, heads_q, head_dim); k and v bf16 (keys, heads_kv, head_dim), and the same in pages (pages, heads_kv, block,
    2 · head_dim), K before V in a row; page_table int32 (1, pages); lists int32 (tokens, heads_kv, chosen), ascending; lengths
    int32 (1); starts_q and starts_k int32 (2)."""

    q: "torch.Tensor"
    k: "torch.Tensor"
    v: "torch.Tensor"
    pages: "torch.Tensor"
    page_table: "torch.Tensor"
    lists: "torch.Tensor"
    lengths: "torch.Tensor"
    starts_q: "torch.Tensor"
    starts_k: "torch.Tensor"


def make_block_inputs(problem, device, seed):
    """BlockInputs of `problem` on `device`, the same for the same seed."""
    import torch

    generator = generator_of(device, seed)
    q = normal(generator, problem.tokens, problem.heads_q, problem.head_dim)
    k, v = (normal(generator, problem.keys, problem.heads_kv, problem.head_dim, fits_e4m3=True) for _ in "kv")
    blocks = problem.keys // problem.block
    table = torch.randperm(blocks, device=device, generator=generator)
    pages = torch.empty(blocks, problem.heads_kv, problem.block, 2 * problem.head_dim, dtype=torch.bfloat16, device=device)
    pages[table] = torch.cat([k, v], -1).view(blocks, problem.block, problem.heads_kv, -1).transpose(1, 2)
    own = torch.arange(problem.keys - problem.tokens, problem.keys, device=device) // problem.block
    own = own.repeat_interleave(problem.heads_kv)
    others = random_lists(generator, len(own), problem.chosen - 1, own) if problem.chosen > 1 else own[:, :0]
    lists = torch.cat([others, own[:, None].int()], 1).view(problem.tokens, problem.heads_kv, problem.chosen)
    numbers = lambda *values: torch.tensor(values, dtype=torch.int32, device=device)
    return BlockInputs(q, k, v, pages, table.int()[None], lists, numbers(problem.keys), numbers(0, problem.tokens),
                       numbers(0, problem.keys))


class BlockReference(SampledReference):
    def row(self, inputs, token, dtype):
        import torch

        problem, position = self.problem, self.problem.keys - self.problem.tokens + token
        keys = inputs.lists[token].long()[..., None] * problem.block + torch.arange(problem.block, device=inputs.q.device)
        keys = keys.flatten(1)  # (heads_kv, entries)
        heads = torch.arange(problem.heads_kv, device=keys.device)[:, None]
        k, v = (x[keys, heads].to(dtype) for x in (inputs.k, inputs.v))
        q = inputs.q[token].to(dtype).view(problem.heads_kv, -1, problem.head_dim)
        scores = (q @ k.transpose(1, 2)) * problem.head_dim ** -0.5
        scores = scores.masked_fill(keys[:, None] > position, float("-inf"))
        return (scores.softmax(-1) @ v).flatten(0, 1)


MAKE_CHOSEN = {ChosenLatents: make_latent_inputs, IndexKeys: make_index_inputs, ChosenKeys: make_index_inputs,
               ChosenBlocks: make_block_inputs}
CHOSEN_REFERENCES = {ChosenLatents: LatentReference, IndexKeys: IndexReference, ChosenKeys: ChoiceReference,
                     ChosenBlocks: BlockReference}
