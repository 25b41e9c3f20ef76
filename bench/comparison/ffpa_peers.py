"""FFPA: kernels in CuTe DSL for head dims from 257 to 512 on Hopper, forward and backward."""

from .by_autograd import ByAutograd, Forward
from .contender import Contender, Runner, Unsupported, import_failure, missing, package_version

NARROW = 256  # largest head dim that it delegates to PyTorch


class Ffpa(ByAutograd, Contender):
    name, label, color = "ffpa", "FFPA", "#b8860b"
    MASKS = ("none", "causal")

    def absent(self):
        return missing("ffpa_attn") or import_failure("ffpa_attn")

    def version(self):
        return package_version("ffpa-attn")

    def attend(self, cell):
        """A function of q, k and v (batch, seqlen, heads, head_dim). Raises Unsupported for delegated sizes."""
        from ffpa_attn import ffpa_attn_func

        if cell.mask not in self.MASKS or cell.score != "none":
            raise Unsupported(f"no {cell.mask} mask with score {cell.score}")
        if cell.head_dim <= NARROW:
            raise Unsupported(f"head dims up to {NARROW} are PyTorch's")
        options = dict(is_causal=cell.mask == "causal", enable_gqa=cell.heads_q != cell.heads_kv, backend="cutedsl")
        return lambda q, k, v: ffpa_attn_func(*(t.transpose(1, 2) for t in (q, k, v)), **options).transpose(1, 2)

    def make(self, cell, inputs):
        attend = self.attend(cell)
        return Runner(lambda: attend(inputs.q, inputs.k, inputs.v), detail=dict(call="ffpa_attn_func"))

    def forward_of(self, cell, inputs):
        if cell.deterministic:
            raise Unsupported("not measured")
        return Forward(self.attend(cell), detail=dict(call="ffpa_attn_func"))
