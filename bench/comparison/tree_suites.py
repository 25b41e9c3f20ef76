"""Tree suites: a prompt and its answers, packed, forward and with gradients."""

from dataclasses import dataclass

from .cells import Cell, TrainingCell, backward_of, cell


@dataclass(frozen=True)
class Tree:
    """Common part of tree cells: mask "tree" over a prompt of `prompt` tokens and consecutive answers of `answer`
    tokens each."""

    prompt: int = 0
    answer: int = 0

    @property
    def answers(self):
        return (self.seqlen_q - self.prompt) // self.answer

    def ends(self):
        """The row after each token's subtree, for `jit_attention.mask.tree`."""
        behind = range(self.prompt + self.answer, self.seqlen_q + 1, self.answer)
        return [self.seqlen_q] * self.prompt + [end for end in behind for _ in range(self.answer)]

    def keep(self, q, k):
        """See Cell.keep."""
        same = (q - self.prompt) // self.answer == (k - self.prompt) // self.answer
        return (k <= q) & ((k < self.prompt) | same)

    def kept_pairs(self):
        """See Cell.kept_pairs."""
        of_answer = self.answer * self.prompt + self.answer * (self.answer + 1) // 2
        return self.batch * (self.prompt * (self.prompt + 1) // 2 + self.answers * of_answer)


@dataclass(frozen=True)
class TreeCell(Tree, Cell):
    """Forward."""


@dataclass(frozen=True)
class TreeTrainingCell(Tree, TrainingCell):
    """Forward and gradients."""


def _tree():
    cells = []
    for prompt, answer in ((2048, 512), (8192, 2048)):
        one = cell("tree", f"p{prompt}-8x{answer}", 1, prompt + 8 * answer, 32, 128, heads_kv=8, mask="tree",
                   panel="32/8 heads, head_dim 128, 8 answers", tick=f"{prompt}\n8 × {answer}")
        sizes = dict(prompt=prompt, answer=answer)
        cells.append(TreeCell(**vars(one), **sizes))
        cells.append(backward_of(one, "tree", TreeTrainingCell, label=f"{one.label}-training", **sizes,
                                 panel=f"{one.panel}, with gradients"))
    return cells


TREE_SUITES = {"tree": _tree()}
