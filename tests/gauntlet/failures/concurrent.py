"""Threads, streams and captured graphs that share what a library keeps between calls."""

import numpy

from .case import case
from .exact import compare
from .interface import in_threads
from .problem import dense, int32, paged


def decoding(run, lengths):
    return paged(run.rng, [1] * len(lengths), lengths, causal=True)


@case(
    "flashinfer-ai/flashinfer#4476",
    "FlashInfer",
    "calls of equal shapes on two streams share a staging buffer: 41 of 100 come out wrong",
    "calls of equal shapes on four streams at once come out with the bits that they have alone",
)
def check_calls_on_streams(library, run):
    problems = [decoding(run, run.pick([50, 9 + i, 30], [5000, 900 + 10 * i, 3000])) for i in range(4)]
    at_once = [library.on_streams(problems) for _ in range(10)]
    alone = [library.forward(asked) for asked in problems]
    for results in at_once:
        for expected, got in zip(alone, results):
            assert numpy.array_equal(got.o, expected.o), "a call differs from itself alone"


@case(
    "sgl-project/mini-sglang#103",
    "FlashInfer, in Mini-SGLang",
    "a second plan overwrites the host's buffer before the first is copied",
    "calls of other lengths that are queued one behind another, without waiting, equal double precision",
)
def check_calls_without_waiting(library, run):
    problems = [
        decoding(run, lengths)
        for lengths in run.pick(([40, 300], [300, 40], [1, 130]), ([4000, 300], [300, 4000], [1, 1300], [77, 2]))
    ]
    for asked, got in zip(problems, library.queued(problems)):
        compare(asked, got)


@case(
    "flashinfer-ai/flashinfer#4481",
    "FlashInfer, in review",
    "host threads that submit equal shapes interleave in one workspace",
    "forward of four threads comes out with the bits that each has alone",
)
def check_forward_of_threads(library, run):
    problems = [decoding(run, [40 + 9 * i, run.pick(300, 3000)]).change(num_splits=4) for i in range(4)]
    outcomes = [library.forward(asked) for asked in problems]
    for asked, outcome in zip(problems, outcomes):
        compare(asked, outcome)

    def work(i):
        for _ in range(run.pick(5, 25)):
            assert numpy.array_equal(library.forward(problems[i]).o, outcomes[i].o), "a thread's output is not its own"

    in_threads(4, work)


@case(
    "flashinfer-ai/flashinfer#4476 Dao-AILab/flash-attention#1678",
    "FlashInfer, FlashAttention-3",
    "semaphores and workspaces of calls that run at once are shared",
    "deterministic gradients of four threads come out with the bits that each has alone",
)
def check_gradients_of_threads(library, run):
    problems = [
        dense(run.rng, seqlen_q=run.pick(40, 400) + 9 * i, gradients=True, causal=True, deterministic=True)
        for i in range(4)
    ]
    alone = [library.gradients(asked) for asked in problems]

    def work(i):
        for _ in range(run.pick(8, 25)):
            got = library.gradients(problems[i])
            for name in ("dq", "dk", "dv"):
                assert numpy.array_equal(getattr(got, name), getattr(alone[i], name)), (
                    f"a thread's {name} is not its own"
                )

    in_threads(4, work)


@case(
    "flashinfer-ai/flashinfer#1968 vllm-project/vllm#51119",
    "TensorRT-LLM's kernels and AITER, in FlashInfer and vLLM",
    "captured graphs keep the number of splits, or the lengths, of capture time",
    "a graph captured at 1 to 20 keys equals double precision when it is replayed at 4,000, and back",
)
def check_replay_at_other_lengths(library, run):
    short, long = decoding(run, [4000, 3000]), decoding(run, [4000, 3000])
    short.seqused_k = int32([1, 20])
    compare(long, library.replayed(short, long))
    compare(short, library.replayed(long, short))


@case(
    "sgl-project/sglang#37768",
    "kernels of dependent launch, in SGLang",
    "kernels that begin before the one in front has ended read what it has not written yet",
    "calls whose queries are the output of the call before equal the same calls one by one, to the bit",
)
def check_chain_of_calls(library, run):
    asked = dense(run.rng, seqlen_q=run.pick(4, 64), seqlen_kv=run.pick(200, 4000), heads=4, num_splits=4)
    apart = asked
    for _ in range(4):
        o = library.forward(apart).o
        apart = apart.change(q=o.astype(asked.q.dtype))
    chained = library.chained(asked, 4).o
    assert numpy.array_equal(chained, o), f"{int((chained != o).sum())} elements differ"
