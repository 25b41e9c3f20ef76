"""All measured problems, in named suites."""

from .backward_suites import BACKWARD_SUITES
from .cells import cell
from .chosen_suites import CHOSEN_SUITES
from .engine_suites import ENGINE_SUITES
from .fp8_suites import FP8_SUITES
from .grid import grid
from .group_suites import GROUP_SUITES
from .operations import OPERATION_SUITES
from .serving_suites import SERVING_SUITES
from .sparse_suites import SPARSE_SUITES
from .tree_suites import TREE_SUITES
from .wide_suites import WIDE_SUITES


def _masks():
    problems = (("causal", "causal", "none"), ("window1024", "window", "none"), ("document", "document", "none"),
                ("causal-document", "causal_document", "none"), ("prefix1024", "prefix", "none"),
                ("softcap", "none", "softcap"), ("causal-softcap", "causal", "softcap"),
                ("causal-alibi", "causal", "alibi"))
    return [cell("masks", label, 4, 8192, 16, 128, mask=mask, score=score,
                 panel="batch 4, 16 heads, 8192 × 8192, head_dim 128", tick=label.replace("-", "\n"))
            for label, mask, score in problems]


def _gqa():
    heads = ((16, 16), (16, 8), (24, 8), (32, 8), (40, 8), (28, 4), (64, 8), (32, 1))
    panel = "causal, batch 2, 4096 × 4096, head_dim 128, by heads_q/heads_kv"
    return [cell("gqa", f"ratio{q // kv}-h{q}/{kv}", 2, 4096, q, 128, heads_kv=kv, mask="causal", panel=panel,
                 tick=f"{q}/{kv}") for q, kv in heads]


def _odd_shapes():
    dims = [cell("odd-shapes", f"d{head_dim}", 4, 4096, 16, head_dim, panel="head dims (batch 4, 16 heads, 4096)",
                 tick=str(head_dim)) for head_dim in (40, 72, 80, 96, 112, 160, 192)]
    dims.append(cell("odd-shapes", "d192-dv128-causal", 4, 4096, 16, 192, head_dim_v=128, mask="causal",
                     panel="head dims (batch 4, 16 heads, 4096)", tick="192/128\ncausal"))
    panel = "lengths (16 heads, head_dim 128)"
    return dims + [
        cell("odd-shapes", "s1000-causal", 16, 1000, 16, 128, mask="causal", panel=panel, tick="1000\ncausal"),
        cell("odd-shapes", "s4097", 4, 4097, 16, 128, panel=panel, tick="4097"),
        cell("odd-shapes", "s4097-causal", 4, 4097, 16, 128, mask="causal", panel=panel, tick="4097\ncausal"),
        cell("odd-shapes", "s1024x8192-causal", 4, 1024, 16, 128, seqlen_kv=8192, mask="causal", panel=panel,
             tick="1024 × 8192\ncausal"),
        cell("odd-shapes", "s4097x1000", 4, 4097, 16, 128, seqlen_kv=1000, panel=panel, tick="4097 × 1000"),
        cell("odd-shapes", "s333x7777", 16, 333, 16, 128, seqlen_kv=7777, panel=panel, tick="333 × 7777"),
    ]


def _latency():
    return [cell("latency", f"s{seqlen}-{mode}", 1, seqlen, 8, 128, mode=mode,
                 panel=f"{mode}: batch 1, 8 heads, head_dim 128, by seqlen", tick=str(seqlen))
            for mode in ("eager", "graph") for seqlen in (16, 64, 128, 256, 512)]


SUITES = {
    "forward": grid("forward", "none"),
    "causal": grid("causal", "causal"),
    "masks": _masks(),
    "gqa": _gqa(),
    "odd-shapes": _odd_shapes(),
    "latency": _latency(),
    **FP8_SUITES,
    **SPARSE_SUITES,
    **CHOSEN_SUITES,
    **TREE_SUITES,
    **WIDE_SUITES,
    **BACKWARD_SUITES,
    **SERVING_SUITES,
    **ENGINE_SUITES,
    **OPERATION_SUITES,
    **GROUP_SUITES,
}
CELLS = {one.name: one for cells in SUITES.values() for one in cells}
