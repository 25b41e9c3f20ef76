"""jit-attention, by its public Python functions: arrays of NumPy on an emulated device, tensors of PyTorch on a GPU."""

import jit_attention as ja
import numpy

from .interface import Library, NotOffered
from .placing import Placing
from .problem import Outcome, Problem

LENGTHS = ("cu_seqlens_q", "cu_seqlens_k", "seqused_q", "seqused_k", "page_table", "cache_leftpad")
SPAN = 64  # split_keys of calls whose bits must not depend on the batch


class Ours(Library):
    def __init__(self, placing: Placing):
        self.placing = placing

    def forward(self, problem):
        arrays = self.placed(problem)
        return self.fetched(problem, self.call(problem, arrays))

    def gradients(self, problem):
        arrays = self.placed(problem)
        o, lse = self.call(problem, arrays)
        return self.differentiated(problem, arrays, o, lse)

    def merge(self, outs, lses):
        o, lse = ja.merge([self.placing.place(x) for x in outs], [self.placing.place(x) for x in lses])
        return self.placing.fetch(o), self.placing.fetch(lse)

    def replayed(self, problem, other):
        arrays, changed = self.placed(problem), self.placed(other)
        result = self.placing.replay(lambda: self.call(problem, arrays), arrays, changed)
        return self.fetched(other, result)

    def queued(self, problems):
        arrays = [self.placed(problem) for problem in problems]
        results = [self.call(problem, own) for problem, own in zip(problems, arrays)]
        return [self.fetched(*one) for one in zip(problems, results)]

    def chained(self, problem, count):
        arrays = self.placed(problem)
        for _ in range(count):
            result = self.call(problem, arrays)
            arrays = arrays | dict(q=result[0])
        return self.fetched(problem, result)

    def on_streams(self, problems):
        arrays = [self.placed(problem) for problem in problems]
        calls = [lambda one=one, own=own: self.call(one, own) for one, own in zip(problems, arrays)]
        return [self.fetched(*one) for one in zip(problems, self.placing.on_streams(calls))]

    def quantized(self, problem):
        self.refuse_unless(dtype="fp8_e4m3", head_dim=problem.q.shape[-1])
        arrays = self.placed(problem)
        made = ja.quantize_qkv(arrays["q"], arrays["k"], arrays["v"], center_keys=True, center_values=True)
        return Outcome(
            o=self.placing.fetch(ja.attention(made.q, made.k, made.v, **made.scales, **self.pattern(problem)))
        )

    def refuse_unless(self, **spec):
        """Raises NotOffered where this GPU has no kernel of such a spec."""
        if refusals := ja.refusals(None, **spec):
            raise NotOffered(f"not on this GPU: {refusals[0].field} {refusals[0].rule}")

    def placed(self, problem: Problem):
        """The arrays of a problem where this computes, by name."""
        return {
            name: self.placing.place(value)
            for name, value in vars(problem).items()
            if isinstance(value, numpy.ndarray)
        }

    def pattern(self, problem):
        """The arguments that say mask and score."""
        mask, score = ja.mask.none(), ja.score.none()
        if problem.causal:
            mask = ja.mask.causal()
        if problem.window is not None:
            mask = mask & ja.mask.sliding_window(*problem.window)
        if problem.keep is not None:
            sizes = [f"({index} % {size})" if size > 1 else "0" for index, size in zip("bhqk", problem.keep.shape)]
            place = f"(({sizes[0]} * {problem.keep.shape[1]} + {sizes[1]}) * {problem.keep.shape[2]} + {sizes[2]})"
            body = f"return kept[(long long){place} * {problem.keep.shape[3]} + {sizes[3]}] != 0;"
            mask = mask & ja.mask.text(body, name="kept_pairs", tensors={"kept": "int32"})
        if problem.softcap:
            score = score.then(ja.score.softcap(problem.softcap))
        if problem.alibi_slopes is not None:
            score = score.then(ja.score.alibi())
        if problem.bias is not None:
            score = score.then(
                ja.score.bias({"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}[problem.bias.dtype.name])
            )
        return dict(mask=mask, score=score)

    def arguments(self, problem, arrays):
        """The arguments that forward and backward share."""
        tensors = {name: arrays[name] for name in ("alibi_slopes", "bias") if name in arrays}
        if "keep" in arrays:
            tensors["kept"] = self.placing.place(problem.keep.astype(numpy.int32))
        given = self.pattern(problem) | {name: arrays[name] for name in LENGTHS if name in arrays}
        if problem.dropout_p:
            state = self.placing.place(numpy.array(problem.rng_state, numpy.int64))
            given |= dict(dropout_p=problem.dropout_p, rng_state=state)
        if problem.blocks is not None:
            if given["mask"] != ja.mask.none():
                raise NotOffered("blocks beside another mask are no case here")
            given |= self.blocks(problem, arrays)
        if "sinks" in arrays:
            given["sinks"] = arrays["sinks"]
        return given | dict(tensors=tensors, softmax_scale=problem.softmax_scale, tuning="off")

    def blocks(self, problem, arrays):
        table, side = problem.blocks
        counts = table.sum(1, dtype=numpy.int32)
        indices = numpy.argsort(~table, axis=1, kind="stable").astype(numpy.int32)
        lists = [self.placing.place(x[None, None]) for x in (counts, indices)]
        seqlen_q, seqlen_k = problem.q.shape[1], problem.k.shape[1]
        made = ja.BlockMask.from_lists(*lists, block_size=(side, side), seqlen_q=seqlen_q, seqlen_k=seqlen_k)
        return dict(block_mask=made, mask=None)

    def call(self, problem, arrays):
        """(o, lse) of a placed problem."""
        more = {name: arrays[name] for name in ("k_descale", "v_descale") if name in arrays}
        if problem.head_dim_v is not None:
            sizes = dict(head_dim=problem.q.shape[-1], head_dim_v=problem.head_dim_v)
            self.refuse_unless(**sizes, values_in_keys=True)
            more["head_dim_v"] = problem.head_dim_v
        if problem.batch_invariant:
            more["split_keys"] = SPAN
        if problem.unwritten:
            more["out"] = self.placing.place(numpy.full_like(problem.q, numpy.nan))
        return ja.attention(
            arrays["q"],
            arrays["k"],
            arrays.get("v"),
            return_lse=True,
            num_splits=problem.num_splits,
            zero_padding=problem.zero_padding,
            **more,
            **self.arguments(problem, arrays),
        )

    def differentiated(self, problem, arrays, o, lse):
        wanted = {}
        if problem.d_bias:
            wanted["d_tensors"] = ["bias"]
        if problem.d_sinks:
            wanted["d_sinks"] = True
        got = ja.attention_backward(
            arrays["d_o"],
            arrays["q"],
            arrays["k"],
            arrays["v"],
            o,
            lse,
            **wanted,
            deterministic=problem.deterministic,
            **self.arguments(problem, arrays),
        )
        got, fetch = list(got), self.only(problem)
        found = self.fetched(problem, (o, lse))
        found.dq, found.dk, found.dv = (fetch(got.pop(0)) for _ in range(3))
        if problem.d_bias:
            found.d_bias = self.placing.fetch(got.pop(0)["bias"])
        if problem.d_sinks:
            found.d_sinks = self.placing.fetch(got.pop(0))
        return found

    def only(self, problem):
        """A function that fetches an array, where only some entries are compared only those."""
        return lambda array: self.placing.fetch(array, problem.only)

    def fetched(self, problem, result):
        o, lse = map(self.only(problem), result)
        return Outcome(o=o, lse=lse)
