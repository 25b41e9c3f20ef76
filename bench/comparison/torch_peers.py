"""Peers that come with PyTorch: cuDNN and FlashAttention-2 (scaled_dot_product_attention), FlexAttention."""

import contextlib
import functools
import warnings

from .by_autograd import ByAutograd, Forward
from .contender import Contender, Runner, Unsupported, missing
from .flashinfer_peers import pages_of, planned_decode
from .fp8_peers import CuDnnFp8
from .sparse_suites import LEFT_WINDOWS
from .timing import made_beforehand


def torch_version():
    import torch

    return f"torch {torch.__version__}"


class _ScaledDotProductAttention(ByAutograd, Contender):
    backend = ""  # of torch.nn.attention.SDPBackend
    words = ""  # PyTorch's name for it in warnings

    def absent(self):
        return missing("torch")

    def version(self):
        return torch_version()

    def sdpa(self, cell, inputs, mask=None):
        """A Runner of scaled_dot_product_attention with only this backend; raises Unsupported with PyTorch's reason."""
        attend, (q, k, v) = self.attend(cell, mask), inputs.bhsd()
        call = lambda: attend(q, k, v)
        with self.alone():
            with self.reasons():
                call()
        return Runner(call, self.alone)

    def attend(self, cell, mask=None):
        """scaled_dot_product_attention of q, k and v (batch, heads, seqlen, head_dim); o as the cell's."""
        import torch.nn.functional as F

        options = dict(enable_gqa=cell.gqa_ratio > 1)
        if mask is not None:
            options["attn_mask"] = mask
        elif cell.mask == "causal":
            options["is_causal"] = True
        return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, **options).transpose(1, 2)

    def with_gradients(self, cell, mask=None):
        """A Forward of scaled_dot_product_attention with only this backend."""
        attend = self.attend(cell, mask)

        def call(q, k, v):
            with self.reasons():
                return attend(*(t.transpose(1, 2) for t in (q, k, v)))

        return Forward(call, self.alone)

    def alone(self):
        """A context that enables only this backend."""
        from torch.nn.attention import SDPBackend, sdpa_kernel

        return sdpa_kernel(getattr(SDPBackend, self.backend))

    @contextlib.contextmanager
    def reasons(self):
        """A context that converts problems without a backend to Unsupported, with PyTorch's reason."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                yield
            except RuntimeError as error:
                if not any(text in str(error) for text in ("No available kernel", "No viable backend")):
                    raise
                said = [str(warning.message) for warning in caught]
                why = next((text for text in said if self.words in text.lower() and "not used because" not in text),
                           "no kernel for this problem")
                raise Unsupported(why.split("(Triggered")[0].strip()) from None

    def refuse(self, cell, masks, scores=("none",)):
        if cell.mask not in masks:
            raise Unsupported(f"no {cell.mask} mask")
        if cell.score not in scores:
            raise Unsupported(f"no {cell.score}")


class CuDnn(CuDnnFp8, _ScaledDotProductAttention):
    name, label, color = "cudnn", "cuDNN", "#3d8a3d"
    backend, words = "CUDNN_ATTENTION", "cudnn"

    def version(self):
        import torch

        return f"{torch.backends.cudnn.version()} in {torch_version()}"

    def make_sparse(self, cell, inputs):
        return self.make(cell, inputs)

    def make(self, cell, inputs):
        self.refuse(cell, ("none", "causal"))
        if cell.mask == "causal" and cell.seqlen_q != cell.seqlen_kv:
            raise Unsupported("PyTorch aligns its causal mask top-left, this cell's is bottom-right")
        return self.sdpa(cell, inputs)

    def forward_of(self, cell, inputs):
        """Like make(), but also with a bias, passed as PyTorch's mask."""
        self.refuse(cell, ("none", "causal") if cell.score == "none" else ("none",), ("none", "bias"))
        return self.with_gradients(cell, None if inputs.bias is None else inputs.bias[None])

    def serve(self, requests, inputs):
        """Serves pages through FlashInfer's interface to cuDNN: PyTorch has none."""
        if requests.kv_sequences != "paged":
            return self.serve_densely(requests, inputs)
        if requests.max_seqlen_q > 1:
            raise Unsupported("over pages measured with one query a request only")
        reason = missing("flashinfer") or missing("cudnn")
        if reason:
            raise Unsupported(f"over pages it is called by FlashInfer: {reason}")
        pages = pages_of(requests, inputs)
        return Runner(planned_decode(requests, inputs, pages, table=True, backend="cudnn"),
                      detail=dict(call="BatchDecodeWithPagedKVCacheWrapper", plan="made beforehand"))


