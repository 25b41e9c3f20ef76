#!/usr/bin/env python3
"""Compares random lists of keys, their unions, transposes and largest scores with exhaustive references.

    bench/list_draws.py
    bench/list_draws.py --lists 20000 --seed 7

Scores have many ties, NaN and infinities; entries come in any order, twice, or name no key; counts are none or too large.
top_k, union and transpose_lists must equal stable sorts in every entry. o and LSE of attention to lists (blocks, unions of
four queries, latents, and video's blocks with valid rows) are compared with attention in fp64 that multiplies each query
with all keys and weights these by how often they are listed. A line for each kind says how many lists were compared and how
many were different. Needs a GPU and PyTorch.

Exit status 1 when any list was different; 2 without a GPU and for wrong arguments.
"""

import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from comparison import environment  # noqa: E402

O_ERROR, LSE_ERROR = 0.012, 1e-4  # of the largest |o| of a list, in which P and o are rounded to bf16; of LSE
WILD = -(2**31), 2**31 - 1, -1


class Draws:
    """Random tensors on a device, and draws of each kind: each returns (lists that were compared, how many differed)."""

    def __init__(self, seed, device="cuda"):
        import torch

        self.torch, self.device = torch, device
        self.generator = torch.Generator(device).manual_seed(seed)

    def number(self, low, high):
        return int(self.numbers((1,), low, high))

    def numbers(self, shape, low, high):
        return self.torch.randint(low, high, shape, device=self.device, generator=self.generator, dtype=self.torch.int32)

    def chance(self, shape):
        return self.torch.rand(shape, device=self.device, generator=self.generator)

    def normal(self, *shape):
        return self.torch.randn(shape, device=self.device, generator=self.generator).bfloat16()

    def lists(self, rows, heads, entries, limit):
        """(entries, counts) with all that lists may hold."""
        lists = self.numbers((rows, heads, entries), -3, limit + 3)
        wild = self.torch.tensor(WILD, device=self.device, dtype=self.torch.int32)[self.numbers(lists.shape, 0, len(WILD)).long()]
        lists = self.torch.where(self.chance(lists.shape) < 0.05, wild, lists)
        counts = self.numbers((rows, heads), -1, entries + 3)
        counts[self.number(0, rows)] = 0
        return lists, counts

    def listed(self, lists, counts, limit):
        """How often each list names each key, or block: int64 (rows, heads, limit)."""
        place = self.torch.arange(lists.shape[2], device=self.device)
        counts_too = (place < counts[..., None]) & (lists >= 0) & (lists < limit)
        named = self.torch.where(counts_too, lists, limit).long()
        times = self.torch.zeros(*lists.shape[:2], limit + 1, dtype=self.torch.int64, device=self.device)
        return times.scatter_add_(2, named, self.torch.ones_like(named))[..., :limit]

    # Lists themselves.

    def top_k(self):
        import jit_attention as ja

        torch, rows = self.torch, self.number(1, 90)
        columns, count = (self.number(1, most) for most in ((900, 5000, 20000)[self.number(0, 3)], 700))
        few = self.numbers((rows, columns), -2, 3).float()
        scores = [few, self.normal(rows, columns).float(), (self.normal(rows, columns).float() - 1).relu(),
                  few.abs().neg() * 0][self.number(0, 4)]
        for value, share in ((float("nan"), 0.1), (float("-inf"), 0.1), (float("inf"), 0.01), (-0.0, 0.05)):
            if self.number(0, 2):
                scores = scores.masked_fill(self.chance(scores.shape) < share, value)
        ends = self.numbers((rows,), -3, columns + 9)
        indices, counts = ja.top_k(scores, count, ends=ends)
        column = torch.arange(columns, device=self.device)
        rank = scores.double().nan_to_num(nan=-1e300, posinf=float("inf"), neginf=float("-inf"))
        rank = rank.masked_fill(column >= ends[:, None], float("-inf"))
        order = rank.sort(dim=1, descending=True, stable=True)
        seen = (order.values > float("-inf"))[:, :count]
        right = torch.where(seen, order.indices[:, :count], columns).sort(1).values
        right = torch.nn.functional.pad(torch.where(right == columns, -1, right), (0, count - right.shape[1]), value=-1)
        same = (indices == right).all(1) & (counts == seen.sum(1))
        return rows, int((~same).sum())

    def union(self):
        import jit_attention as ja

        torch, groups, queries, heads = self.torch, self.number(2, 12), self.number(2, 33), self.number(1, 3)
        entries, limit = self.number(1, 80), (50, 300, 70000)[self.number(0, 3)]
        lists, counts = self.lists(groups * queries, heads, entries, limit)
        made = ja.sparse.union(lists, counts, queries=queries, limit=limit)
        sees = (self.listed(lists, counts, limit) > 0).view(groups, queries, heads, limit)
        weight = 2 ** torch.arange(queries, device=self.device, dtype=torch.int64)
        bits = (sees * weight[None, :, None, None]).sum(1)
        united, members = made["key_lists"].long(), made["key_members"].long() & 0xFFFFFFFF
        number = (bits > 0).sum(-1)
        here = torch.arange(united.shape[2], device=self.device) < number[..., None]
        found = torch.zeros(groups, heads, limit + 1, dtype=torch.int64, device=self.device)
        found.scatter_add_(2, torch.where(here, united.clamp(0, limit), limit), torch.where(here, members, 0))
        ascending = ((united.diff(dim=2) > 0) | ~here[..., 1:]).all(2)
        same = (found[..., :limit] == bits).all(2) & (made["key_counts"] == number) & ascending
        return groups * queries * heads, int((~same).sum()) * queries

    def transpose(self):
        import jit_attention as ja

        torch, rows, heads = self.torch, self.number(1, 70), self.number(1, 3)
        entries, limit = self.number(1, 200), self.number(1, 500)
        lists, counts = self.lists(rows, heads, entries, limit)
        starts, places = ja.transpose_lists(lists, counts, limit=limit)
        different = 0
        for head in range(heads):
            own = lists[:, head].long()
            keeps = (torch.arange(entries, device=self.device) < counts[:, head, None]) & (own >= 0) & (own < limit)
            order = torch.where(keeps, own, limit).flatten().sort(stable=True)
            right = torch.searchsorted(order.values, torch.arange(limit + 1, device=self.device))
            end = int(right[-1])
            same = torch.equal(starts[head].long(), right) and torch.equal(places[head, :end].long(), order.indices[:end])
            different += 0 if same else rows
        return rows * heads, different

    # Attention to lists.

    def compare(self, o, lse, q, k, v, times, scale):
        """How many (token, KV head) have another o or LSE than attention to keys that count `times`, int (tokens, heads_kv,
        keys). o and q (tokens, heads, columns), k and v (keys, heads_kv, columns), lse (heads, tokens)."""
        torch, ratio = self.torch, q.shape[1] // k.shape[1]
        q, k, v = (x.double() for x in (q, k, v))
        times = times.repeat_interleave(ratio, 1)
        k, v = (x.repeat_interleave(ratio, 1) for x in (k, v))
        scores = torch.einsum("thd,khd->thk", q, k) * scale + times.double().log()
        right = scores.logsumexp(-1)
        none = right == float("-inf")
        weights = (scores - right.masked_fill(none, 0)[..., None]).exp()
        exact = torch.einsum("thk,khd->thd", weights, v)
        error = (o.double() - exact).abs().amax(-1)
        lse = lse.T.double()
        same = torch.where(none, (lse == float("-inf")) & (o == 0).all(-1),
                           (error <= O_ERROR * exact.abs().amax(-1) + 1e-3) & ((lse - right).abs() <= LSE_ERROR * (1 + right.abs())))
        same = same.view(same.shape[0], -1, ratio).all(-1)
        return same.numel(), int((~same).sum())

    def keys_of(self, blocks, block, keys):
        return blocks.repeat_interleave(block, -1)[..., :keys]

    def seen(self, tokens, keys):
        """Of a causal mask, int (tokens, 1, keys)."""
        at = self.torch.arange(keys, device=self.device)
        return (at <= at[:tokens, None] + keys - tokens).long()[:, None]

    def blocks(self, block=64, queries=1):
        import jit_attention as ja

        tokens, keys, heads = 4 * self.number(3, 16), self.number(150, 1200), 2
        q, k, v = self.normal(tokens, 4 * heads, 64), self.normal(keys, heads, 64), self.normal(keys, heads, 64)
        limit = -(-keys // block)
        lists, counts = self.lists(tokens, heads, self.number(1, 9), limit)
        o, lse = ja.sparse.block_top_k(q, k, v, lists, counts, block=block, queries=queries, mask=ja.mask.causal(),
                                       return_lse=True)
        times = self.keys_of(self.listed(lists, counts, limit), block, keys)
        times = times.clamp(max=1) if queries > 1 else times
        return self.compare(o, lse, q, k, v, times * self.seen(tokens, keys), 64 ** -0.5)

    def small_blocks(self):
        return self.blocks(block=(4, 16)[self.number(0, 2)])

    def unions(self):
        return self.blocks(block=16, queries=4)

    def latents(self, queries=1):
        import jit_attention as ja

        tokens, keys = 4 * self.number(2, 9), self.number(100, 700)
        q, rows = self.normal(tokens, 8, 576), self.normal(keys, 1, 576)
        lists, counts = self.lists(tokens, 1, self.number(1, 150), keys)
        o, lse = ja.sparse.dsa(q, rows, lists, counts, queries=queries, return_lse=True)
        times = self.listed(lists, counts, keys)
        return self.compare(o, lse, q, rows, rows[..., :512], times.clamp(max=1) if queries > 1 else times, 576 ** -0.5)

    def latents_of_four(self):
        return self.latents(queries=4)

    def video(self):
        import jit_attention as ja

        torch, rows, heads = self.torch, self.number(2, 12), 2
        q, k, v = (self.normal(1, rows * 64, heads, 64) for _ in range(3))
        lists, counts = (x.transpose(0, 1)[None].contiguous() for x in self.lists(rows, heads, self.number(1, 9), rows))
        valid = self.numbers((rows,), 0, 65)
        o, lse = ja.sparse.video(q, k, v, lists, counts, valid_rows=valid, return_lse=True)
        times = self.listed(lists[0].transpose(0, 1), counts[0].T, rows).clamp(max=1)
        times = self.keys_of(times, 64, rows * 64) * (torch.arange(64, device=self.device) < valid[:, None]).flatten()
        compared, different = self.compare(o[0], lse[0], q[0], k[0], v[0], times.repeat_interleave(64, 0), 64 ** -0.5)
        return compared // 64, different

    KINDS = dict(top_k="largest scores", union="unions", transpose="transposes", blocks="blocks of 64", small_blocks="blocks of 4 and 16",
                 unions="unions of four, blocks of 16", latents="latents", latents_of_four="unions of four, latents", video="video")


def compared(draws, kind, lists):
    """(lists, different) of draws until so many lists have been compared."""
    total = different = 0
    while total < lists:
        some, wrong = getattr(draws, kind)()
        total, different = total + some, different + wrong
    return total, different


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lists", type=int, default=2000, metavar="N", help="of each kind, at least (2000)")
    parser.add_argument("--seed", type=int, default=0, help="of the draws (0)")
    options = parser.parse_args(arguments)
    environment.require_gpu(parser)
    print(environment.one_line(), flush=True)
    draws, failed = Draws(options.seed), False
    for kind, name in Draws.KINDS.items():
        lists, different = compared(draws, kind, options.lists)
        print(f"{name}: of {lists:,} lists different {different:,}", flush=True)
        failed |= different > 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
