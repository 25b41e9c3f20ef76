"""Failures of one rank's part of a call with method "arrive", and calls that do not take keys that arrive."""


import jit_attention as ja
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")
import torch.distributed as dist  # noqa: E402
from jit_attention.distributed import arrive, groups, operator  # noqa: E402
from jit_attention.distributed.problem import Problem  # noqa: E402

PLACEMENT = ja.distributed.balance(ja.mask.causal(), seqlen=256, ranks=2)


@pytest.fixture
def control():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield groups.Control(dist.group.WORLD)
    dist.destroy_process_group()


class Done:
    """A collective that has ended."""

    def __init__(self, received):
        pass

    def is_completed(self):
        return True

    def wait(self):
        return True


class Exchange:
    """Notes what is asked of it."""

    def __init__(self):
        self.asked = []

    def begin(self, k, v, stream):
        self.asked.append("begin")
        return 0, 0, 0, 1

    def send(self):
        self.asked.append("send")

    def end(self, stream):
        self.asked.append("end")


def workspace_of(exchange):
    workspace = object.__new__(arrive._Workspace)
    rows = torch.zeros(1, 256, 1, 64, dtype=torch.bfloat16)
    workspace.device, workspace.refusal, workspace.hosts = torch.device("cpu"), "", ["here"]
    shared = arrive._Shared(workspace.device)
    shared.exchange, shared.views = exchange, {(0, 0, 0, 1): (rows, rows, torch.zeros(1, 4, dtype=torch.int32))}
    workspace.shared_of = lambda problem, sizes, is_captured: shared
    workspace.reset = lambda timeout: None
    return workspace


@pytest.mark.parametrize("failure", [ja.CompileFailedError("no kernel", "compile", ""), KeyboardInterrupt()])
def test_a_rank_that_fails_ends_its_call_and_says_so_to_the_next(control, monkeypatch, failure):
    """Other ranks get its keys, and its group computes again after a reset."""
    exchange = Exchange()
    workspace = workspace_of(exchange)
    monkeypatch.setattr(arrive, "_stream", lambda device: 0)
    fails = True

    def attend(*given, **named):
        assert exchange.asked[-1] != "end", "the copies are behind the kernel"
        if fails:
            raise failure
        return "o", "lse"

    monkeypatch.setattr(arrive._problem, "forward", attend)

    def call():
        q = torch.zeros(1, 128, 2, 64, dtype=torch.bfloat16)
        k = q[:, :, :1].contiguous()
        problem = Problem(q, k, k, control, PLACEMENT)
        problem.kept = control.begin("a kind", lambda: {"pass": "forward", "method": 'method "arrive"'}, 5.0)
        problem.kept.setdefault("workspace", ("", workspace, ()))
        return arrive.forward(problem)

    with pytest.raises(type(failure)):
        call()
    assert exchange.asked == ["begin", "send", "end"]
    with pytest.raises(ja.PeerTimeoutError, match="this rank failed: .*; call jit_attention.distributed.reset on all ranks"):
        call()
    assert exchange.asked == ["begin", "send", "end"], "nothing has begun"
    control.restart(5.0)
    fails = False
    assert call() == ("o", "lse")
    assert exchange.asked == ["begin", "send", "end"] + ["begin", "end"], "the kernel is there: copies are sent behind it"


def test_gradients_leave_behind_the_call(control, monkeypatch):
    """The exchange ends before gradients return, which waits for other ranks; those that take turns, too."""
    exchange = Exchange()
    monkeypatch.setattr(arrive, "_stream", lambda device: 0)

    def gradients(*given, arrivals):
        assert arrivals.shape == (1, 4)
        exchange.asked.append("kernel")
        return "gradients"

    def returned(problem, found):
        exchange.asked.append("returned")
        return found

    monkeypatch.setattr(arrive._problem, "backward", gradients)
    monkeypatch.setattr(arrive.gather, "returned", returned)
    q = torch.zeros(1, 128, 2, 64, dtype=torch.bfloat16)
    k = q[:, :, :1].contiguous()
    given = q, q, torch.zeros(1, 2, 128), None, (), False
    problem = Problem(q, k, k, control, PLACEMENT, kept={"workspace": ("", workspace_of(exchange), ())})
    assert arrive.backward(problem, *given) == "gradients"
    assert exchange.asked == ["begin", "send", "kernel", "end", "returned"]
    problem.deterministic = True
    assert arrive.backward(problem, *given) == "gradients" and exchange.asked[5:] == ["begin", "kernel", "end", "returned"]


