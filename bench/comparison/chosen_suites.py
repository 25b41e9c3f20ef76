"""Problems of keys that were chosen for each query: latents, the scores that they are chosen by, and blocks of keys; and video's
blocks, which are a SparseCell's."""

from dataclasses import dataclass

from .sparse_suites import sparse_cell


@dataclass(frozen=True)
class _Chosen:
    """suite, label, mode, panel, tick: as a Cell's. Queries are the last `tokens` positions of a sequence of `keys`."""

    suite: str
    label: str
    tokens: int
    keys: int
    mode: str = "replay"
    panel: str = ""
    tick: str = ""

    @property
    def name(self):
        """suite/label, unique over all suites."""
        return f"{self.suite}/{self.label}"

    @property
    def unit(self):
        return "TFLOP/s"

    def speed(self, us):
        return self.flops() / us * 1e-6

    def floor_us(self):
        return None

    def seen(self):
        """Keys that all queries together see, causally."""
        return sum(range(self.keys - self.tokens + 1, self.keys + 1))


@dataclass(frozen=True)
class ChosenLatents(_Chosen):
    """Attention of each token to `chosen` random latents of 576 columns, of which 512 are values (DeepSeek V3.2).

    packed: latents are rows of 656 bytes, e4m3 with a scale for 128 columns, in pages of 64.
    """

    heads: int = 128
    chosen: int = 2048
    packed: bool = False
    HEAD_DIM, HEAD_DIM_V = 576, 512

    def __str__(self):
        return (f"{self.tokens} tokens, {self.heads} heads, {self.chosen} of {self.keys} latents of "
                f"{'656 bytes' if self.packed else 'bf16'}")

    def flops(self):
        return 2 * self.tokens * self.chosen * self.heads * (self.HEAD_DIM + self.HEAD_DIM_V)

    def bytes(self):
        """Of q and o, and of each chosen row once a token."""
        row = 656 if self.packed else 2 * self.HEAD_DIM
        return self.tokens * (2 * self.heads * (self.HEAD_DIM + self.HEAD_DIM_V) + self.chosen * row)


@dataclass(frozen=True)
class IndexKeys(_Chosen):
    """Scores of all keys that a token sees: Σ over heads of weight · relu(q · k), times the key's scale; q and k e4m3."""

    heads: int = 64
    head_dim: int = 128

    def __str__(self):
        return f"scores of {self.tokens} tokens by {self.keys} keys, {self.heads} heads"

    def flops(self):
        return 2 * self.seen() * self.heads * self.head_dim

    def bytes(self):
        return self.tokens * self.heads * (self.head_dim + 4) + self.keys * (self.head_dim + 4) + 4 * self.seen()


@dataclass(frozen=True)
class ChosenKeys(IndexKeys):
    """The same, and of each token's scores the `chosen` largest ones: their keys, in any order."""

    chosen: int = 2048

    def __str__(self):
        return f"{super().__str__()}, {self.chosen} chosen"

    def bytes(self):
        """Of what must be read and written: no scores."""
        return super().bytes() - 4 * self.seen() + 4 * self.tokens * self.chosen


@dataclass(frozen=True)
class ChosenBlocks(_Chosen):
    """Attention of each token, causally, to `chosen` random blocks of keys, its own among them, for each KV head (MiniMax M3;
    with blocks of 64 NSA). Keys lie in pages of a block, and fit e4m3 without rounding."""

    heads_q: int = 64
    heads_kv: int = 4
    head_dim: int = 128
    block: int = 128
    chosen: int = 16

    def __post_init__(self):
        if self.keys % self.block or (self.keys - self.tokens) // self.block + 1 < self.chosen:
            raise ValueError(f"{self.name}: {self.keys} keys behind {self.keys - self.tokens} others are no {self.chosen} whole "
                             f"blocks of {self.block} for each token")

    def __str__(self):
        return (f"{self.tokens} tokens, {self.heads_q}/{self.heads_kv} heads, {self.chosen} blocks of {self.block} of "
                f"{self.keys} keys")

    def flops(self):
        own = sum(position % self.block + 1 for position in range(self.keys - self.tokens, self.keys))
        return 4 * (self.tokens * (self.chosen - 1) * self.block + own) * self.heads_q * self.head_dim

    def bytes(self):
        """Of q and o, and of all keys and values once."""
        return 4 * self.head_dim * (self.tokens * self.heads_q + self.keys * self.heads_kv)


def _dsa():
    panel = "latents, 2,048 chosen of 131,072: tokens, heads"
    prefill = [ChosenLatents("dsa", f"prefill-h{heads}", 4096, 131072, heads=heads, panel=panel, tick=f"4,096\n{heads}")
               for heads in (128, 64, 16, 8)]
    decode = [ChosenLatents("dsa", f"decode-fp8-h{heads}", tokens, 131072, heads=heads, packed=True,
                            panel="rows of 656 bytes: tokens, heads", tick=f"{tokens}\n{heads}")
              for tokens, heads in ((256, 128), (64, 16), (64, 8))]
    index = [IndexKeys("dsa", f"indexer-{keys // 1024}k", 4096, keys, panel="indexer, 64 heads, 4,096 tokens: keys",
                       tick=f"{keys:,}") for keys in (16384, 65536, 131072)]
    choices = [ChosenKeys("dsa", f"indexer-top-k-{keys // 1024}k", 4096, keys, tick=f"{keys:,}",
                          panel="indexer and 2,048 largest scores, 64 heads, 4,096 tokens: keys") for keys in (65536, 131072)]
    return [*prefill, *decode, *index, *choices]


def _block_top_k():
    return [ChosenBlocks("block-topk", "prefill-64k", 8192, 65536, panel="64/4 heads, 16 blocks of 128: tokens, keys",
                         tick="8,192\n65,536"),
            ChosenBlocks("block-topk", "prefill-180k", 8192, 180224, panel="64/4 heads, 16 blocks of 128: tokens, keys",
                         tick="8,192\n180,224"),
            ChosenBlocks("block-topk", "decode-100k", 16, 102400, panel="64/4 heads, 16 blocks of 128: tokens, keys",
                         tick="16\n102,400"),
            ChosenBlocks("block-topk", "nsa-32k", 31744, 32768, block=64, panel="64/4 heads, 16 blocks of 64: tokens, keys",
                         tick="31,744\n32,768")]


def _video():
    return [sparse_cell("video-sparse", f"{blocks * 64}x{heads}", 1, blocks * 64, heads, 128, mask="blocks", block=64,
                        random_blocks=64, per_head=True, panel="head_dim 128, 64 blocks of 64 keys a block: tokens, heads",
                        tick=f"{blocks * 64:,}\n{heads}") for blocks, heads in ((512, 16), (1713, 7))]


CHOSEN_SUITES = {"dsa": _dsa(), "block-topk": _block_top_k(), "video-sparse": _video()}
