"""The interface of contenders: a name, availability, and preparation of a problem."""

import contextlib
import importlib
import importlib.metadata
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field

from .cells import BackwardCell, Cell, TrainingCell
from .chosen_suites import ChosenBlocks, ChosenKeys, ChosenLatents, IndexKeys
from .fp8_suites import Fp8Cell
from .group_suites import GroupCell
from .operations import Append, Merge
from .serving import Requests
from .sparse_suites import SparseCell
from .tree_suites import TreeCell, TreeTrainingCell

# Contender methods by problem type.
PREPARING = {Cell: "make", Fp8Cell: "make_fp8", SparseCell: "make_sparse", BackwardCell: "differentiate",
             TrainingCell: "train", TreeCell: "make_tree", TreeTrainingCell: "train_tree", Requests: "serve",
             Append: "append", Merge: "merge", ChosenLatents: "attend_to_latents", IndexKeys: "score_index",
             ChosenKeys: "choose_by_index", ChosenBlocks: "attend_to_blocks", GroupCell: "spread"}


class Unsupported(Exception):
    """A contender does not support a cell; the text is the reason."""


@dataclass
class Runner:
    """A prepared problem. `call()` computes it once on the current stream and returns the output: for attention in the
    problem's output_shape(), or as a tuple of tensors whose rows follow each other; for an Append
    (q, k_cache, v_cache), for a Merge or chosen keys o, for IndexKeys scores, for ChosenKeys int32 (tokens, chosen), for gradients
    and steps of training (dq, dk, dv); `context` is entered around
    calls, outside of what is timed; `detail` is what the contender chose for the problem; `keeps` is held for as long
    as the Runner is. `coarser`: how many times as large the roundings of q and P are as those of bf16, where a
    contender computes in another type; its result may be as much further off. `shift`: what each element of o may be off
    besides, where a contender says why. `compared(output)`: what is checked of
    an output of `call()`, where that is not the output itself: o without a scale that it has."""

    call: Callable
    context: Callable = contextlib.nullcontext
    detail: dict = field(default_factory=dict)
    keeps: object = None
    coarser: int = 1
    shift: float = 0.0
    compared: Callable | None = None

    def checked_part(self, output):
        return self.compared(output) if self.compared else output


class Contender:
    """Base of all contenders.

    name: what --peers takes; label: what tables and charts show; color: of its bars; left_out: suites that it is
    measured in only when --peers names it, with the reason; kv_dtypes: of keys in problems of serving that it reads;
    reads_values_in_keys: whether it reads values that are columns of keys, once; scaling: how make_quantized does it.

    make(cell, inputs), make_fp8(cell, inputs), make_sparse(cell, inputs), differentiate(cell, inputs),
    train(cell, inputs), make_tree(cell, inputs), train_tree(cell, inputs), serve(requests, inputs), append(problem,
    inputs), merge(problem, inputs), attend_to_latents(problem, inputs), score_index(problem, inputs),
    choose_by_index(problem, inputs) and attend_to_blocks(problem, inputs) prepare dense problems, those of FP8 and of sparse masks, gradients, forward and
    gradients in one call, the first and the last of trees, problems of serving,
    those of operations beside attention, and those of chosen keys: a Runner, with everything done that is no part of a call. They raise
    Unsupported. A contender without one of them takes no part in such problems.

    spread(cell, rank) prepares one rank's part of a GroupCell: a group_shards.Shards.

    make_quantized(cell, inputs), of those that have it, prepares a problem of fp8 from inputs of 16 bits, with the
    scales that its own users would give it: what bench/fp8_accuracy.py measures.
    """

    name = label = color = ""
    left_out = {}
    kv_dtypes = ("bf16",)
    reads_values_in_keys = False
    scaling = ""
    make_quantized = None

    def absent(self):
        """The reason why it cannot run here, one line; None: it can. Needs no GPU."""
        raise NotImplementedError

    def version(self):
        """Version text of a present contender."""
        raise NotImplementedError

    def preparing(self, problem):
        """Its method for preparing this problem type; None: unsupported."""
        return getattr(self, PREPARING[type(problem)], None)

    def refuse_keys(self, problem):
        """Raises Unsupported for key types that it does not read, and for values in keys."""
        kv_dtype = getattr(problem, "kv_dtype", "bf16")
        if kv_dtype not in self.kv_dtypes:
            raise Unsupported(f"no keys of {kv_dtype} under queries of bf16")
        if getattr(problem, "values_in_keys", False) and not self.reads_values_in_keys:
            raise Unsupported("no values that are columns of keys")

    def serve_densely(self, requests, inputs):
        """serve() by make(), for dense sequences of equal length."""
        runner = self.make(*inputs.dense(requests))
        return Runner(lambda: runner.call().flatten(0, 1), runner.context, runner.detail)

    def with_lse(self, cell, inputs):
        """(o, lse, detail) of one call: lse fp32 (batch, heads_q, seqlen_q), or None when unavailable; detail as a
        Runner's. Raises Unsupported."""
        runner = self.make(cell, inputs)
        with runner.context():
            return runner.call(), None, runner.detail


def missing(*modules):
    """The reason why none of `modules` is installed; None when one is."""
    for module in modules:
        try:
            if importlib.util.find_spec(module) is not None:
                return None
        except (ImportError, ValueError):
            continue
    return f"{' or '.join(modules)} is not installed"


def import_failure(module):
    """The reason why an installed module cannot be imported, one line; None: it can. Binaries for another Python or
    PyTorch fail in many ways."""
    try:
        importlib.import_module(module)
    except Exception as error:
        return f"{module} cannot be imported: {first_line(error)}"
    return None


def package_version(*packages):
    """The version of the first of `packages` that has one, else "unknown"."""
    for package in packages:
        try:
            return importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return "unknown"


def first_line(error):
    """The first line of an exception, shortened for tables."""
    text = (str(error).strip() or type(error).__name__).splitlines()[0]
    return text if len(text) <= 160 else text[:157] + "..."