def test_calls_that_do_not_take_keys_that_arrive():
    for more, said in ((dict(split_keys=512), "split_keys is 0"), (dict(sequences_q="varlen"), "sequences are dense"),
                       (dict(kv_dtype="fp8_e4m3"), "have 16 bits")):
        (refused, *_) = ja.refusals("sm_90a", key_arrivals=True, q_positions=True, **more)
        assert refused.field == "key_arrivals" and said in refused.rule
    assert ja.supports("sm_90a", key_arrivals=True, q_positions=True)
    (refused,) = ja.refusals("sm_80", key_arrivals=True, q_positions=True)
    assert refused.rule == "must be false on sm_80; kernels of sm_90a wait for keys"
    q, k, v, do = (torch.randn(1, 128, 1, 64, dtype=torch.bfloat16) for _ in range(4))
    o, lse = ja.attention(q, k, v, return_lse=True)
    table = torch.zeros(64, 4, dtype=torch.int32)  # all keys are there
    given = do, q, k, v, o, lse
    for turns in (False, True):
        found = ja.attention_backward(*given, tensors={"key_arrivals": table}, deterministic=turns)
        assert all(map(torch.equal, found, ja.attention_backward(*given, deterministic=turns)))


def test_what_a_capture_refuses(control, monkeypatch):
    """Kinds of calls that ranks would have to compare, and "arrive"; what was called before goes on."""
    q = torch.randn(1, 32, 1, 64).bfloat16()
    placement = ja.distributed.balance(None, seqlen=64, ranks=2, granule=16)
    monkeypatch.setattr(groups.Control, "_compare", lambda *of_call: None)
    monkeypatch.setattr(dist, "all_to_all_single", lambda out, *given, **named: Done(out.zero_()))
    call = operator.Call(None, None, (), None, control.group, placement, "gather", 0.0, False, 5.0)
    control.size = 2
    monkeypatch.setitem(groups._controls, control.group, control)
    monkeypatch.setattr(operator, "is_captured", lambda tensor: is_captured)
    monkeypatch.setattr(arrive, "is_captured", lambda tensor: is_captured)
    is_captured = True
    with pytest.raises(ja.InvalidArgumentError, match="group: ranks have not made such a call .*forward by gather.* ahead of"):
        operator.compute(call, q, q, q, (), None, None)
    is_captured = False
    operator.compute(call, q, q, q, (), None, None)
    is_captured = True
    operator.compute(call, q, q, q, (), None, None)
    with pytest.raises(ja.InvalidArgumentError, match="ranks have not made such a call"):
        operator.compute(call._replace(softmax_scale=0.5), q, q, q, (), None, None)
    by_arrive = call._replace(method="arrive")
    is_captured = False
    with pytest.warns(UserWarning, match='"arrive" needs GPUs'):
        operator.compute(by_arrive, q, q, q, (), None, None)
    is_captured = True
    operator.compute(by_arrive, q, q, q, (), None, None)  # it gathers


class Placed:
    """A call of a kind by its number."""

    def __init__(self, number, timeout=5.0):
        self.placement, self.timeout = number, timeout


def test_what_graphs_hold_is_kept(control, monkeypatch):
    """Calls of other kinds take other memory; a reset begins anew with what graphs replay, too."""
    made = []

    class Kept:
        def __init__(self, number):
            self.number, self.resets, self.timeouts = number, 0, []
            made.append(self)

        def reset(self, stream):
            self.resets += 1

        def set_timeout(self, seconds):
            self.timeouts.append(seconds)

        def fault(self, stream):
            return None

    def begin_anew(workspace, problem, sizes):
        if workspace.shared.is_captured:
            workspace.shared = arrive._Shared(workspace.device)
        workspace.shared.exchange, workspace.shared.timeout = Kept(problem.placement), problem.timeout

    monkeypatch.setattr(arrive._Workspace, "begin_anew", begin_anew)
    monkeypatch.setattr(arrive, "_stream", lambda device: 0)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: None)
    workspace = arrive._Workspace(control, torch.device("cpu"), 5.0)
    first = workspace.shared_of(Placed(1), (), False)
    assert workspace.shared_of(Placed(1), (), True) is first and first.is_captured
    with pytest.raises(ja.InvalidArgumentError, match="made calls of other sizes.*once ahead of the capture"):
        workspace.shared_of(Placed(2), (), True)
    assert workspace.shared_of(Placed(1), (), False) is first, "a refused capture changes nothing"
    second = workspace.shared_of(Placed(2), (), False)
    assert second is not first and first.exchange.number == 1
    third = workspace.shared_of(Placed(3), (), False)
    assert third is second, "no graph holds it"
    assert workspace.shared_of(Placed(1, 7.0), (), True) is first and first.exchange.timeouts == [7.0]
    workspace.reset(5.0)
    assert [x.resets for x in made] == [1, 0, 0]
    assert workspace.shared_of(Placed(1, 7.0), (), False) is first
    assert {x.number for x in workspace.exchanges()} == {1, 3}
    assert workspace.shared_of(Placed(3), (), False) is second and len(made) == 4, "what no graph holds begins anew after a reset"
