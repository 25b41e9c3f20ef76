"""Blocks alone by FlashInfer: BlockSparseAttentionWrapper, which takes one matrix of blocks for all heads, and
VariableBlockSparseAttentionWrapper, which takes one for each KV head. Neither supports a batch."""

from .contender import Runner, Unsupported
from .timing import fastest, made_beforehand

BACKENDS = ("fa2", "fa3")
BACKENDS_BY_HEAD = ("fa2", "fa3", "cake")


def of_blocks(cell, inputs, workspace):
    """A Runner of the fastest FlashInfer method for a SparseCell of blocks. workspace: a function of a device."""
    calls = {f"VariableBlockSparseAttentionWrapper {backend}": by_head(cell, inputs, workspace, backend)
             for backend in BACKENDS_BY_HEAD}
    if not cell.per_head:
        calls.update({f"BlockSparseAttentionWrapper {backend}": end_to_end(cell, inputs, workspace, backend)
                      for backend in BACKENDS})
    best, runner, refused = fastest(calls)
    return Runner(runner.call, detail=dict(call=best, **runner.detail, **(dict(refused=refused) if refused else {})))


def planned(inputs, plan):
    """A Runner that calls plan(), which returns its call, in its first call, so that fastest() handles plan()'s
    exceptions."""

    def call():
        runner.call, runner.detail = made_beforehand(inputs.q.device, plan)
        return runner.call()

    runner = Runner(call)
    return runner


def end_to_end(cell, inputs, workspace, backend):
    """The packed batch as one block-sparse (BSR) matrix with its blocks on the diagonal."""
    import torch

    def plan():
        import flashinfer

        _, rows, columns = inputs.blocks.shape
        device, many = inputs.q.device, torch.arange(cell.batch, device=inputs.q.device)
        indices = (inputs.blocks[0].nonzero()[:, 1] + columns * many[:, None]).flatten().int()
        counts = inputs.blocks[0].sum(-1).repeat(cell.batch)
        indptr = torch.cat([torch.zeros(1, dtype=counts.dtype, device=device), counts.cumsum(0)]).int()
        wrapper = flashinfer.BlockSparseAttentionWrapper(workspace(device), backend=backend)
        wrapper.plan(indptr, indices, cell.batch * cell.seqlen_q, cell.batch * cell.seqlen_kv, cell.block, cell.block,
                     cell.heads_q, cell.heads_kv, cell.head_dim, q_data_type=inputs.q.dtype,
                     kv_data_type=inputs.q.dtype, o_data_type=inputs.q.dtype)
        q, k, v = inputs.packed()
        return lambda: wrapper.run(q, k, v).view(cell.output_shape())

    return planned(inputs, plan)


def by_head(cell, inputs, workspace, backend):
    """The heads of all batch entries as separate heads. q, k and v are converted to (heads, seqlen, head_dim)
    beforehand."""
    import torch

    def plan():
        import flashinfer

        if cell.gqa_ratio > 1 and cell.per_head:
            raise Unsupported("query heads of one KV head share their blocks")
        heads, (_, rows, columns) = cell.batch * cell.heads_kv, inputs.blocks.shape
        blocks = inputs.blocks.expand(cell.heads_kv, -1, -1).repeat(cell.batch, 1, 1)
        sizes = [torch.full((heads, count), cell.block, dtype=torch.int32, device=inputs.q.device)
                 for count in (rows, columns)]
        wrapper = flashinfer.VariableBlockSparseAttentionWrapper(workspace(inputs.q.device), backend=backend)
        wrapper.plan(blocks, *sizes, cell.batch * cell.heads_q, heads, cell.head_dim, q_data_type=inputs.q.dtype,
                     kv_data_type=inputs.q.dtype)
        q, k, v = (t.flatten(0, 1).contiguous() for t in inputs.bhsd())
        shape = (cell.batch, cell.heads_q, cell.seqlen_q, cell.head_dim_v)
        return lambda: wrapper.run(q, k, v).view(shape).transpose(1, 2)

    return planned(inputs, plan)
