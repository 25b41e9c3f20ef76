"""Peers that come with PyTorch: cuDNN and FlashAttention-2 (scaled_dot_product_attention), FlexAttention."""

import functools
import warnings

from .contender import Contender, Runner, Unsupported, missing
from .flashinfer_peers import pages_of, planned_decode


def torch_version():
    import torch

    return f"torch {torch.__version__}"


class _ScaledDotProductAttention(Contender):
    backend = ""  # of torch.nn.attention.SDPBackend
    words = ""  # how PyTorch's warnings name it

    def absent(self):
        return missing("torch")

    def version(self):
        return torch_version()

    def sdpa(self, cell, inputs, mask=None):
        """A Runner of scaled_dot_product_attention with this backend alone; Unsupported with PyTorch's own reason."""
        import torch.nn.functional as F
        from torch.nn.attention import SDPBackend, sdpa_kernel

        q, k, v = inputs.bhsd()
        options = dict(enable_gqa=cell.gqa_ratio > 1)
        if mask is not None:
            options["attn_mask"] = mask
        elif cell.mask == "causal":
            options["is_causal"] = True

        def call():
            return F.scaled_dot_product_attention(q, k, v, **options).transpose(1, 2)

        context = functools.partial(sdpa_kernel, getattr(SDPBackend, self.backend))
        with warnings.catch_warnings(record=True) as caught, context():
            warnings.simplefilter("always")
            try:
                call()
            except RuntimeError as error:
                if not any(text in str(error) for text in ("No available kernel", "No viable backend")):
                    raise
                said = [str(warning.message) for warning in caught]
                why = next((text for text in said if self.words in text.lower() and "not used because" not in text),
                           "no kernel for this problem")
                raise Unsupported(why.split("(Triggered")[0].strip()) from None
        return Runner(call, context)

    def refuse(self, cell, masks, scores=("none",)):
        if cell.mask not in masks:
            raise Unsupported(f"no {cell.mask} mask")
        if cell.score not in scores:
            raise Unsupported(f"no {cell.score}")


class CuDnn(_ScaledDotProductAttention):
    name, label, color = "cudnn", "cuDNN", "#3d8a3d"
    backend, words = "CUDNN_ATTENTION", "cudnn"

    def version(self):
        import torch

        return f"{torch.backends.cudnn.version()} in {torch_version()}"

    def make(self, cell, inputs):
        self.refuse(cell, ("none", "causal"))
        if cell.mask == "causal" and cell.seqlen_q != cell.seqlen_kv:
            raise Unsupported("PyTorch aligns its causal mask top-left, this cell's is bottom-right")
        return self.sdpa(cell, inputs)

    def differentiate(self, cell, inputs):
        import torch.nn.functional as F
        from torch.nn.attention import SDPBackend, sdpa_kernel

        self.refuse(cell, ("none", "causal"))

        def forward(q, k, v):
            with sdpa_kernel(getattr(SDPBackend, self.backend)):
                return F.scaled_dot_product_attention(
                    *(t.transpose(1, 2) for t in (q, k, v)), is_causal=cell.mask == "causal",
                    enable_gqa=cell.gqa_ratio > 1).transpose(1, 2)

        return self.by_autograd(forward, inputs)

    def serve(self, requests, inputs):
        """Pages go by FlashInfer's interface to cuDNN: PyTorch has none."""
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

    def make(self, cell, inputs):
        from torch.nn.attention.bias import causal_lower_right

        self.refuse(cell, ("none", "causal", "window", "document", "causal_document"))
        if cell.mask in ("none", "causal"):
            uneven = cell.mask == "causal" and cell.seqlen_q != cell.seqlen_kv
            return self.sdpa(cell, inputs, causal_lower_right(cell.seqlen_q, cell.seqlen_kv) if uneven else None)
        return self.packed(cell, inputs)

    def serve(self, requests, inputs):
        if requests.kv_sequences != "ragged":
            return self.serve_densely(requests, inputs)
        from torch.nn.attention.varlen import varlen_attn

        window = (-1, 0) if requests.mask == "causal" else (-1, -1)

        def call():
            return varlen_attn(inputs.q, inputs.k, inputs.v, inputs.cu_seqlens_q, inputs.cu_seqlens_k,
                               requests.max_seqlen_q, requests.max_seqlen_k, window_size=window)

        return Runner(call, detail=dict(call="torch.nn.attention.varlen"))

    def packed(self, cell, inputs):
        """Sequences or documents laid end to end."""
        import torch
        from torch.nn.attention.varlen import varlen_attn

        q, k, v = inputs.packed()
        if cell.mask == "window":
            offsets = torch.arange(cell.batch + 1, device=q.device, dtype=torch.int32) * cell.seqlen_q
            longest, window = cell.seqlen_q, (cell.window, 0)
        else:
            offsets, longest = inputs.document_offsets, inputs.longest_document
            window = (-1, 0) if cell.mask == "causal_document" else (-1, -1)
        shape = (cell.batch, cell.seqlen_q, cell.heads_q, cell.head_dim_v)

        def call():
            return varlen_attn(q, k, v, offsets, offsets, longest, longest, window_size=window).view(shape)

        return Runner(call, detail=dict(call="torch.nn.attention.varlen"))


class Flex(Contender):
    """FlexAttention under torch.compile. The block mask is made by create_block_mask beforehand and is not timed."""

    name, label, color = "flex", "FlexAttention", "#d09a2d"
    left_out = {suite: "compiling it takes longer than measuring the suite" for suite in
                ("forward", "causal", "latency")}

    def absent(self):
        return missing("torch") or missing("triton")

    def version(self):
        return torch_version()

    def make(self, cell, inputs):
        import torch
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        block_mask = score_mod = None
        ids, slopes, softcap = inputs.document_ids, inputs.alibi_slopes, cell.softcap
        shift = cell.seqlen_kv - cell.seqlen_q
        if ids is not None:
            def mask_mod(b, h, q, k):
                return cell.keep(q, k, ids[b, q], ids[b, k])
        else:
            def mask_mod(b, h, q, k):
                return cell.keep(q, k)

        if cell.mask != "none":
            block_mask = create_block_mask(mask_mod, None if ids is None else cell.batch, None, cell.seqlen_q,
                                           cell.seqlen_kv, device=inputs.q.device)
        if cell.score == "softcap":
            def score_mod(score, b, h, q, k):
                return softcap * torch.tanh(score / softcap)
        elif cell.score == "alibi":
            def score_mod(score, b, h, q, k):
                return score - slopes[h] * (q + shift - k).abs()

        torch._dynamo.reset()  # each cell is a program of its own: not one of the few recompiles that are allowed
        compiled = torch.compile(flex_attention, dynamic=False)
        q, k, v = inputs.bhsd()

        def call():
            return compiled(q, k, v, score_mod=score_mod, block_mask=block_mask,
                            enable_gqa=cell.gqa_ratio > 1).transpose(1, 2)

        call()
        return Runner(call, detail=dict(block_mask="made beforehand") if block_mask is not None else {})
