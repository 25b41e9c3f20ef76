"""Threads, forks, logging, and the choice of devices."""

import jit_attention as ja
import pytest

SMALL = """
import numpy, jit_attention as ja
q = numpy.random.default_rng().standard_normal((1, 16, 1, 64)).astype(numpy.float16)
"""


@pytest.fixture
def on_emulated(run_python):
    return lambda script, **environment: run_python(
        SMALL + script, **{"JIT_ATTENTION_DEVICE": "emulated:sm_90a"} | environment
    )


def test_threads_that_want_the_same_kernel_compile_it_once(on_emulated, tmp_path):
    on_emulated(
        """
import logging, threading
compiled = []
handler = logging.Handler()
handler.emit = lambda record: compiled.append(record.getMessage()) if "compiled" in record.getMessage() else None
logging.getLogger("jit_attention").addHandler(handler)
logging.getLogger("jit_attention").setLevel(logging.INFO)
results, barrier = [], threading.Barrier(6)
def work():
    barrier.wait()
    results.append(ja.compile(ja.AttentionSpec(head_dim=40), "sm_80").key)
threads = [threading.Thread(target=work) for _ in range(6)]
[thread.start() for thread in threads]; [thread.join() for thread in threads]
assert len(results) == 6 and len(set(results)) == 1
assert len(compiled) == len(set(compiled)), compiled
""",
        JIT_ATTENTION_CACHE_DIR=str(tmp_path),
    )


def test_threads_compute_at_the_same_time(on_emulated):
    on_emulated("""
import threading
expected = ja.attention(q, q, q, mask=ja.mask.causal())
wrong = []
def work():
    for _ in range(5):
        if not numpy.array_equal(ja.attention(q, q, q, mask=ja.mask.causal()), expected):
            wrong.append(1)
threads = [threading.Thread(target=work) for _ in range(4)]
[thread.start() for thread in threads]; [thread.join() for thread in threads]
assert not wrong
""")


def test_other_threads_run_while_a_kernel_is_compiled(on_emulated, tmp_path):
    on_emulated(
        """
import threading, time
done = threading.Event()
def work():
    ja.compile(ja.AttentionSpec(head_dim=128), "sm_90a")
    done.set()
thread = threading.Thread(target=work)
thread.start()
turns = 0
while not done.is_set():
    time.sleep(0.001)
    turns += 1
thread.join()
assert turns > 20, turns
""",
        JIT_ATTENTION_CACHE_DIR=str(tmp_path),
    )


def test_a_fork_after_use_says_so_and_may_still_compile(on_emulated):
    on_emulated("""
import os
ja.attention(q, q, q)
child = os.fork()
if child == 0:
    status = 1
    try:
        ja.attention(q, q, q)
    except ja.DriverUnavailableError as error:
        assert "forked" in str(error) and "spawn" in str(error)
        status = 0 if ja.compile(ja.AttentionSpec(head_dim=64), "sm_90a").cubin else 2
    finally:
        os._exit(status)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
ja.attention(q, q, q)
""")


def test_a_fork_before_use_is_fine(on_emulated):
    on_emulated("""
import os
child = os.fork()
if child == 0:
    os._exit(0 if ja.attention(q, q, q).shape == q.shape else 1)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
""")


def test_the_interpreter_may_end_while_a_thread_computes(on_emulated):
    on_emulated("""
import threading
def work():
    while True:
        ja.attention(q, q, q)
ja.attention(q, q, q)
threading.Thread(target=work, daemon=True).start()
""")


def test_the_device_is_chosen_before_the_first_use(on_emulated):
    on_emulated(
        """
ja.use_device("emulated:sm_80,sm_90a")
assert [device.arch for device in ja.devices()] == ["sm_80", "sm_90a"]
assert all(device.emulated for device in ja.devices())
with ja.trace() as seen:
    ja.attention(q, q, q)
assert len(seen.launches) == 1
prepared = ja.prepare(ja.AttentionSpec(dtype="fp16", head_dim=64), device=1)
assert prepared.kernel().arch == "sm_90a"
try:
    ja.use_device("emulated:sm_90a")
    raise SystemExit("changed its mind")
except ja.InvalidArgumentError:
    pass
""",
        JIT_ATTENTION_DEVICE="auto",
    )


def test_insisting_on_a_gpu_where_there_is_none(on_emulated):
    if not ja.devices()[0].emulated:
        pytest.skip("there is a GPU")
    on_emulated(
        """
try:
    ja.attention(q, q, q)
    raise SystemExit("computed without a GPU")
except ja.DriverUnavailableError as error:
    assert "libcuda" in str(error) or "GPU" in str(error)
""",
        JIT_ATTENTION_DEVICE="cuda",
    )


def test_cpu_arrays_want_an_emulated_device(emulated):
    if emulated:
        pytest.skip("needs a GPU")
    import numpy

    q = numpy.zeros((1, 16, 1, 64), numpy.float16)
    with pytest.raises(ja.InvalidArgumentError, match='q: is in CPU memory; .*use_device\\("emulated:sm_90a"\\)'):
        ja.attention(q, q, q)


def test_importing_takes_no_other_package(run_python):
    run_python("""
import sys
import jit_attention
for heavy in ("numpy", "torch", "jax", "cupy", "transformers"):
    assert heavy not in sys.modules, heavy
""")
