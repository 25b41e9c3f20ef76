"""A small Llama that answers: paged cache, prompts in chunks, many requests in one batch, decoding in a CUDA graph.

    python examples/serve.py
    JIT_ATTENTION_DEVICE=emulated:sm_90a python examples/serve.py --steps 300 --requests 3 --layers 1

The model is `LlamaForCausalLM` of Transformers, trained here for some seconds on sums such as "7+12=19;". Then the
`Server` answers many questions at once, with the weights of that model and a cache of its own: one call of
`jit_attention.append` stores the keys of a layer's new tokens and rotates, one of `jit_attention.attention` reads the
pages. Each step has a token of every request that decodes, and what the step has left of prompts that wait. The same
questions are put to the stock model's `generate`, one by one, and tokens are compared.
"""

import argparse
import dataclasses
import random
import time
from collections import deque

try:
    import torch
    import torch.nn.functional as F
    from transformers import LlamaConfig, LlamaForCausalLM

    import jit_attention as ja
except ModuleNotFoundError as error:
    raise SystemExit(f"serve.py needs PyTorch, Transformers and jit_attention ({error}): "
                     "pip install torch transformers") from None

END = ord(";")
LARGEST = 10  # numbers of the sums are smaller


def some_sums(source, count):
    """Sums with their answers, one behind another."""
    pairs = [(source.randrange(LARGEST), source.randrange(LARGEST)) for _ in range(count)]
    return "".join(f"{a}+{b}={a + b};" for a, b in pairs)


def answer_bytes(text):
    """Which bytes of (rows, bytes) belong to answers, their end included."""
    place = torch.arange(text.shape[1], device=text.device)
    last = lambda byte: torch.where(text == byte, place, -1).cummax(1).values
    begun = last(ord("="))
    return (begun > last(END).roll(1, 1)) & (place > begun) & (begun >= 0)


def trained(device, layers, steps, seqlen=64, batch=32):
    """A model in bf16 that knows sums, as far as so many steps teach it."""
    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=128, hidden_size=128, intermediate_size=256, num_hidden_layers=layers,
                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=512)
    model = LlamaForCausalLM(config).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1, 0.05, max(1, steps))
    source = random.Random(1)
    for _ in range(steps):
        rows = [list(some_sums(source, seqlen).encode()[:seqlen + 1]) for _ in range(batch)]
        text = torch.tensor(rows, device=device)
        logits = model(text[:, :-1], use_cache=False).logits
        answers = answer_bytes(text[:, 1:])  # what is asked is anyone's guess
        loss = F.cross_entropy(logits[answers], text[:, 1:][answers])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return model.to(torch.bfloat16).eval()


@dataclasses.dataclass
class Request:
    prompt: list
    most_new: int  # tokens of the answer, at most
    answer: list = dataclasses.field(default_factory=list)
    cached: int = 0  # tokens whose keys and values the cache has
    pages: list = dataclasses.field(default_factory=list)

    @property
    def tokens(self):
        return self.prompt + self.answer

    @property
    def is_done(self):
        return len(self.answer) == self.most_new or self.answer[-1:] == [END]


class Batch:
    """Inputs of a step, at fixed addresses, for `tokens` new tokens of `requests` requests."""

    def __init__(self, tokens, requests, most_pages, device):
        zeros = lambda *shape, dtype=torch.int32: torch.zeros(shape, dtype=dtype, device=device)
        self.tokens = zeros(tokens, dtype=torch.int64)
        self.cu_seqlens_q, self.seqused_k = zeros(requests + 1), zeros(requests)
        self.page_table = zeros(requests, most_pages)

    def fill(self, work):
        """`work`: requests, and how many tokens each brings. Other rows are requests without tokens and keys."""
        tokens = [t for request, new in work for t in request.tokens[request.cached:request.cached + new]]
        boundaries, rows = [0], []
        for request, new in work:
            boundaries.append(boundaries[-1] + new)
            rows.append(request.pages + [-1] * (self.page_table.shape[1] - len(request.pages)))
        spare = len(self.seqused_k) - len(work)
        self._set(self.tokens, tokens + [0] * (len(self.tokens) - len(tokens)))
        self._set(self.cu_seqlens_q, boundaries + [boundaries[-1]] * spare)
        self._set(self.seqused_k, [request.cached + new for request, new in work] + [0] * spare)
        self._set(self.page_table, rows + [[-1] * self.page_table.shape[1]] * spare)

    @staticmethod
    def _set(tensor, values):
        tensor.copy_(torch.tensor(values, dtype=tensor.dtype))


