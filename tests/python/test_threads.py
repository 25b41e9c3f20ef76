"""Host threads that call at once, on one stream and on streams of their own: each gets the bits that it gets alone,
and its own errors. One case for each kind of plan: one kernel or several, with workspace, mailbox or counters or
without."""

import threading

import jit_attention as ja
import numpy
import pytest
from seeded import some, takes_all

THREADS = 8
CAUSAL = ja.mask.causal()
bf16 = pytest.importorskip("ml_dtypes").bfloat16


class Inputs:
    """Random arrays where this process computes."""

    def __init__(self, seed, place):
        self.rng, self.place = numpy.random.default_rng(seed), place

    def normal(self, *shape, dtype=bf16):
        return self.place(self.rng.standard_normal(shape).astype(dtype))

    def qkv(self, seqlen_q, seqlen_kv, heads_q=2, heads_kv=2, batch=1, head_dim=64):
        kv = (batch, seqlen_kv, heads_kv, head_dim)
        return self.normal(batch, seqlen_q, heads_q, head_dim), self.normal(*kv), self.normal(*kv)

    def integers(self, values, dtype=numpy.int32):
        return self.place(numpy.array(values, dtype))

    def pages(self, requests, max_pages, page_size=16, heads_kv=2):
        count = requests * max_pages
        table = self.rng.permutation(count).reshape(requests, max_pages).astype(numpy.int32)
        shape = (count, page_size, heads_kv, 64)
        return self.normal(*shape), self.normal(*shape), self.place(table)


# Each makes the inputs of one thread, the `index`-th, and returns its call, which returns a list of arrays.


def dense(inputs, index):
    q, k, v = inputs.qkv(60 + 9 * index, 60 + 9 * index)
    return lambda **on: ja.attention(q, k, v, mask=CAUSAL, return_lse=True, **on)


def decode(inputs, index):
    q, k, v = inputs.qkv(1, 700 + 100 * index, heads_q=8, batch=2)
    return lambda **on: ja.attention(q, k, v, mask=CAUSAL, return_lse=True, **on)


def split_keys(inputs, index):
    q, k, v = inputs.qkv(1, 700 + 100 * index, heads_q=8, batch=2)
    return lambda **on: ja.attention(q, k, v, mask=CAUSAL, return_lse=True, split_keys=128, **on)


def paged(inputs, index):
    q, (k, v, table) = inputs.normal(3, 1, 8, 64), inputs.pages(3, 48)
    used = inputs.integers([700, 3 + index, 250])
    return lambda **on: ja.attention(
        q, k, v, page_table=table, seqused_k=used, mask=CAUSAL, return_lse=True, **on)


def mixed(inputs, index):
    lengths = [300, 1, 1, 1, 70 + index]
    q, (k, v, table) = inputs.normal(sum(lengths), 4, 64), inputs.pages(5, 38)
    starts, used = inputs.integers(numpy.cumsum([0, *lengths])), inputs.integers([400, 600, 3, 100, 80 + index])
    return lambda **on: ja.attention(
        q, k, v, cu_seqlens_q=starts, page_table=table, seqused_k=used, mask=CAUSAL, return_lse=True, **on)


def dropout(inputs, index):
    q, k, v = inputs.qkv(260, 260)
    state = inputs.integers([index, 0], numpy.int64)
    return lambda **on: ja.attention(q, k, v, dropout_p=0.3, rng_state=state, return_lse=True, **on)


def keys_of_fp8(inputs, index):
    e4m3 = pytest.importorskip("ml_dtypes").float8_e4m3fn
    q, k, v = inputs.normal(1, 200 + index, 8, 64), *(inputs.normal(1, 200 + index, 1, 64, dtype=e4m3) for _ in "kv")
    return lambda **on: ja.attention(q, k, v, mask=CAUSAL, return_lse=True, **on)


def quantize(inputs, index):
    q, k, v = inputs.qkv(90 + index, 90 + index)
    centers = dict(scales="head", center_keys=True, center_values=True)
    return lambda **on: [x for x in ja.quantize_qkv(q, k, v, **centers, **on) if hasattr(x, "dtype")]


def merge(inputs, index):
    states = [inputs.normal(9 + index, 2, 64) for _ in range(3)]
    lse = [inputs.normal(2, 9 + index, dtype=numpy.float32) for _ in range(3)]
    return lambda **on: ja.merge(states, lse, **on)


def gradients(inputs, index, **options):
    names = dict(options)
    deterministic = names.pop("deterministic", True)
    q, k, v = inputs.qkv(40 + 24 * index, 40 + 24 * index, heads_q=4)
    o, lse = ja.attention(q, k, v, mask=CAUSAL, return_lse=True, **names)
    do = inputs.normal(*q.shape)
    return lambda **on: ja.attention_backward(
        do, q, k, v, o, lse, mask=CAUSAL, deterministic=deterministic, **names, **on)


def dropout_gradients(inputs, index):
    state = inputs.integers([index, 0], numpy.int64)
    return gradients(inputs, index, dropout_p=0.3, rng_state=state)


