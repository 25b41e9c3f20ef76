"""Head dims above 256, as in Gemma 4's global layers: 32 query heads over 4 KV heads."""

from .cells import backward_of, cell

HEADS_Q, HEADS_KV = 32, 4


def _wide(suite, head_dim, seqlen, mask):
    return cell(suite, f"d{head_dim}-s{seqlen}" + "-causal" * (mask == "causal"), 1, seqlen, HEADS_Q, head_dim,
                heads_kv=HEADS_KV, mask=mask, panel=f"head_dim {head_dim}, 32/4 heads, by seqlen",
                tick=f"{seqlen}" + "\ncausal" * (mask == "causal"))


def _forward(suite):
    sizes = [(512, seqlen) for seqlen in (2048, 4096, 8192, 16384)] + [(320, 16384), (384, 16384)]
    return [_wide(suite, head_dim, seqlen, mask) for head_dim, seqlen in sizes for mask in ("none", "causal")]


def _backward(suite):
    return [backward_of(_wide(suite, head_dim, seqlen, mask), suite)
            for head_dim, seqlen in ((512, 4096), (512, 16384), (320, 16384)) for mask in ("none", "causal")]


WIDE_SUITES = {"wide": _forward("wide"), "backward-wide": _backward("backward-wide")}
