"""jit-attention itself."""

from .contender import Contender, Runner, import_failure, missing


class JitAttention(Contender):
    name, label, color = "ours", "jit-attention", "#d6402b"

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

    def make(self, cell, inputs):
        import jit_attention as ja

        mask = {
            "none": None,
            "causal": ja.mask.causal(),
            "window": ja.mask.sliding_window(cell.window, 0),
            "prefix": ja.mask.causal() | ja.mask.prefix(cell.prefix),
            "document": ja.mask.document(),
            "causal_document": ja.mask.causal() & ja.mask.document(),
        }[cell.mask]
        score = {"none": None, "softcap": ja.score.softcap(cell.softcap), "alibi": ja.score.alibi()}[cell.score]
        tensors = {}
        if inputs.document_ids is not None:
            tensors.update(document_ids_q=inputs.document_ids, document_ids_kv=inputs.document_ids)
        if inputs.alibi_slopes is not None:
            tensors.update(alibi_slopes=inputs.alibi_slopes)
        tensors = tensors or None
        q, k, v, attention, tuning = inputs.q, inputs.k, inputs.v, ja.attention, self.tuning

        def call():
            return attention(q, k, v, mask=mask, score=score, tensors=tensors, tuning=tuning)

        call()
        spec = ja.AttentionSpec(dtype="bf16", head_dim=cell.head_dim, head_dim_v=cell.head_dim_v,
                                gqa_ratio=cell.gqa_ratio, mask=mask, score=score)
        kernel = ja.prepare(spec, q, k, v, tensors=tensors, tuning=tuning).kernel(q, k, v, tensors=tensors)
        detail = dict(config=dict(kernel.config), why=kernel.why, registers=kernel.registers,
                      spill_bytes=kernel.spill_bytes)
        return Runner(call, detail=detail)