def varlen_gradients(inputs, index):
    lengths = [30 + index, 1, 100]
    starts = inputs.integers(numpy.cumsum([0, *lengths]))
    q, k, v, do = (inputs.normal(sum(lengths), 2, 64) for _ in range(4))
    options = dict(cu_seqlens_q=starts, cu_seqlens_k=starts, mask=CAUSAL)
    o, lse = ja.attention(q, k, v, return_lse=True, **options)
    return lambda **on: ja.attention_backward(do, q, k, v, o, lse, deterministic=True, **options, **on)


def shared_gradients(inputs, index):
    q, k, v = inputs.qkv(40 + index, 40 + index)
    options = dict(score=ja.score.bias("fp32"), tensors={"bias": inputs.normal(1, 2, 1, 40 + index, dtype=numpy.float32)},
                   sinks=inputs.normal(2, dtype=numpy.float32))
    o, lse = ja.attention(q, k, v, return_lse=True, **options)
    do = inputs.normal(*q.shape)

    def call(**on):
        dq, dk, dv, d_tensors, d_sinks = ja.attention_backward(
            do, q, k, v, o, lse, d_tensors=["bias"], d_sinks=True, deterministic=True, **options, **on)
        return dq, dk, dv, d_tensors["bias"], d_sinks

    return call


KINDS = [dense, decode, split_keys, paged, mixed, dropout, keys_of_fp8, quantize, merge, gradients, dropout_gradients,
         varlen_gradients, shared_gradients]


def at_once(count, work):
    """Runs work(index) in threads that begin together; raises what one of them raised."""
    failures, begin = [], threading.Barrier(count)

    def run(index):
        try:
            begin.wait()
            work(index)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def bits(arrays):
    """Copies of the arrays' bytes, on the host."""
    arrays = arrays if isinstance(arrays, (list, tuple)) else [arrays]
    if "torch" in type(arrays[0]).__module__:
        import torch

        return [x.contiguous().view(torch.uint8).cpu().numpy().tobytes() for x in arrays]
    return [numpy.asarray(x).tobytes() for x in arrays]


@pytest.fixture
def streams(emulated):
    """Functions that make what a call is given, or what it runs in: nothing for the default stream; a stream of
    PyTorch."""
    if emulated:
        return [lambda: None]
    import torch

    return [lambda: None, torch.cuda.Stream]


def on_stream(stream, call):
    if stream is None:
        return bits(call())
    import torch

    with torch.cuda.stream(stream):
        result = bits(call())
    return result


def rounds():
    """Calls of each thread: 1,000 of all together on a GPU."""
    return 1000 // THREADS if takes_all() and not ja.devices()[0].emulated else 3


@pytest.mark.parametrize("kind", some(KINDS), ids=lambda kind: kind.__name__)
def test_threads_get_what_they_get_alone(kind, place, rng, emulated, streams):
    count = 4 if emulated else THREADS
    seeds = rng.integers(2**31, size=count)
    calls = [kind(Inputs(seed, place), index) for index, seed in enumerate(seeds)]
    alone = [bits(call()) for call in calls]
    for make_stream in streams:
        own = [make_stream() for _ in calls]

        def work(index):
            for round_ in range(rounds()):
                assert on_stream(own[index], calls[index]) == alone[index], f"thread {index}, round {round_}"

        at_once(count, work)


def test_errors_reach_the_call_that_made_them(place, rng, emulated):
    spec = ja.AttentionSpec(dtype="bf16", head_dim=64, sequences_kv="paged", page_size=16, checked=True)
    attend = ja.prepare(spec)
    inputs = Inputs(rng.integers(2**31), place)
    q, pages, used = inputs.normal(1, 1, 2, 64), inputs.normal(5, 16, 2, 64), inputs.integers([48])
    tables = [inputs.integers([[0, 1, 99 if index % 2 else 2]]) for index in range(4)]
    count = 10 if emulated else 250
    told = [0] * len(tables)

    def work(index):
        for _ in range(count):
            try:
                attend(q, pages, pages, page_table=tables[index], seqused_k=used)
            except ja.Error as error:
                assert "is 99" in str(error)
                told[index] += 1

    at_once(len(tables), work)
    assert told == [0, count, 0, count]


def test_threads_of_jax(rng):
    jax = pytest.importorskip("jax", reason="needs JAX")
    if (jax.default_backend() == "cpu") != ja.devices()[0].emulated:
        pytest.skip("JAX and this library compute in different places")
    from jit_attention.jax import attention

    def loss(q, k, v):
        return attention(q, k, v, mask=CAUSAL).astype("float32").sum()

    gradient = jax.jit(jax.grad(loss, (0, 1, 2)))
    problems = [[jax.numpy.asarray(rng.standard_normal((1, 40, 2, 64)), "bfloat16") for _ in range(3)] for _ in range(4)]
    alone = [bits(gradient(*problem)) for problem in problems]
    ja_rounds = rounds()

    def work(index):
        for _ in range(ja_rounds):
            assert bits(gradient(*problems[index])) == alone[index]

    at_once(len(problems), work)
