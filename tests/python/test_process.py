"""Threads, signals, forks, logging, and the choice of devices."""

import os
import signal
import subprocess
import sys
import time

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
names = [text.split()[1] for text in compiled]  # "compiled NAME in 0.36 s"
assert len(names) >= 1 and len(names) == len(set(names)), compiled
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


# Compiled by a call that ends: the next one goes on for ever from its beginning.
ENDLESS = """
import signal, threading
endless = ja.mask.text("volatile int end = ends[0]; while (end == 0) {} return true;", name="endless",
                       tensors=dict(ends="int32"))
def compute(ends):
    return ja.attention(q, q, q, mask=endless, tensors=dict(ends=numpy.array([ends], numpy.int32)))
compute(ends=1)
"""


def test_ctrl_c_ends_a_kernel_that_goes_on_for_ever():
    script = (
        SMALL
        + ENDLESS
        + """
right = ja.attention(q, q, q)
print("begins", flush=True)
try:
    compute(ends=0)
except KeyboardInterrupt:
    assert numpy.array_equal(ja.attention(q, q, q), right)  # the device goes on
    print("interrupted")
"""
    )
    environment = {"JIT_ATTENTION_DEVICE": "emulated:sm_90a", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=os.environ | environment
    ) as child:
        try:
            assert child.stdout.readline() == "begins\n"
            time.sleep(1)
            assert child.poll() is None
            child.send_signal(signal.SIGINT)
            told, _ = child.communicate(timeout=60)
        finally:
            child.kill()
    assert (child.returncode, told) == (0, "interrupted\n")


def test_what_a_signal_handler_raises_ends_a_launch_beside_others(on_emulated):
    on_emulated(
        ENDLESS
        + """
class Alarm(Exception): pass
def pipeline(*_): raise Alarm
signal.signal(signal.SIGALRM, pipeline)
right = ja.attention(q, q, q)
same = []
beside = threading.Thread(target=lambda: same.append(numpy.array_equal(ja.attention(q, q, q), right)))
signal.setitimer(signal.ITIMER_REAL, 1.5)
threading.Timer(0.5, beside.start).start()
try:
    compute(ends=0)
    raise SystemExit("went on")
except Alarm:
    pass
beside.join(60)
assert same == [True], same
"""
    )


def test_a_limit_of_steps_ends_a_kernel_that_goes_on_for_ever(on_emulated):
    on_emulated(
        ENDLESS
        + """
try:
    compute(ends=0)
    raise SystemExit("went on")
except ja.LaunchFailedError as error:
    text = str(error)
    for part in ("step limit in attention_forward", "1000000 is the limit", "JIT_ATTENTION_EMULATOR_STEP_LIMIT", "endless"):
        assert part in text, (part, text)
ja.attention(q, q, q)
""",
        JIT_ATTENTION_EMULATOR_STEP_LIMIT="1000000",
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


@pytest.mark.parametrize("seconds", [0.05, 0.3])
def test_the_interpreter_may_end_while_threads_compile(on_emulated, tmp_path, seconds):
    on_emulated(
        f"""
import threading, time
for head_dim in (64, 128):
    threading.Thread(target=ja.compile, args=(ja.AttentionSpec(head_dim=head_dim), "sm_90a"), daemon=True).start()
time.sleep({seconds})
""",
        JIT_ATTENTION_CACHE_DIR=str(tmp_path),
    )


def test_the_library_may_be_used_while_the_interpreter_ends(on_emulated):
    assert "verified" in on_emulated("""
import atexit, importlib, sys
ja.compile(ja.AttentionSpec(head_dim=64), "sm_90a")
atexit._clear()  # so that what comes is registered, and run, around the package's own
ja._atexit.register(lambda: print("verified", len(ja.cache.verify())))
ja._atexit.register(ja._at_exit)
""")


def test_a_child_that_was_forked_among_threads_ends(on_emulated):
    on_emulated("""
import os, sys, threading
ja.attention(q, q, q)
stop = threading.Event()
def work():
    while not stop.is_set():
        ja.attention(q, q, q)
threads = [threading.Thread(target=work) for _ in range(3)]
[thread.start() for thread in threads]
for _ in range(8):
    child = os.fork()
    if child == 0:
        sys.exit(0)  # as multiprocessing's children end, interpreter and all
    for _ in range(120):  # 6 s: less than what the package waits for threads at the most
        if os.waitpid(child, os.WNOHANG)[0]:
            break
        import time; time.sleep(0.05)
    else:
        stop.set()
        raise SystemExit("the child hangs")
stop.set()
[thread.join() for thread in threads]
""")


def test_ctrl_c_ends_a_compile(on_emulated, tmp_path):
    assert "interrupted" in on_emulated(
        """
import os, signal, threading, time
threading.Timer(0.6, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    ja.compile(ja.AttentionSpec(head_dim=256), "sm_90a")
    time.sleep(2)
except KeyboardInterrupt:
    print("interrupted")
""",
        JIT_ATTENTION_CACHE_DIR=str(tmp_path),
    )


def test_handlers_of_the_logger_may_use_the_library(on_emulated, tmp_path):
    assert "compiled again" in on_emulated(
        """
import logging
handler = logging.Handler()
def emit(record):
    if "compiled" in record.getMessage():
        ja.compile(ja.AttentionSpec(head_dim=48), "sm_90a")
        print("compiled again")
handler.emit = emit
logging.getLogger("jit_attention").addHandler(handler)
logging.getLogger("jit_attention").setLevel(logging.INFO)
ja.compile(ja.AttentionSpec(head_dim=48), "sm_90a")
""",
        JIT_ATTENTION_CACHE_DIR=str(tmp_path),
    )


def test_traces_are_left_as_they_are_entered(on_emulated):
    on_emulated("""
import threading
outer, inner = ja.trace(), ja.trace()
def refused(trace):
    try:
        trace.__exit__(None, None, None)
    except ValueError as error:
        return "thread that entered it" in str(error)
assert refused(outer)
outer.__enter__(); inner.__enter__()
assert refused(outer)
answers = []
thread = threading.Thread(target=lambda: answers.append(refused(inner)))
thread.start(); thread.join()
assert answers == [True]
ja.attention(q, q, q)
inner.__exit__(None, None, None)
ja.attention(q, q, q)
outer.__exit__(None, None, None)
assert refused(outer)
assert (len(inner.launches), len(outer.launches)) == (1, 2)
assert "attention_forward" in repr(inner.launches[0])
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
assert prepared.kernel().arch == prepared.kernel(q, q, q).arch == "sm_90a"
with ja.trace() as seen:
    prepared(q, q, q)
assert seen.launches[0].kernel == prepared.kernel(q, q, q).name
try:
    ja.use_device("emulated:sm_90a")
    raise SystemExit("changed its mind")
except ja.InvalidArgumentError:
    pass
""",
        JIT_ATTENTION_DEVICE="cuda",
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
    assert "JIT_ATTENTION_DEVICE=emulated:sm_90a" in str(error)
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