class Server:
    """Serves requests with a Llama's weights. `most_tokens` is that of a step, `most_requests` that of a batch."""

    def __init__(self, model, pages=64, page_size=16, most_requests=8, most_tokens=32, seqlen=256):
        config, self.model = model.config, model
        self.device = model.device
        self.head_dim, self.page_size = config.head_dim, page_size
        self.most_requests, self.most_tokens = most_requests, most_tokens
        shape = config.num_hidden_layers, pages, page_size, config.num_key_value_heads, config.head_dim
        self.k_pages, self.v_pages = (torch.zeros(shape, dtype=model.dtype, device=self.device) for _ in "kv")
        angles = torch.outer(torch.arange(seqlen, device=self.device), model.model.rotary_emb.inv_freq.float())
        self.cos_sin = torch.cat([angles.cos(), angles.sin()], 1).contiguous()
        self.free_pages = list(range(pages))
        self.waiting, self.running = deque(), []
        most_pages = -(-seqlen // page_size)
        self.seqlen = seqlen
        self.mixed = Batch(most_tokens, most_requests, most_pages, self.device)
        self.decoding = Batch(most_requests, most_requests, most_pages, self.device)
        self.graph = self.next_tokens = None
        self.steps = {"mixed": 0, "decoding": 0}

    def add(self, prompt, most_new):
        if not prompt or len(prompt) + most_new > min(self.seqlen, len(self.free_pages) * self.page_size):
            raise ValueError(f"a request of {len(prompt)} tokens and {most_new} new ones does not fit in the cache")
        self.waiting.append(Request(list(prompt), most_new))
        return self.waiting[-1]

    def run(self):
        """Serves until all requests are done."""
        while self.waiting or self.running:
            self.step()

    def step(self):
        self._admit()
        work, room = [], self.most_tokens
        for request in sorted(self.running, key=lambda r: len(r.tokens) - r.cached):  # those that decode come first
            new = min(len(request.tokens) - request.cached, room)
            if new > 0:
                work.append((request, new))
                room -= new
        is_decoding = all(new == 1 for _, new in work)
        self.steps["decoding" if is_decoding else "mixed"] += 1
        next_tokens = self._decode(work) if is_decoding else self._compute(self.mixed, work)
        for (request, new), token in zip(work, next_tokens.tolist()):
            request.cached += new
            if request.cached == len(request.tokens):  # else a part of the prompt, behind which more of it follows
                request.answer.append(token)
        for request in [r for r in self.running if r.is_done]:
            self.running.remove(request)
            self.free_pages += request.pages

    def _admit(self):
        """Requests begin when there is a row for them and pages for all that they may become."""
        while self.waiting and len(self.running) < self.most_requests:
            request = self.waiting[0]
            needed = -(-(len(request.prompt) + request.most_new) // self.page_size)
            if needed > len(self.free_pages):
                break
            request.pages = [self.free_pages.pop() for _ in range(needed)]
            self.running.append(self.waiting.popleft())

    def _compute(self, batch, work):
        batch.fill(work)
        return self._forward(batch)

    def _decode(self, work):
        if self.device.type != "cuda":
            return self._compute(self.decoding, work)
        if self.graph is None:
            self._compute(self.decoding, work)  # compiles and tunes; what it stores is stored again by the replay
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.next_tokens = self._forward(self.decoding)
        self.decoding.fill(work)
        self.graph.replay()
        return self.next_tokens

    @torch.inference_mode()
    def _forward(self, batch):
        """The next token of each request."""
        llama = self.model.model
        x = llama.embed_tokens(batch.tokens)
        for layer, k_pages, v_pages in zip(llama.layers, self.k_pages, self.v_pages):
            x = x + self._attend(layer, layer.input_layernorm(x), k_pages, v_pages, batch)
            x = x + layer.mlp(layer.post_attention_layernorm(x))
        last = (batch.cu_seqlens_q[1:] - 1).clamp(min=0)
        return self.model.lm_head(llama.norm(x[last])).argmax(-1)

    def _attend(self, layer, x, k_pages, v_pages, batch):
        project = layer.self_attn
        q, k, v = (linear(x).unflatten(-1, (-1, self.head_dim)) for linear in
                   (project.q_proj, project.k_proj, project.v_proj))
        where = dict(cu_seqlens_q=batch.cu_seqlens_q, seqused_k=batch.seqused_k, page_table=batch.page_table)
        ja.append(k, v, k_pages, v_pages, q=q, cos_sin=self.cos_sin, **where)
        o = ja.attention(q, k_pages, v_pages, mask=ja.mask.causal(), zero_padding=True, **where)
        return project.o_proj(o.flatten(1))


def where():
    """The device that tensors must be on."""
    return torch.device("cuda" if torch.cuda.is_available() and not ja.devices()[0].emulated else "cpu")


def timed(function, device):
    began = time.perf_counter()
    result = function()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return result, time.perf_counter() - began


def stock_answer(model, prompt, most_new):
    tokens = torch.tensor([prompt], device=model.device)
    generated = model.generate(tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=most_new,
                               do_sample=False, eos_token_id=END, pad_token_id=0)
    return generated[0, len(prompt):].tolist()


def questions(count):
    """Prompts of lengths that differ: some sums with their answers, and one without; and the answers."""
    source = random.Random(2)
    for _ in range(count):
        a, b = source.randrange(LARGEST), source.randrange(LARGEST)
        yield f"{some_sums(source, source.randrange(1, 12))}{a}+{b}=", f"{a + b};"


def serve(steps=500, requests=32, layers=2, most_new=8):
    """The server, its requests, the answers of the stock model, the right ones, and seconds of both."""
    device = where()
    model = trained(device, layers, steps)
    asked = list(questions(requests))
    server = Server(model)

    def put_all():
        served = [server.add(prompt.encode(), most_new) for prompt, _ in asked]
        server.run()
        return served

    if device.type == "cuda":
        put_all()  # compiles, tunes, captures
    served, seconds = timed(put_all, device)
    stock, stock_seconds = timed(lambda: [stock_answer(model, r.prompt, most_new) for r in served], device)
    return server, served, stock, [answer for _, answer in asked], seconds, stock_seconds


def arguments(words=None):
    """{name: number} of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    lowest = dict(steps=0, requests=1, layers=1)
    for name, value in dict(steps=500, requests=32, layers=2).items():
        parser.add_argument(f"--{name}", type=int, default=value, metavar="N", help=f"{value} if not given")
    given = vars(parser.parse_args(words))
    for name, value in given.items():
        if value < lowest[name]:
            parser.error(f"--{name} is {value}; it must be {lowest[name]} or more")
    return given


def main():
    server, served, stock, right, seconds, stock_seconds = serve(**arguments())
    for request, expected in list(zip(served, right))[:5]:
        print(f"{bytes(request.prompt).decode()} -> {bytes(request.answer).decode()}   ({expected} is right)")
    answers = [bytes(request.answer).decode() for request in served]
    tokens = sum(map(len, answers))
    agreed = sum(request.answer == tokens for request, tokens in zip(served, stock))
    print(f"{sum(map(str.__eq__, answers, right))} of {len(served)} answers are right, "
          f"{agreed} of {len(served)} are the stock model's, token by token")
    print(f"{server.steps['mixed']} steps with prompts, {server.steps['decoding']} of decoding alone"
          f"{', in a CUDA graph' if server.graph else ''}")
    print(f"{tokens / seconds:.0f} tokens/s, generate() one by one {sum(map(len, stock)) / stock_seconds:.0f}")
    return 0 if agreed == len(served) else 1


if __name__ == "__main__":
    raise SystemExit(main())
