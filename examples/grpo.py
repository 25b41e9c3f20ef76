"""Reinforcement learning whose trainer and engine agree in every bit: GRPO with a difference of logprobs of exactly 0.

    python examples/grpo.py
    JIT_ATTENTION_DEVICE=emulated:sm_90a python examples/grpo.py --steps 3 --prompts 2 --samples 2 --new 4 --layers 1

The engine writes answers as engines do: prompts in chunks, whose whole pages all samples of a prompt share, then tokens
one by one in a CUDA graph, for half of the samples by drafts that are verified together, all over pages. The trainer
computes the log-probabilities of the same tokens once more, in one ragged call with gradients. With `split_keys` both
have the same bits, although they run different kernels; `jit_attention.bits_of` says so before the first step. The rest
of the model is computed in chunks of 256 rows, so that a row's bits do not depend on its place. Rewards are the share
of an answer's tokens that are among the first 8.
"""

import argparse
import dataclasses

try:
    import torch
    import torch.nn.functional as F
    from torch import nn

    import jit_attention as ja
    import jit_attention.torch as jt
except ModuleNotFoundError as error:
    raise SystemExit(f"grpo.py needs PyTorch and jit_attention ({error}): pip install torch") from None

VOCABULARY, LIKED, HEADS, HEADS_KV, HEAD_DIM = 32, 8, 4, 2, 64
WIDTH = HEADS * HEAD_DIM
ROWS, PAGE, CHUNK, DRAFTS = 256, 16, 32, 2
MASK = ja.mask.causal()


def by_rows(function, x):
    """function(x) in chunks of equally many rows: so each product has one kernel, whatever the batch."""
    parts = F.pad(x, (0, 0, 0, -len(x) % ROWS)).split(ROWS)
    outputs = [function(part) for part in parts]
    join = lambda those: torch.cat(those)[:len(x)]
    return tuple(map(join, zip(*outputs))) if isinstance(outputs[0], tuple) else join(outputs)


def norm(x, weight):
    x = x.float()
    return (x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * weight).bfloat16()


def rotated(x, angles):
    """Rows (tokens, heads, head_dim) by their tokens' angles."""
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    a, b = x.float().chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).bfloat16()


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = nn.Parameter(torch.ones(2, WIDTH))
        linear = lambda rows, columns: nn.Parameter(torch.randn(rows, columns) * columns ** -0.5)
        self.qkv = linear((HEADS + 2 * HEADS_KV) * HEAD_DIM, WIDTH)
        self.out, self.up, self.down = linear(WIDTH, WIDTH), linear(2 * WIDTH, WIDTH), linear(WIDTH, 2 * WIDTH)

    def forward(self, x, angles, attend):
        project = lambda part: F.linear(norm(part, self.norms[0]), self.qkv.bfloat16())
        q, k, v = by_rows(project, x).unflatten(-1, (-1, HEAD_DIM)).split([HEADS, HEADS_KV, HEADS_KV], 1)
        o = attend(rotated(q, angles), rotated(k, angles), v.contiguous()).flatten(1)
        x = x + by_rows(lambda part: F.linear(part, self.out.bfloat16()), o)
        mlp = lambda part: F.linear(F.silu(F.linear(norm(part, self.norms[1]), self.up.bfloat16())),
                                    self.down.bfloat16())
        return x + by_rows(mlp, x)


