"""Problems of operations other than attention: storing new keys and values in a paged cache, and merging partial
results."""

from dataclasses import dataclass

from .serving import bandwidth
from .serving_suites import PAGE

DTYPE_BYTES = {"bf16": 2, "fp32": 4}


@dataclass(frozen=True)
class _Operation:
    """suite, label, mode, panel, tick: as a Cell's. Times are in microseconds, and nothing is multiplied."""

    suite: str
    label: str

    @property
    def name(self):
        """suite/label, unique over all suites."""
        return f"{self.suite}/{self.label}"

    @property
    def unit(self):
        return "µs"

    def speed(self, us):
        return us

    def flops(self):
        return 0

    def floor_us(self):
        """Lower bound in microseconds: all bytes once at bandwidth()."""
        return 1e6 * self.bytes() / bandwidth()


@dataclass(frozen=True)
class Append(_Operation):
    """Rotates q and k of new tokens and stores k and v in pages, all bf16: the work between a layer's projections and
    its attention. q, k and v are slices of one projection (tokens, (heads_q + 2 heads_kv) * head_dim).

    groups: (count, new tokens, keys before them) for each run of equal requests.
    """

    groups: tuple
    heads_q: int
    heads_kv: int
    head_dim: int = 128
    page_size: int = PAGE
    mode: str = "replay"
    panel: str = ""
    tick: str = ""

    def __str__(self):
        groups = [f"{count} of {new} tokens behind {before}" for count, new, before in self.groups]
        return ", ".join([*groups, f"{self.heads_q}/{self.heads_kv} heads", f"head_dim {self.head_dim}",
                          f"pages of {self.page_size}"])

    @property
    def new_tokens(self):
        """New tokens of each request."""
        return tuple(new for count, new, _ in self.groups for _ in range(count))

    @property
    def seqlens_k(self):
        """Keys of each request, the new ones included."""
        return tuple(new + before for count, new, before in self.groups for _ in range(count))

    @property
    def tokens(self):
        return sum(self.new_tokens)

    def bytes(self):
        """Bytes read and written once: q, k and v both ways, and the table's rows."""
        return self.tokens * self.head_dim * (4 * (self.heads_q + 2 * self.heads_kv) + 4)


@dataclass(frozen=True)
class Merge(_Operation):
    """Merges `states` partial states into one, each o (tokens, heads, head_dim) of type `dtype`, and lse; the result is
    bf16. states_inside: rows of a token's states follow each other (tokens, states, heads, head_dim), else each state
    is dense by itself."""

    states: int
    tokens: int
    heads: int
    dtype: str = "bf16"
    states_inside: bool = False
    head_dim: int = 128
    mode: str = "replay"
    panel: str = ""
    tick: str = ""

    def __str__(self):
        return (f"{self.states} states in {self.dtype}{', token by token' * self.states_inside}, {self.tokens} tokens, "
                f"{self.heads} heads, head_dim {self.head_dim}")

    def bytes(self):
        """Bytes of all states with lse, and of the result."""
        rows = self.tokens * self.heads
        return rows * (self.states * (self.head_dim * DTYPE_BYTES[self.dtype] + 4) + self.head_dim * 2)


def _append():
    problems = (("b1-h64/8", [(1, 1, 8191)], 64, 8, "1 × 1\n64/8"),
                ("b64-h32/8", [(64, 1, 4095)], 32, 8, "64 × 1\n32/8"),
                ("b64-h64/8", [(64, 1, 4095)], 64, 8, "64 × 1\n64/8"),
                ("b256-h8/1", [(256, 1, 1023)], 8, 1, "256 × 1\n8/1"),
                ("1x2k-h32/8", [(1, 2048, 2048)], 32, 8, "1 × 2,048\n32/8"),
                ("1x2k-32x1-h64/8", [(1, 2048, 6144), (32, 1, 4095)], 64, 8, "2,048 and 32 × 1\n64/8"),
                ("16x512-h64/8", [(16, 512, 0)], 64, 8, "16 × 512\n64/8"))
    return [Append("append", label, tuple(groups), heads_q, heads_kv, tick=tick,
                   panel=f"rotation and store, head_dim 128, pages of {PAGE}: requests × new tokens, heads")
            for label, groups, heads_q, heads_kv, tick in problems]


def _merge():
    two = [Merge("merge", f"2x{tokens}", 2, tokens, 32, panel="2 states, bf16: tokens", tick=f"{tokens:,}")
           for tokens in (1, 64, 2048, 16384)]
    inside = [Merge("merge", f"{states}x{tokens}-by-token", states, tokens, 32, states_inside=True,
                    panel="states × tokens, bf16, by token", tick=f"{states} × {tokens}")
              for states, tokens in ((8, 256), (64, 64))]
    splits = [Merge("merge", f"{states}x{tokens}-fp32", states, tokens, 32, dtype="fp32",
                    panel="states × tokens, fp32", tick=f"{states} × {tokens}")
              for states, tokens in ((4, 64), (32, 64), (4, 2048))]
    return [*two, *inside, *splits]


OPERATION_SUITES = {"append": _append(), "merge": _merge()}
