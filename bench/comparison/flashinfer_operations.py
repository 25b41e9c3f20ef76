"""FlashInfer for append and merge: rotation and store, in two launches or one, and merging of states."""

from .contender import Runner, Unsupported
from .timing import fastest


class FlashInferOperations:
    """The methods of a Contender for these problems."""

    FUSED_HEADS = ((8, 1), (64, 8))  # supported by its one-launch kernel

    def append(self, problem, inputs):
        calls = dict(rope_then_append=Runner(self.two_launches(problem, inputs)))
        if (problem.heads_q, problem.heads_kv) in self.FUSED_HEADS and problem.head_dim == 128:
            calls["fused"] = Runner(self.one_launch(problem, inputs))
        name, runner, refused = fastest(calls)
        return Runner(runner.call, detail=dict(call=name, **(dict(refused=refused) if refused else {})))

    def two_launches(self, problem, inputs):
        """apply_rope_with_cos_sin_cache into new arrays, then append_paged_kv_cache."""
        import flashinfer
        import torch

        device, size = inputs.qkv.device, problem.page_size
        counts = [-(-length // size) for length in problem.seqlens_k]
        indices = torch.cat([row[:count] for row, count in zip(inputs.page_table, counts)])
        indptr = torch.tensor([0, *counts]).cumsum(0).to(device=device, dtype=torch.int32)
        last = torch.tensor([(length - 1) % size + 1 for length in problem.seqlens_k], device=device, dtype=torch.int32)
        places = inputs.positions.int()
        flat_q, flat_k = (t.flatten(1) for t in (inputs.q, inputs.k))

        def call():
            q, k = flashinfer.apply_rope_with_cos_sin_cache(inputs.positions, flat_q, flat_k, problem.head_dim,
                                                            inputs.cos_sin)
            flashinfer.append_paged_kv_cache(k.view(inputs.k.shape), inputs.v, inputs.batch_indices, places,
                                             (inputs.k_cache, inputs.v_cache), indices, indptr, last)
            return q.view(inputs.q.shape), inputs.k_cache, inputs.v_cache

        return call

    def one_launch(self, problem, inputs):
        """Its kernel for two numbers of heads."""
        from flashinfer.cake_fused_qk_rope_append import cake_fused_qk_rmsnorm_rope_append_paged_kv_cache

        def call():
            q = cake_fused_qk_rmsnorm_rope_append_paged_kv_cache(
                inputs.qkv, inputs.cos_sin, inputs.seqused_k, inputs.cu_seqlens_q, inputs.page_table, inputs.k_cache,
                inputs.v_cache, num_q_heads=problem.heads_q, num_kv_heads=problem.heads_kv,
                clear_unused_last_page_rows=False)
            return q, inputs.k_cache, inputs.v_cache

        return call

    def merge(self, problem, inputs):
        import flashinfer

        if problem.dtype != "bf16":
            raise Unsupported("measured with bf16 states, whose type it gives back")
        if problem.states == 2:
            one, two = zip(inputs.o, inputs.lse2)
            call = lambda: flashinfer.merge_state(*one, *two)[0]
        elif problem.states_inside:
            o, lse2 = (t.transpose(0, 1) for t in (inputs.o, inputs.lse2))
            call = lambda: flashinfer.merge_states(o, lse2)[0]
        else:
            raise Unsupported("more than two states only token by token")
        call()
        return Runner(call, detail=dict(call="merge_state" if problem.states == 2 else "merge_states"))