class Llama(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.embedding = nn.Parameter(torch.randn(VOCABULARY, WIDTH))
        self.head = nn.Parameter(torch.randn(VOCABULARY, WIDTH) * WIDTH ** -0.5)
        self.layers = nn.ModuleList(Layer() for _ in range(layers))
        self.norm = nn.Parameter(torch.ones(WIDTH))
        self.register_buffer("frequencies", 10000.0 ** -torch.linspace(0, 1, HEAD_DIM // 2))

    def forward(self, tokens, positions, attends):
        """Log-probabilities (tokens, vocabulary), fp32. `attends` has a function of q, k and v for each layer."""
        x = self.embedding[tokens].bfloat16()
        angles = positions[:, None].float() * self.frequencies
        for layer, attend in zip(self.layers, attends):
            x = layer(x, angles, attend)
        head = lambda part: F.linear(norm(part, self.norm), self.head.bfloat16()).float().log_softmax(-1)
        return by_rows(head, x)


@dataclasses.dataclass
class Sample:
    tokens: list  # of prompt and answer
    prompt: int   # how many are the prompt's
    drafts: bool  # whether tokens are guessed ahead
    pages: list = dataclasses.field(default_factory=list)
    cached: int = 0
    logps: list = dataclasses.field(default_factory=list)


class Batch:
    """Inputs of a step of the engine, at fixed addresses."""

    def __init__(self, tokens, samples, pages, device):
        zeros = lambda *shape: torch.zeros(shape, dtype=torch.int32, device=device)
        self.tokens, self.positions = zeros(tokens), zeros(tokens)
        self.cu_seqlens_q, self.seqused_k, self.page_table = zeros(samples + 1), zeros(samples), zeros(samples, pages)

    def fill(self, work):
        """`work`: samples, and the tokens that each brings. Other rows are requests without tokens and keys."""
        samples, pages = self.page_table.shape
        flat = [t for _, tokens in work for t in tokens]
        places = [sample.cached + i for sample, tokens in work for i in range(len(tokens))]
        ends = torch.tensor([0] + [len(tokens) for _, tokens in work]).cumsum(0).tolist()
        lengths = [sample.cached + len(tokens) for sample, tokens in work]
        rows = [(sample.pages + [0] * pages)[:pages] for sample, _ in work]
        spare = samples - len(work)
        for tensor, values in ((self.tokens, flat + [0] * (len(self.tokens) - len(flat))),
                               (self.positions, places + [0] * (len(self.tokens) - len(flat))),
                               (self.cu_seqlens_q, ends + ends[-1:] * spare), (self.seqused_k, lengths + [0] * spare),
                               (self.page_table, rows + [[0] * pages] * spare)):
            tensor.copy_(torch.tensor(values, dtype=tensor.dtype))
        return ends


class Engine:
    """Writes answers with the model's weights, over pages."""

    def __init__(self, model, split_keys, samples, tokens, device, seed=1):
        self.model, self.split_keys, self.device = model, split_keys, device
        self.most_pages = -(-(tokens + DRAFTS) // PAGE)
        shape = len(model.layers), samples * self.most_pages, PAGE, HEADS_KV, HEAD_DIM
        self.k_pages, self.v_pages = (torch.zeros(shape, dtype=torch.bfloat16, device=device) for _ in "kv")
        self.mixed = Batch(samples * CHUNK, samples, self.most_pages, device)
        self.decoding = Batch(samples, samples, self.most_pages, device)
        self.graph = self.graph_logps = None
        self.random = torch.Generator().manual_seed(seed)

    def write(self, prompts, count, new):
        """`count` samples of each prompt, of `new` tokens, and the log-probability of each."""
        self.free = list(range(self.k_pages.shape[1]))
        samples = []
        for prompt in prompts:
            shared = Sample(list(prompt), len(prompt), False)
            self._give_pages(shared, len(prompt))
            whole = (len(prompt) - 1) // PAGE * PAGE  # whole pages are all samples' alike
            while shared.cached < whole:
                piece = prompt[shared.cached:min(shared.cached + CHUNK, whole)]
                self._compute(self.mixed, [(shared, piece)])
                shared.cached += len(piece)
            for i in range(count):
                sample = Sample(list(prompt), len(prompt), i % 2 == 1, shared.pages[:whole // PAGE], whole)
                self._give_pages(sample, len(prompt) + new + DRAFTS)
                samples.append(sample)
        self._step([(sample, sample.tokens[sample.cached:], 1) for sample in samples], self.mixed)
        while running := [s for s in samples if len(s.logps) < new]:
            for drafts in (False, True):  # a call of tokens alone, and one of drafts
                work = []
                for sample in (s for s in running if s.drafts == drafts):
                    guesses = sample.tokens[:min(DRAFTS, new - len(sample.logps) - 1)] if drafts else []
                    work.append((sample, sample.tokens[-1:] + guesses, 1 + len(guesses)))
                if work:
                    self._step(work, self.mixed if drafts else self.decoding)
        return samples

    def _give_pages(self, sample, tokens):
        while len(sample.pages) * PAGE < tokens:
            sample.pages.append(self.free.pop())

    def _step(self, work, batch):
        """Draws behind each of a sample's last tokens, as long as what was guessed is what is drawn."""
        logps, ends = self._compute(batch, [(sample, tokens) for sample, tokens, _ in work])
        for (sample, tokens, drawn), end in zip(work, ends[1:]):
            for i in range(drawn):
                row = logps[end - drawn + i]
                token = torch.multinomial(row.exp(), 1, generator=self.random).item()
                sample.tokens.append(token)
                sample.logps.append(row[token].item())
                guess = tokens[len(tokens) - drawn + i + 1:][:1]
                if guess != [token]:
                    break
            sample.cached = len(sample.tokens) - 1

    @torch.no_grad()
    def _compute(self, batch, work):
        ends = batch.fill(work)
        if batch is self.decoding and self.device == "cuda":
            if self.graph is None:
                self._forward(batch)  # compiles
                self.graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(self.graph):
                    self.graph_logps = self._forward(batch)
            self.graph.replay()
            return self.graph_logps.cpu(), ends
        return self._forward(batch).cpu(), ends

    def _forward(self, batch):
        where = dict(cu_seqlens_q=batch.cu_seqlens_q, seqused_k=batch.seqused_k, page_table=batch.page_table)

        def attend_with(k_pages, v_pages):
            def attend(q, k, v):
                ja.append(k, v, k_pages, v_pages, **where)
                return ja.attention(q, k_pages, v_pages, mask=MASK, split_keys=self.split_keys, zero_padding=True,
                                    **where)
            return attend

        return self.model(batch.tokens, batch.positions, map(attend_with, self.k_pages, self.v_pages))


def trained_logps(model, samples, split_keys, device):
    """Log-probabilities of all answers (samples, new) by one ragged forward pass, with gradients."""
    lengths = [len(sample.tokens) - 1 for sample in samples]
    ends = torch.tensor([0] + lengths).cumsum(0).int()
    flat = torch.tensor([t for sample in samples for t in sample.tokens[:-1]], device=device)
    positions = torch.cat([torch.arange(n) for n in lengths]).to(device)
    cu = ends.to(device)
    attend = lambda q, k, v: jt.attention(q, k, v, mask=MASK, split_keys=split_keys, cu_seqlens_q=cu, cu_seqlens_k=cu)
    logps = model(flat, positions, [attend] * len(model.layers))
    answers = [logps[end - len(s.logps):end].gather(1, torch.tensor(s.tokens[s.prompt:], device=device)[:, None])
               for s, end in zip(samples, ends[1:].tolist())]
    return torch.stack(answers)[..., 0]


def check_rows(model, device):
    """Checks that a row's bits do not depend on its place in a chunk."""
    x = torch.randn(ROWS, WIDTH, device=device).bfloat16()
    order = torch.randperm(ROWS, device=device)
    for weight in (model.layers[0].qkv, model.layers[0].up, model.head):
        def multiply(part, weight=weight):
            return F.linear(norm(part, model.norm), weight.bfloat16()).float().log_softmax(-1)

        if not torch.equal(multiply(x)[order], multiply(x[order])):
            raise SystemExit("the products of this PyTorch give a row other bits at another place")


def same_bits(split_keys, device):
    """The text that trainer and engine compare before the first step."""
    spec = dict(head_dim=HEAD_DIM, gqa_ratio=HEADS // HEADS_KV, mask=MASK, split_keys=split_keys, sequences_q="varlen")
    trained = ja.bits_of(ja.AttentionSpec(**spec, sequences_kv="varlen"))
    served = ja.bits_of(ja.AttentionSpec(**spec, sequences_kv="paged", page_size=PAGE))
    return trained == served


def train(steps=100, prompts=16, samples=8, new=16, layers=2, length=150, split_keys=64, rate=1e-3):
    """The largest difference of trainer's and engine's logprobs, and the mean reward, of each step."""
    device = "cuda" if torch.cuda.is_available() and not ja.devices()[0].emulated else "cpu"
    if split_keys and not same_bits(split_keys, device):
        raise SystemExit("trainer and engine have other bits")
    torch.manual_seed(0)
    model = Llama(layers).to(device)
    check_rows(model, device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0)
    engine = Engine(model, split_keys, prompts * (samples + 1), length + new, device)
    source = torch.Generator().manual_seed(2)
    differences, rewards = [], []
    for _ in range(steps):
        asked = [torch.randint(VOCABULARY, (int(torch.randint(length // 2, length, (1,), generator=source)),),
                               generator=source).tolist() for _ in range(prompts)]
        written = engine.write(asked, samples, new)
        reward = torch.tensor([sum(t < LIKED for t in s.tokens[s.prompt:]) / new for s in written])
        groups = reward.view(prompts, samples)
        gain = ((groups - groups.mean(1, keepdim=True)) / (groups.std(1, keepdim=True) + 1e-4)).view(-1, 1).to(device)
        before = torch.tensor([s.logps for s in written], device=device)
        logps = trained_logps(model, written, split_keys, device)
        differences.append((logps.detach() - before).abs().max().item())
        ratio = (logps - before).exp()
        loss = -torch.minimum(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rewards.append(reward.mean().item())
    return differences, rewards


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, value in dict(steps=100, prompts=16, samples=8, new=16, layers=2, length=150).items():
        parser.add_argument(f"--{name}", type=int, default=value, metavar="N", help=f"{value} if not given")
    options = vars(parser.parse_args())
    differences, rewards = train(**options)
    otherwise, _ = train(**options | {"steps": min(3, options["steps"]), "split_keys": 0})
    print("step  reward  difference of logprobs")
    for step in sorted({*range(0, len(rewards), max(1, len(rewards) // 10)), len(rewards) - 1}):
        print(f"{step:4}  {rewards[step]:6.3f}  {differences[step]}")
    print(f"largest difference: {max(differences)} with split_keys, {max(otherwise)} without")
    return 0 if max(differences) == 0 else 1


if __name__ == "__main__":
    raise SystemExit(main())
