"""Problems of chosen keys by jit-attention."""

from .contender import Runner


class OursOfChosen:
    """The methods of a Contender for these problems."""

    def attend_to_latents(self, problem, inputs):
        import jit_attention as ja
        import torch

        kv = inputs.rows if inputs.packed is None else inputs.packed
        options = dict(kv_dtype=None if inputs.packed is None else "latent_656")
        counts = torch.full((1, 1), problem.chosen, dtype=torch.int32, device=inputs.q.device)
        return _called(lambda: ja.sparse.dsa(inputs.q, kv, inputs.lists, counts, **options))

    def score_index(self, problem, inputs):
        import jit_attention as ja
        import torch

        out = torch.empty(problem.tokens, problem.keys, device=inputs.q.device)
        return _called(lambda: ja.score_keys(inputs.q, inputs.k, inputs.weights, k_scale=inputs.k_scale, ends=inputs.ends,
                                             out=out))

    def choose_by_index(self, problem, inputs):
        import jit_attention as ja

        return _called(lambda: ja.sparse.choose_keys(inputs.q, inputs.k, inputs.weights, problem.chosen, k_scale=inputs.k_scale,
                                                     ends=inputs.ends)[0][:, 0])

    def attend_to_blocks(self, problem, inputs):
        import jit_attention as ja
        import torch

        k, v = inputs.pages.transpose(1, 2).split(problem.head_dim, -1)
        counts = torch.full((1, 1), problem.chosen, dtype=torch.int32, device=inputs.q.device)
        mask = ja.mask.causal()
        return _called(lambda: ja.sparse.block_top_k(
            inputs.q, k, v, inputs.lists, counts, block=problem.block, mask=mask, page_table=inputs.page_table,
            seqused_k=inputs.lengths, cu_seqlens_q=inputs.starts_q))


def _called(call):
    call()
    return Runner(call)
