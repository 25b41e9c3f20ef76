"""Trains a small transformer on bytes, with jit_attention and with PyTorch's own attention, and prints both losses.

    python examples/train_sums.py
    JIT_ATTENTION_DEVICE=emulated:sm_90a python examples/train_sums.py --steps 3 --seqlen 32 --width 32 --layers 1

The text is made here: sums such as "17+85=102;", packed one behind another. A byte sees the bytes before it of its own
sum, by a mask of C++ text, and a table that is learned tells how much the distance of two bytes counts in each head, by
a score of C++ text: the library differentiates the text with respect to the table, too. Both models begin with the same
weights and see the same text; matrices and attention are computed in bf16, the weights are fp32.
"""

import argparse
import copy
import random

try:
    import torch
    import torch.nn.functional as F
    from torch import nn

    import jit_attention as ja
    import jit_attention.torch as jt
except ModuleNotFoundError as error:
    raise SystemExit(f"train_sums.py needs PyTorch and jit_attention ({error}): pip install torch") from None

SAME_SUM = ja.mask.text("return sums[b * seqlen_kv + q] == sums[b * seqlen_kv + k];", name="same_sum",
                        tensors={"sums": "int32"})
MASK = ja.mask.causal() & SAME_SUM
REACH = 12  # distances that have an entry of their own; those beyond share the last one


def distance_score(reach):
    """score + table[head, distance]."""
    return ja.score.text("return score + table[h * reach + min(max(q - k, 0), reach - 1)];", name="distance",
                         constants={"reach": reach}, tensors={"table": "fp32"})


def jit_attend(q, k, v, sums, table):
    return jt.attention(q, k, v, mask=MASK, score=distance_score(table.shape[1]), tensors={"sums": sums, "table": table})


def stock_attend(q, k, v, sums, table):
    """Attention with mask and bias as one tensor of scores."""
    places = torch.arange(q.shape[1], device=q.device)
    distance = places[:, None] - places[None, :]
    bias = table[:, distance.clamp(0, table.shape[1] - 1)]
    seen = (distance >= 0) & (sums[:, :, None] == sums[:, None, :])
    bias = bias[None].masked_fill(~seen[:, None], -torch.inf).to(q.dtype)
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias).transpose(1, 2)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.table = nn.Parameter(torch.zeros(heads, REACH))
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x, sums, attend):
        q, k, v = self.qkv(self.before_attention(x)).unflatten(-1, (3, self.heads, -1)).unbind(2)
        x = x + self.out(attend(q, k, v, sums, self.table).flatten(2))
        return x + self.mlp(self.before_mlp(x))


class Model(nn.Module):
    def __init__(self, width, heads, layers):
        super().__init__()
        self.bytes = nn.Embedding(128, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.logits = nn.LayerNorm(width), nn.Linear(width, 128)

    def forward(self, text, sums, attend):
        x = self.bytes(text)
        for block in self.blocks:
            x = block(x, sums, attend)
        return self.logits(self.norm(x))


def packed_sums(source, batch, seqlen):
    """Bytes of sums (batch, seqlen), and for each the number of its sum; the last sum of a row is cut."""
    rows, numbers = [], []
    for _ in range(batch):
        row, number = [], []
        while len(row) < seqlen:
            a, b = source.randrange(100), source.randrange(100)
            text = f"{a}+{b}={a + b};".encode()
            number += [number[-1] + 1 if number else 0] * len(text)
            row += text
        rows.append(row[:seqlen])
        numbers.append(number[:seqlen])
    return torch.tensor(rows), torch.tensor(numbers, dtype=torch.int32)


def losses_of(model, attend, device, steps, batch, seqlen, rate):
    """Trains the model, and returns the loss of each step."""
    model = copy.deepcopy(model).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    source = random.Random(1)
    losses = []
    for _ in range(steps):
        text, sums = (x.to(device) for x in packed_sums(source, batch, seqlen + 1))
        with torch.autocast(device, dtype=torch.bfloat16):
            logits = model(text[:, :-1], sums[:, :-1].contiguous(), attend)
        # The first byte of a sum is anyone's guess.
        wanted = torch.where(sums[:, 1:] == sums[:, :-1], text[:, 1:], -100)
        loss = F.cross_entropy(logits.float().flatten(0, 1), wanted.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, model


def train(steps=300, batch=32, seqlen=256, width=128, heads=4, layers=2, rate=2e-3):
    """The losses of both implementations, and the tables that jit_attention has learned."""
    device = "cuda" if torch.cuda.is_available() and not ja.devices()[0].emulated else "cpu"
    torch.manual_seed(0)
    model = Model(width, heads, layers)
    ours, trained = losses_of(model, jit_attend, device, steps, batch, seqlen, rate)
    stock, _ = losses_of(model, stock_attend, device, steps, batch, seqlen, rate)
    return ours, stock, [block.table.detach() for block in trained.blocks]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, value in dict(steps=300, batch=32, seqlen=256, width=128, heads=4, layers=2).items():
        parser.add_argument(f"--{name}", type=int, default=value, help=f"{value} if not given")
    ours, stock, tables = train(**vars(parser.parse_args()))
    print("step  jit_attention  PyTorch")
    for step in sorted({*range(0, len(ours), max(1, len(ours) // 10)), len(ours) - 1}):
        print(f"{step:4}  {ours[step]:13.4f}  {stock[step]:7.4f}")
    print("learned tables of distances: largest entry", max(table.abs().max().item() for table in tables))


if __name__ == "__main__":
    main()
