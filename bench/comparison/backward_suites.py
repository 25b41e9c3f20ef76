"""Training suites: gradients, alone and after their forward pass."""

from .cells import TrainingCell, backward_of
from .grid import HEAD_DIMS, TOKENS, grid, sized

FEWER_SEQLENS = (512, 2048, 8192)
DETERMINISTIC = "-deterministic"  # name suffix of cells where two calls must be bitwise identical


def _backward(suite, mask):
    return [backward_of(one, suite) for one in grid(suite, mask)]


def _training_step():
    suite = "training-step"
    return [backward_of(one, suite, TrainingCell, label=f"{one.label}{ending}", panel=f"head_dim {one.head_dim}{words}")
            for mask, ending, words in (("none", "", ""), ("causal", "-causal", ", causal"))
            for one in grid(suite, mask, FEWER_SEQLENS)]


def _deterministic():
    """Each problem with sums in any order, then with deterministic sums."""
    suite = "deterministic"
    return [backward_of(one, suite, deterministic=equal, label=one.label + DETERMINISTIC * equal,
                        panel=f"causal, head_dim {one.head_dim}: any order, equal bits",
                        tick=f"{one.tick}\n{'equal' if equal else 'any'}")
            for one in grid(suite, "causal", FEWER_SEQLENS) for equal in (False, True)]


def _masks():
    suite = "backward-masks"
    problems = (("causal", "causal", "none"), ("window1024", "window", "none"), ("document", "document", "none"),
                ("causal-document", "causal_document", "none"), ("prefix1024", "prefix", "none"),
                ("softcap", "none", "softcap"), ("causal-softcap", "causal", "softcap"),
                ("causal-alibi", "causal", "alibi"), ("bias", "none", "bias"))
    return [backward_of(sized(suite, label, 128, 8192, mask=mask, score=score, tick=label.replace("-", "\n"),
                              panel="batch 2, 16 heads, 8192 × 8192, head_dim 128"), suite)
            for label, mask, score in problems]


def _gqa():
    suite = "backward-gqa"
    cells = []
    for head_dim in HEAD_DIMS:
        for seqlen in (2048, 8192):
            for ratio in (4, 8):
                one = sized(suite, f"d{head_dim}-s{seqlen}-ratio{ratio}", head_dim, seqlen, mask="causal",
                            panel=f"causal, head_dim {head_dim}, by seqlen and heads")
                kv = one.heads_q // ratio
                cells.append(backward_of(one, suite, heads_kv=kv, tick=f"{seqlen}\n{one.heads_q}/{kv}"))
    return cells


def _varlen():
    """A batch of packed sequences with skewed lengths, few or many."""
    suite = "backward-varlen"
    return [backward_of(sized(suite, f"d{head_dim}-{count}of{TOKENS}", head_dim, TOKENS, mask="causal_document",
                              documents=count, panel=f"head_dim {head_dim}: packed sequences", tick=str(count)),
                        suite, packed=True) for head_dim in HEAD_DIMS for count in (4, 16, 64)]


def _deterministic_varlen():
    """The varlen cells with sums in any order, then with deterministic sums."""
    suite = "deterministic-varlen"
    return [backward_of(one, suite, deterministic=equal, label=one.label + DETERMINISTIC * equal,
                        panel=f"{one.panel}: any order, equal bits", tick=f"{one.tick}\n{'equal' if equal else 'any'}")
            for one in _varlen() for equal in (False, True)]


BACKWARD_SUITES = {
    "backward": _backward("backward", "none"),
    "backward-causal": _backward("backward-causal", "causal"),
    "training-step": _training_step(),
    "deterministic": _deterministic(),
    "backward-masks": _masks(),
    "backward-gqa": _gqa(),
    "backward-varlen": _varlen(),
    "deterministic-varlen": _deterministic_varlen(),
}
