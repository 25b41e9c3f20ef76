"""Cases of tests/python/test_fixed_bits.py: a request, and a way to compute its queries."""

import itertools
from dataclasses import dataclass

import jit_attention as ja
import numpy
from request_batches import BF16, boundaries, int32, paged, requests

DEVICE = ja.devices()[0]
IS_HOPPER = str(DEVICE.arch).startswith("sm_90")
HAS_SMALL_SMEM = DEVICE.smem_per_block_optin < 100 * 1024
MASKS = {
    "none": lambda: ja.mask.none(),
    "causal": lambda: ja.mask.causal(),
    "window": lambda: ja.mask.sliding_window(90, 0),
    "prefix": lambda: ja.mask.causal() | ja.mask.prefix(70),
    "text": lambda: ja.mask.text("return (k / 3 + h) % 4 != 1 && k <= q + seqlen_kv - seqlen_q;", name="holes"),
    "range": lambda: ja.mask.text(  # of which the library finds what a row sees
        "return k <= q + seqlen_kv - seqlen_q && k >= (q + seqlen_kv - seqlen_q) / 2;", name="late_half"),
}
SCORES = {
    "none": lambda: ja.score.none(),
    "softcap": lambda: ja.score.softcap(3),
    "alibi": lambda: ja.score.alibi(),
    # The compiler would like to make multiply-adds of it, in some kernels others than in others.
    "text": lambda: ja.score.text(
        "const float distance = q + seqlen_kv - seqlen_q - k;"
        "return score * 1.37f + distance * 0.013f - score * score * 0.11f;", name="sums_of_products"),
}
CONFIGS = {
    "forward_wgmma": ["tile_q=64 stages_q=1 stages_k=1 stages_v=1 output=separate rescale=lazy",
                      "tile_q=128 stages_q=2 stages_k=2 stages_v=2 order=ping_pong rescale=on_overflow",
                      "tile_q=64 stages_q=2 stages_k=1 stages_v=1 output=direct rescale=on_overflow"],
    "forward_split_wgmma": ["tile_rows=64 stages=2 stages_q=1", "tile_rows=128 stages=1 stages_q=2",
                            "tile_rows=64 stages=1 stages_q=2"],
    "forward_mma_sync": ["tile_q=64 warps=4 stages_k=1 stages_v=1", "tile_q=128 warps=4 stages_k=2 stages_v=1",
                         "tile_q=32 warps=2 stages_k=2 stages_v=2 q_in_registers=true"],
    "forward_split_kv": ["row_warps=1 key_warps=1 stages=2 blocks_per_sm=1",
                         "row_warps=4 key_warps=1 stages=2 blocks_per_sm=1",
                         "row_warps=2 key_warps=1 stages=2 blocks_per_sm=1 copies=tma"],
}
if not IS_HOPPER:
    CONFIGS = {family: [config for config in configs if "copies=tma" not in config]
               for family, configs in CONFIGS.items() if not family.endswith("wgmma")}
AXES = {
    "layout": ["dense", "ragged", "paged 1", "paged 8", "paged 16", "paged 256"],
    "path": ["whole", 1, 17, 64],  # or chunks of so many queries
    "batch": [1, 3, 9],
    "family": [(family, config) for family, configs in CONFIGS.items() for config in configs] + [("any", "")],
    "head_dims": [(64, 64), (128, 128), (192, 128), (256, 256), (40, 72)],
    "ratio": [1, 4, 8, 12],
    "mask": list(MASKS),
    "score": list(SCORES),
    "sinks": [False, True],
    "split_keys": [64, 128, 192],
    "length": ["1", "T - 1", "T + 1", "S - 1", "S + 1", "3 * S + 17"],
    "scale": [None, 0.9],  # of which scores of random rows are large enough to move maxima
}


