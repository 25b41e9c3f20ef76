"""jit-attention itself."""

from .by_autograd import ByAutograd, Forward
from .contender import Contender, Runner, Unsupported, import_failure, missing
from .fp8_suites import COARSER, Fp8Cell, as_fp8
from .group_ours import OursOverRanks
from .ours_chosen import OursOfChosen
from .ours_sparse import block_mask, text_mask
from .serving import Requests
from .sparse_suites import SparseCell
from .stored_keys import KINDS


class JitAttention(OursOverRanks, OursOfChosen, ByAutograd, Contender):
    name, label, color = "ours", "jit-attention", "#d6402b"
    kv_dtypes = ("bf16", "fp8_e4m3", *KINDS)
    reads_values_in_keys = True
    interpolated_exponentials = False

    def __init__(self, tuning="first_run"):
        self.tuning = tuning

    def absent(self):
        reason = missing("jit_attention")
        if reason:
            return f"{reason}; a build folder's python/ in PYTHONPATH will do"
        return import_failure("jit_attention")

    def version(self):
        import jit_attention

        return jit_attention.__version__

    def differentiate(self, cell, inputs):
        import jit_attention as ja
        import torch

        problem = self.problem(cell, inputs)
        qkvd, qkv_shapes = [inputs.q, inputs.k, inputs.v, inputs.d_o], [t.shape for t in (inputs.q, inputs.k, inputs.v)]
        q, k, v, d_o = (t.flatten(0, 1) for t in qkvd) if cell.packed else qkvd
        o, lse = ja.attention(q, k, v, return_lse=True, tuning=self.tuning, **problem)
        results = {name: torch.full_like(t, torch.nan) for name, t in zip(("dq", "dk", "dv"), (q, k, v))}
        gradients = tuple(t.view(shape) for t, shape in zip(results.values(), qkv_shapes))

        def call():
            ja.attention_backward(d_o, q, k, v, o, lse, deterministic=cell.deterministic, tuning=self.tuning, **problem,
                                  **results)
            return gradients

        return Runner(call)

    def forward_of(self, cell, inputs):
        """A Forward for training steps, by autograd through the library's operator."""
        import jit_attention.torch as ja

        problem = self.problem(cell, inputs)

        def call(q, k, v):
            if cell.packed:
                q, k, v = (t.flatten(0, 1) for t in (q, k, v))
            return ja.attention(q, k, v, tuning=self.tuning, **problem).view(cell.output_shape())

        return Forward(call)

    def problem(self, cell, inputs):
        """A BackwardCell's arguments by name: mask, score and tensors, or packed sequences with lengths."""
        import jit_attention as ja

        if cell.packed:
            return dict(mask=ja.mask.causal() if cell.mask == "causal_document" else None,
                        cu_seqlens_q=inputs.document_offsets, cu_seqlens_k=inputs.document_offsets)
        return dict(zip(("mask", "score", "tensors"), self.functors(cell, inputs)))

    def functors(self, cell, inputs):
        """(mask, score, tensors) of a cell."""
        import jit_attention as ja

        mask = {
            "none": None,
            "causal": ja.mask.causal(),
            "window": ja.mask.sliding_window(cell.window, 0),
            "prefix": ja.mask.causal() | ja.mask.prefix(cell.prefix),
            "causal_window": ja.mask.causal() & ja.mask.sliding_window(cell.window, cell.window),
            "document": ja.mask.document(),
            "causal_document": ja.mask.causal() & ja.mask.document(),
            "tree": ja.mask.tree(),
        }[cell.mask]
        score = {"none": None, "softcap": ja.score.softcap(cell.softcap), "alibi": ja.score.alibi(),
                 "bias": ja.score.bias("bf16")}[cell.score]
        tensors = {}
        if cell.mask == "tree":
            import torch

            tensors.update(tree_ends=torch.tensor([cell.ends()], dtype=torch.int32, device=inputs.q.device))
        if inputs.document_ids is not None:
            tensors.update(document_ids_q=inputs.document_ids, document_ids_kv=inputs.document_ids)
        if inputs.alibi_slopes is not None:
            tensors.update(alibi_slopes=inputs.alibi_slopes)
        if inputs.bias is not None:
            tensors.update(bias=inputs.bias[None])
        return mask, score, tensors or None

    def make(self, cell, inputs):
        return self.attend(cell, inputs, *self.functors(cell, inputs))

    def make_fp8(self, cell, inputs):
        import jit_attention as ja

        q, k, v = as_fp8(inputs)
        mask, score, tensors = self.functors(cell, inputs)

        def call():
            return ja.attention(q, k, v, mask=mask, score=score, tensors=tensors, tuning=self.tuning,
                                interpolated_exponentials=self.interpolated_exponentials)

        call()
        spec = ja.AttentionSpec(dtype="fp8_e4m3", head_dim=cell.head_dim, head_dim_v=cell.head_dim_v,
                                gqa_ratio=cell.gqa_ratio, mask=mask, score=score,
                                interpolated_exponentials=self.interpolated_exponentials)
        kernel = ja.prepare(spec, q, k, v, tensors=tensors, tuning=self.tuning).kernel(q, k, v, tensors=tensors)
        detail = dict(config=dict(kernel.config), why=kernel.why, registers=kernel.registers,
                      spill_bytes=kernel.spill_bytes)
        return Runner(call, detail=detail, coarser=COARSER)

    def make_tree(self, cell, inputs):
        return self.make(cell, inputs)

    def train_tree(self, cell, inputs):
        return self.train(cell, inputs)

    def make_sparse(self, cell, inputs):
        """A Runner with the mask as text, and with a block mask unless bounds of q and k determine the visible tiles.
        """
        return self.by_text(cell, inputs) if cell.bounds_tell else self.by_block_mask(cell, inputs)

    def by_text(self, cell, inputs):
        mask, tensors = text_mask(cell, inputs)
        return self.attend(cell, inputs, mask, None, tensors, dict(mask="text"))

    def by_block_mask(self, cell, inputs, scores=None):
        made, detail = block_mask(cell, inputs, scores)
        return self.attend(cell, inputs, made.mask, None, dict(made.tensors), detail)

    def attend(self, cell, inputs, mask, score, tensors, known=None):
        """A Runner of attention with these functors; `known` is added to its detail."""
        import jit_attention as ja

        q, k, v, attention, tuning = inputs.q, inputs.k, inputs.v, ja.attention, self.tuning

        def call():
            return attention(q, k, v, mask=mask, score=score, tensors=tensors, tuning=tuning)

        call()
        spec = ja.AttentionSpec(dtype="bf16", head_dim=cell.head_dim, head_dim_v=cell.head_dim_v,
                                gqa_ratio=cell.gqa_ratio, mask=mask, score=score)
        kernel = ja.prepare(spec, q, k, v, tensors=tensors, tuning=tuning).kernel(q, k, v, tensors=tensors)
        detail = dict(config=dict(kernel.config), why=kernel.why, registers=kernel.registers,
                      spill_bytes=kernel.spill_bytes, **(known or {}))
        return Runner(call, detail=detail)

    def serve(self, requests, inputs):
        call = self.one_call(requests, inputs)
        call()
        return Runner(lambda: call().view(requests.output_shape()))

    def append(self, problem, inputs):
        import jit_attention as ja
        import torch

        rotated, append = torch.empty_like(inputs.q, memory_format=torch.contiguous_format), ja.append
        arrays = dict(slot_mapping=inputs.slots, q=inputs.q, q_out=rotated, cos_sin=inputs.cos_sin,
                      positions=inputs.positions)

        def call():
            append(inputs.k, inputs.v, inputs.k_cache, inputs.v_cache, **arrays)
            return rotated, inputs.k_cache, inputs.v_cache

        call()
        return Runner(call)

    def merge(self, problem, inputs):
        import jit_attention as ja
        import torch

        shape = problem.tokens, problem.heads, problem.head_dim
        out = torch.empty(shape, dtype=torch.bfloat16, device=inputs.o.device)
        out_lse = torch.empty(shape[1::-1], dtype=torch.float32, device=inputs.o.device)
        lse, merge = inputs.lse.transpose(1, 2), ja.merge
        call = lambda: merge(inputs.o, lse, out=out, out_lse=out_lse)[0]
        call()
        return Runner(call)

    def one_call(self, requests, inputs, out=None):
        """A function that computes all requests in one call, into `out` if given, and returns o in q's shape."""
        import jit_attention as ja

        q, k, v, attention = inputs.shaped_q(requests), inputs.k, inputs.v, ja.attention
        options = dict(mask=ja.mask.causal() if requests.mask == "causal" else None, tuning=self.tuning)
        if out is not None:
            options["out"] = out.view(*q.shape[:-1], requests.head_dim_v)
        if requests.q_sequences == "varlen":
            options["cu_seqlens_q"] = inputs.cu_seqlens_q
        if requests.kv_sequences == "varlen":
            options["cu_seqlens_k"] = inputs.cu_seqlens_k
        elif requests.kv_sequences == "paged":
            options.update(seqused_k=inputs.seqused_k, page_table=inputs.page_table)
        options.update(inputs.scales())
        if requests.values_in_keys:
            v, options["head_dim_v"] = None, requests.head_dim_v
        return lambda: attention(q, k, v, **options)