class FlashAttention2(_ScaledDotProductAttention):
    name, label, color = "fa2", "FlashAttention-2", "#6c6fc9"
    backend, words = "FLASH_ATTENTION", "flash"

    def make_sparse(self, cell, inputs):
        return self.make(cell, inputs)

    def make(self, cell, inputs):
        from torch.nn.attention.bias import causal_lower_right

        self.refuse(cell, ("none", "causal", *LEFT_WINDOWS, "document", "causal_document"))
        if cell.mask in ("none", "causal"):
            uneven = cell.mask == "causal" and cell.seqlen_q != cell.seqlen_kv
            return self.sdpa(cell, inputs, causal_lower_right(cell.seqlen_q, cell.seqlen_kv) if uneven else None)
        return self.packed(cell, inputs)

    def forward_of(self, cell, inputs):
        self.refuse(cell, ("none", "causal", "window", "document", "causal_document"))
        if cell.mask in ("none", "causal"):
            return self.with_gradients(cell)
        attend = self.attend_packed(cell, inputs)
        return Forward(lambda q, k, v: attend(*(t.flatten(0, 1) for t in (q, k, v))), self.alone,
                       dict(call="torch.nn.attention.varlen"))

    def serve(self, requests, inputs):
        if requests.kv_sequences != "varlen":
            return self.serve_densely(requests, inputs)
        from torch.nn.attention.varlen import varlen_attn

        window = (-1, 0) if requests.mask == "causal" else (-1, -1)

        def call():
            return varlen_attn(inputs.q, inputs.k, inputs.v, inputs.cu_seqlens_q, inputs.cu_seqlens_k,
                               requests.max_seqlen_q, requests.max_seqlen_k, window_size=window)

        return Runner(call, detail=dict(call="torch.nn.attention.varlen"))

    def packed(self, cell, inputs):
        """Computes packed sequences or documents."""
        attend, (q, k, v) = self.attend_packed(cell, inputs), inputs.packed()
        return Runner(lambda: attend(q, k, v), detail=dict(call="torch.nn.attention.varlen"))

    @staticmethod
    def attend_packed(cell, inputs):
        """A function of q, k and v (batch * seqlen, heads, head_dim); o as the cell's."""
        import torch
        from torch.nn.attention.varlen import varlen_attn

        if cell.mask in LEFT_WINDOWS:
            offsets = torch.arange(cell.batch + 1, device=inputs.q.device, dtype=torch.int32) * cell.seqlen_q
            longest, window = cell.seqlen_q, (cell.window, 0)
        else:
            offsets, longest = inputs.document_offsets, inputs.longest_document
            window = (-1, 0) if cell.mask == "causal_document" else (-1, -1)
        shape = (cell.batch, cell.seqlen_q, cell.heads_q, cell.head_dim_v)

        return lambda q, k, v: varlen_attn(q, k, v, offsets, offsets, longest, longest, window_size=window).view(shape)


class Flex(ByAutograd, Contender):
    """FlexAttention under torch.compile. create_block_mask runs beforehand, outside the times; `detail` has its
    time."""

    name, label, color = "flex", "FlexAttention", "#d09a2d"
    left_out = {suite: "compiling it takes longer than measuring the suite" for suite in
                ("forward", "causal", "latency", "backward", "backward-causal", "training-step", "deterministic")}

    def absent(self):
        return missing("torch") or missing("triton")

    def version(self):
        return torch_version()

    def make_sparse(self, cell, inputs):
        return self.make(cell, inputs)

    def make_tree(self, cell, inputs):
        return self.make(cell, inputs)

    def train_tree(self, cell, inputs):
        return self.train(cell, inputs)

    def make(self, cell, inputs):
        attend, detail = self.compiled(cell, inputs)
        q, k, v = inputs.bhsd()
        call = lambda: attend(q, k, v)
        call()
        return Runner(call, detail=detail)

    def forward_of(self, cell, inputs):
        from torch._functorch import config

        attend, detail = self.compiled(cell, inputs)
        # Buffers donated to a compiled backward pass would be missing when it runs again.
        keep = functools.partial(config.patch, donated_buffer=False)
        return Forward(lambda q, k, v: attend(*(t.transpose(1, 2) for t in (q, k, v))), keep, detail)

    def compiled(self, cell, inputs):
        """(a function of q, k and v (batch, heads, seqlen, head_dim), o as the cell's; a Runner's detail)."""
        import torch
        from torch.nn.attention.flex_attention import flex_attention

        score_mod = self.score_mod(cell, inputs)
        block_mask, detail = self.block_mask(cell, inputs) if cell.mask != "none" else (None, {})
        torch._dynamo.reset()  # each cell is a new program, exempt from the recompile limit
        compiled = torch.compile(flex_attention, dynamic=False)

        def attend(q, k, v):
            return compiled(q, k, v, score_mod=score_mod, block_mask=block_mask,
                            enable_gqa=cell.gqa_ratio > 1).transpose(1, 2)

        return attend, detail

    @staticmethod
    def score_mod(cell, inputs):
        """The score_mod of the cell's score, or None."""
        import torch

        slopes, bias, softcap = inputs.alibi_slopes, inputs.bias, cell.softcap
        shift = cell.seqlen_kv - cell.seqlen_q

        def capped(score, b, h, q, k):
            return softcap * torch.tanh(score / softcap)

        def alibi(score, b, h, q, k):
            return score - slopes[h] * (q + shift - k).abs()

        def biased(score, b, h, q, k):
            return score + bias[h, q, k]

        return dict(none=None, softcap=capped, alibi=alibi, bias=biased)[cell.score]

    @staticmethod
    def block_mask(cell, inputs):
        """(FlexAttention's block mask, a Runner's detail with its warm creation time in milliseconds)."""
        from torch.nn.attention.flex_attention import create_block_mask

        batch = None if inputs.document_ids is None else cell.batch
        heads = cell.heads_q if getattr(cell, "per_head", False) else None
        mask_mod = functools.partial(inputs.keep, cell)
        return made_beforehand(inputs.q.device, lambda: create_block_mask(
            mask_mod, batch, heads, cell.seqlen_q, cell.seqlen_kv, device=inputs.q.device))