@dataclass(frozen=True)
class BitCase:
    layout: str
    path: object
    batch: int
    family: tuple
    head_dims: tuple
    ratio: int
    mask: str
    score: str
    sinks: bool
    split_keys: int
    length: str
    scale: float | None

    def is_possible(self):
        family = self.family[0]
        tile = self.tile()
        if self.layout.startswith("paged") and family not in ("any", "forward_split_kv"):
            page = int(self.layout.split()[1])
            if page < 8 or family == "forward_mma_sync":  # boxes of pages are no fewer rows
                return False
        if self.mask in ("prefix",) and self.path != "whole":
            return False  # a chunk does not have the keys behind it
        if self.mask == "none" and self.score in ("alibi", "text") and self.path != "whole":
            return False  # without a mask a chunk's queries stand before the last of all keys, not of those before them
        if "copies=tma" in self.family[1] and self.layout == "paged 1":
            return False
        if family == "forward_wgmma" and "tile_q=128" in self.family[1] and max(self.head_dims) > 128:
            return False
        widest = max(self.head_dims)
        if family == "forward_split_kv" and widest > 128 and tile > 64:
            return False
        if "tile_rows=128" in self.family[1] and widest > 192:
            return False  # with most masks and scores there are not as many registers
        if "row_warps=4" in self.family[1] and widest > (64 if HAS_SMALL_SMEM else 256 if IS_HOPPER else 128):
            return False
        if family == "forward_mma_sync" and self.family[1] != CONFIGS[family][0] and tile + widest > 192:
            return False
        return True

    def tile(self):
        """Keys of a tile, as docs/batch-invariance.md has it."""
        if max(self.head_dims) > 128:
            return 32 if HAS_SMALL_SMEM else 64
        return 128 if IS_HOPPER and self.split_keys % 128 == 0 else 64

    def keys(self):
        return max(1, eval(self.length, {"T": self.tile(), "S": self.split_keys}))

    def config(self):
        family, config = self.family
        return None if family == "any" else f"family={family} tile_kv={self.tile()} {config}"


def pairwise(axes, is_possible, rng):
    """Cases such that each two values of two axes that go together are in one of them, found greedily."""
    names = list(axes)
    open_pairs = {((a, x), (b, y)) for a, b in itertools.combinations(names, 2) for x in axes[a] for y in axes[b]}
    cases = []
    while open_pairs:
        best, most = None, set()
        first = rng.choice(len(open_pairs))
        pair = sorted(open_pairs, key=repr)[first]
        for _ in range(30):
            values = {name: axes[name][rng.integers(len(axes[name]))] for name in names} | dict(pair)
            case = BitCase(**values)
            if not case.is_possible():
                continue
            covers = open_pairs & set(itertools.combinations(values.items(), 2))
            if best is None or len(covers) > len(most):
                best, most = case, covers
        if best is None:
            open_pairs.discard(pair)
            continue
        cases.append(best)
        open_pairs -= most
    return cases


def draw(rng, axes=AXES):
    """Any case of these values; None if there seems to be none."""
    for _ in range(100):
        case = BitCase(**{name: values[rng.integers(len(values))] for name, values in axes.items()})
        if case.is_possible():
            return case
    return None


