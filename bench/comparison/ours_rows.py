"""jit-attention with a tree's answers in separate rows, each with its own prompt: the baseline of packing."""

from .contender import Runner
from .ours import JitAttention
from .tree_suites import TreeCell, TreeTrainingCell


class SeparateRows(JitAttention):
    """The rows are made beforehand; a prompt's gradients are summed over its rows only for checks."""

    name, label, color = "ours_rows", "jit-attention, separate rows", "#b98b82"

    def preparing(self, problem):
        return {TreeCell: self.make_tree, TreeTrainingCell: self.train_tree}.get(type(problem))

    def make_tree(self, cell, inputs):
        import jit_attention as ja

        q, k, v = (in_rows(cell, x) for x in (inputs.q, inputs.k, inputs.v))

        def call():
            return ja.attention(q, k, v, mask=ja.mask.causal(), tuning=self.tuning)

        call()
        return Runner(call, compared=lambda o: packed(cell, o))

    def train_tree(self, cell, inputs):
        import jit_attention as ja
        import jit_attention.torch
        import torch

        leaves = [in_rows(cell, x).detach().requires_grad_() for x in (inputs.q, inputs.k, inputs.v)]
        d_o = in_rows(cell, inputs.d_o)
        d_o[1:, : cell.prompt] = 0  # the prompt's own loss counts once

        def call():
            with torch.enable_grad():
                o = ja.torch.attention(*leaves, mask=ja.mask.causal(), tuning=self.tuning)
            return torch.autograd.grad(o, leaves, d_o)

        call()
        return Runner(call, compared=lambda gradients: [packed(cell, x, is_sum=True) for x in gradients])


def in_rows(cell, x):
    """(1, tokens, heads, head_dim) as a row per answer: (answers, prompt + answer, heads, head_dim)."""
    import torch

    prompt = x[:, : cell.prompt].expand(cell.answers, -1, -1, -1)
    return torch.cat([prompt, x[0, cell.prompt :].unflatten(0, (cell.answers, cell.answer))], 1)


def packed(cell, rows, is_sum=False):
    """The inverse; prompt rows are the first one, or the sum."""
    import torch

    of_prompt = rows[:, : cell.prompt]
    of_prompt = of_prompt.float().sum(0, keepdim=True).to(rows.dtype) if is_sum else of_prompt[:1]
    return torch.cat([of_prompt, rows[:, cell.prompt :].flatten(0, 1)[None]], 1)
