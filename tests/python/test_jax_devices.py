"""jit_attention.jax on several devices, and beside other threads of Python."""

import ctypes
import functools
import sys
import threading
import time

import jit_attention as ja
import numpy
import pytest
from jax_process import jax, jnp, place  # noqa: F401
from jit_attention.jax import attention

P = jax.sharding.PartitionSpec


@pytest.fixture
def arrays(rng):
    shapes = (4, 40, 4, 32), (4, 50, 4, 32), (4, 50, 4, 32), (4, 40, 4, 32)
    return [jnp.asarray(rng.standard_normal(shape), jnp.bfloat16) for shape in shapes]


def step(q, k, v, do, sinks):
    o, pull = jax.vjp(lambda q, k, v, sinks: attention(q, k, v, mask=ja.mask.causal(), sinks=sinks), q, k, v, sinks)
    return o, pull(do)


@pytest.mark.parametrize("shape", [(4, 1), (1, 4), (2, 2)])
@pytest.mark.parametrize("check_vma", [True, False])
def test_batch_and_heads_of_devices(arrays, rng, shape, check_vma):
    """Sinks are one array for all batch entries, whose gradients are summed."""
    if len(jax.devices()) < 4:
        pytest.skip("needs four devices")
    sinks = jnp.asarray(rng.standard_normal(4), jnp.float32)
    mesh = jax.make_mesh(shape, ("batch", "heads"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    of_rows, of_heads = P("batch", None, "heads"), P("heads")
    specs = (of_rows,) * 4 + (of_heads,)

    @functools.partial(jax.shard_map, mesh=mesh, in_specs=specs, out_specs=(of_rows, (of_rows,) * 3 + (of_heads,)),
                       check_vma=check_vma)
    def sharded(*inputs):
        o, (*gradients, d_sinks) = step(*inputs)
        if not check_vma:
            d_sinks = jax.lax.psum(d_sinks, "batch")
        return o, (*gradients, d_sinks)

    o, gradients = jax.jit(sharded)(*arrays, sinks)
    o_alone, alone = jax.jit(step)(*arrays, sinks)
    assert numpy.array_equal(numpy.asarray(o, numpy.float32), numpy.asarray(o_alone, numpy.float32))
    for one, other in zip(gradients, alone):
        one, other = (numpy.asarray(x, numpy.float32) for x in (one, other))
        assert numpy.abs(one - other).max() <= 1e-2 * numpy.abs(other).max()


def test_dropout_of_a_layer_that_is_computed_again(arrays):
    """A recomputation by jax.checkpoint drops the same probabilities."""
    q, k, v, do = arrays

    def loss(q, key):
        o = attention(q, k, v, dropout_p=0.5, rng_state=key)
        return (o.astype(jnp.float32) * do.astype(jnp.float32)).sum()

    key = jax.random.key(7)
    once, again = (jax.jit(jax.grad(run))(q, key) for run in (loss, jax.checkpoint(loss)))
    assert numpy.array_equal(numpy.asarray(once, numpy.float32), numpy.asarray(again, numpy.float32))


def test_a_call_runs_while_another_thread_has_the_interpreter(rng):
    """The other thread holds the lock from when the call leaves Python until long after it is done."""
    if jax.default_backend() != "cpu":
        pytest.skip("a GPU computes on its own")
    q = jnp.asarray(rng.standard_normal((2, 300, 4, 64)), jnp.bfloat16)
    run = jax.jit(lambda q: attention(q, q, q))
    jax.block_until_ready(run(q))
    begin = time.monotonic()
    jax.block_until_ready(run(q))
    alone = time.monotonic() - begin
    begun, wait = threading.Event(), ctypes.PyDLL(None).usleep  # which does not give the lock away

    def call():
        begun.set()
        jax.block_until_ready(run(q))

    interval, thread = sys.getswitchinterval(), threading.Thread(target=call)
    sys.setswitchinterval(1000)
    try:
        thread.start()
        begun.wait()
        for _ in range(10):
            wait(ctypes.c_uint(min(999_999, int(alone * 0.4e6))))
        released = time.monotonic()
        thread.join()
        assert time.monotonic() - released < alone / 2
    finally:
        sys.setswitchinterval(interval)