class Computed:
    """A request of a case, and what calls came to, bit by bit."""

    def __init__(self, case, rng, place, fetch):
        self.case, self.rng, self.place, self.fetch = case, rng, place, fetch
        heads_kv = 2 if case.ratio < 8 else 1
        self.heads_q = heads_kv * case.ratio
        head_dim, head_dim_v = case.head_dims
        keys = case.keys()
        queries = min(keys, int(rng.integers(1, 45)))
        others = [int(n) for n in rng.integers(1, 2 * case.split_keys, case.batch - 1)]
        lengths_k = [keys] + ([keys] * len(others) if case.layout == "dense" else others)
        lengths_q = [queries] + [queries if case.layout == "dense" else min(n, int(rng.integers(1, 20)))
                                 for n in lengths_k[1:]]
        self.batch = requests(rng, lengths_q, lengths_k, heads_kv=heads_kv, ratio=case.ratio, head_dim=head_dim,
                              head_dim_v=head_dim_v, dtype=BF16 if rng.integers(2) else numpy.float16)
        if rng.integers(2):  # a neighbor whose scores are far larger
            for q in self.batch.q:
                q[rng.integers(len(q))] *= 40
        self.dtype = "bf16" if self.batch.q[0].dtype == BF16 else "fp16"
        self.sinks = rng.standard_normal(self.heads_q).astype(numpy.float32) if case.sinks else None
        self.slopes = (0.5 ** numpy.arange(1, self.heads_q + 1)).astype(numpy.float32)

    def spec(self, layout):
        case = self.case
        kind, _, page = layout.partition(" ")
        sequences = {"dense": {}, "ragged": {"sequences_q": "varlen", "sequences_kv": "varlen"},
                     "paged": {"sequences_q": "varlen", "sequences_kv": "paged", "page_size": int(page or 0)}}[kind]
        return ja.AttentionSpec(
            dtype=self.dtype, head_dim=case.head_dims[0], head_dim_v=case.head_dims[1], gqa_ratio=case.ratio,
            sinks=case.sinks, split_keys=case.split_keys, mask=MASKS[case.mask](), score=SCORES[case.score](),
            softmax_scale=case.scale, **sequences)

    def call(self, layout, config, pieces, num_splits=0):
        """o and LSE of queries [begin, end) of requests, as (queries, heads, head_dim) and (heads, queries)."""
        batch, place = self.batch, self.place
        kind, _, page = layout.partition(" ")
        q = [batch.q[b][begin:end] for b, begin, end in pieces]
        behind = self.case.mask != "none"  # whether keys behind a query may be missing
        kept = [len(batch.k[b]) - behind * (len(batch.q[b]) - end) for b, _, end in pieces]
        k = [batch.k[b][:n] for (b, _, _), n in zip(pieces, kept)]
        v = [batch.v[b][:n] for (b, _, _), n in zip(pieces, kept)]
        options = {"num_splits": num_splits, "return_lse": True}
        if self.sinks is not None:
            options["sinks"] = place(self.sinks)
        if self.case.score == "alibi":
            options["tensors"] = {"alibi_slopes": place(self.slopes)}
        kernel = ja.prepare(self.spec(layout), config=config)
        if kind == "dense":
            o, lse = kernel(*(place(numpy.stack(x)) for x in (q, k, v)), **options)
            return [(self.fetch(o)[i], self.fetch(lse)[i]) for i in range(len(pieces))]
        if kind == "ragged":
            arrays = {"k": numpy.concatenate(k), "v": numpy.concatenate(v), "cu_seqlens_k": boundaries(kept)}
        else:
            rows = type("", (), {"k": k, "v": v, "lengths_k": kept})()
            arrays = paged(self.rng, rows, int(page), spare=int(self.rng.integers(1, 5)))
        arrays["cu_seqlens_q"] = boundaries([len(x) for x in q])
        arrays = {name: place(array) for name, array in arrays.items()}
        o, lse = kernel(place(numpy.concatenate(q)), arrays.pop("k"), arrays.pop("v"), **arrays, **options)
        o, lse = self.fetch(o), self.fetch(lse)
        ends = int32(numpy.cumsum([0] + [len(x) for x in q]))
        return [(o[a:b], lse[:, a:b]) for a, b in zip(ends, ends[1:])]

    def canon(self):
        """The result of the request alone, dense, in one call."""
        return self.call("dense", None, [(0, 0, len(self.batch.q[0]))], num_splits=1)[0]

    def by_the_case(self):
        """The result of the request in the case's layout, between other requests."""
        case, rng = self.case, self.rng
        queries = len(self.batch.q[0])
        ends = [(0, queries)]
        if case.path != "whole":
            ends = [(begin, min(begin + case.path, queries)) for begin in range(0, queries, case.path)]
            if len(ends) > 4:
                ends = [ends[0], ends[1], ends[-2], ends[-1]]
        for begin, end in ends:
            pieces = [(b, 0, len(self.batch.q[b])) for b in range(1, case.batch)]
            if case.layout == "dense":  # all have as many queries and keys
                pieces = [(b, begin, end) for b, _, _ in pieces]
            place = int(rng.integers(0, len(pieces) + 1))
            pieces.insert(place, (0, begin, end))
            yield begin, end, self.call(case.layout, case.config(), pieces, int(rng.integers(0, 4)))[place]


def differences(case, rng, place, fetch):
    """Queries that the case's way gives other bits, and what differs; empty: none."""
    computed = Computed(case, rng, place, fetch)
    o, lse = computed.canon()
    wrong = []
    for begin, end, (own_o, own_lse) in computed.by_the_case():
        for name, own, wanted in (("o", own_o, o[begin:end]), ("lse", own_lse, lse[:, begin:end])):
            same = numpy.ascontiguousarray(own).view(numpy.uint8) == numpy.ascontiguousarray(wanted).view(numpy.uint8)
            if not same.all():
                wrong.append(f"{name} of queries {begin} to {end} by {numpy.nanmax(numpy.abs(own - wanted))}")
    return wrong