class TwoCalls(JitAttention):
    """jit-attention with separate calls for the prefill and decode of a mixed batch: the baseline of a single call."""

    name, label, color = "ours_two_calls", "jit-attention, two calls", "#eda08f"

    def preparing(self, problem):
        """serve() for batches with both prefill and decode; otherwise there is one call anyway."""
        return self.serve if isinstance(problem, Requests) and 0 < problem.prefills < problem.batch else None

    def serve(self, requests, inputs):
        import torch

        split, end = requests.prefills, requests.batch
        out = torch.empty(requests.output_shape(), dtype=inputs.q.dtype, device=inputs.q.device)
        row = sum(requests.seqlens_q[:split])
        calls = [self.one_call(requests.part(*part), inputs.part(requests, *part), out=rows)
                 for part, rows in (((0, split), out[:row]), ((split, end), out[row:]))]

        def call():
            for one in calls:
                one()
            return out

        call()
        return Runner(call)


class Bf16Cache(JitAttention):
    """jit-attention with the same keys and values in bf16: the baseline of an fp8 cache."""

    name, label, color = "ours_bf16_cache", "jit-attention, bf16 cache", "#f0b48f"

    def preparing(self, problem):
        return self.serve if getattr(problem, "kv_dtype", "bf16") != "bf16" else None

    def one_call(self, requests, inputs, out=None):
        return super().one_call(requests, inputs.upcast(), out)


class InterpolatedExponentials(JitAttention):
    """jit-attention with half of FP8's exponentials interpolated."""

    name, label, color = "ours_interpolated", "jit-attention, interpolated exponentials", "#7a4a3a"
    interpolated_exponentials = True

    def with_lse(self, cell, inputs):
        raise Unsupported("only FP8 calls without LSE interpolate")

    def preparing(self, problem):
        return self.make_fp8 if isinstance(problem, Fp8Cell) else None


class BuiltIn(JitAttention):
    """jit-attention with built-in masks where `ours` has equivalent texts."""

    name, label, color = "ours_built_in", "jit-attention, built in", "#8f1d10"

    def preparing(self, problem):
        return self.make if isinstance(problem, SparseCell) and problem.has_built_in else None


class BlockMasks(JitAttention):
    """jit-attention with a precomputed block mask where `ours` has only the text."""

    name, label, color = "ours_block_mask", "jit-attention, block mask", "#f2c3bb"

    def preparing(self, problem):
        return self.by_block_mask if isinstance(problem, SparseCell) and problem.bounds_tell else None


class MaskBits(JitAttention):
    """jit-attention with a precomputed block mask that stores partial blocks' mask bits, where `ours` has only the
    text."""

    name, label, color = "ours_known_scores", "jit-attention, mask bits", "#e58a7b"

    def preparing(self, problem):
        return self.by_mask_bits if isinstance(problem, SparseCell) and problem.bounds_tell else None

    def by_mask_bits(self, cell, inputs):
        return self.by_block_mask(cell, inputs, scores=True)
