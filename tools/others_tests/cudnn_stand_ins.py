"""cuDNN's frontend as its tests of attention import it: graphs of one node, computed by jit_attention."""

import contextlib
import functools
import sys
import types

import pytest
import torch

REPOSITORY = "NVIDIA/cudnn-frontend"
FILES = ("test/python/**/test_sdpa_fwd_dsl_sm100.py",)
HEAD_DIM = 512


def left_out(item):
    """A test of several head dims names that of a case `d`; others are called by the tests of sm_90 with one."""
    given = getattr(item, "callspec", None)
    if given is None or HEAD_DIM not in (given.params.get("d"), given.params.get("d_qk")):
        return f"not of head dim {HEAD_DIM}"
    return None


def make_smaller(item, divisor):
    pass


class Tensor:
    """A tensor of a graph; its shape and strides are those of what is bound."""

    offset = None  #: where packed sequences begin in memory, if they are packed

    def __getattr__(self, name):
        if not name.startswith("set_"):
            raise AttributeError(name)

        def keep(value):
            if name.endswith("_offset"):
                self.offset = value
            return self

        return keep


class Graph:
    """A graph whose one node is attention."""

    def __init__(self, **_):
        self.node = self.outputs = None

    def tensor_like(self, _):
        return Tensor()

    def tensor(self, **_):
        return Tensor()

    def sdpa(self, **options):
        self.node, self.outputs = options, (Tensor(), Tensor() if options.get("generate_stats") else None)
        return self.outputs

    def get_workspace_size(self):
        return 0

    def __getattr__(self, name):
        if name in ("validate", "build_operation_graph", "create_execution_plans", "check_support", "build_plans"):
            return lambda *_: None
        absent(f"a graph's {name}")

    def execute(self, bound, workspace=None):
        given = {name: value for name, value in self.node.items() if not isinstance(value, Tensor)}
        tensors = {name: Rows(bound, value) for name, value in self.node.items() if isinstance(value, Tensor)}
        o, lse = (None if output is None else Rows(bound, output) for output in self.outputs)
        attend(o, lse, **given, **tensors)


class Rows:
    """What is bound to a tensor of a graph: (batch, heads, tokens, head_dim), or where its sequences begin in memory."""

    def __init__(self, bound, tensor):
        self.whole = bound[tensor]
        self.offsets = None if tensor.offset is None else bound[tensor.offset].flatten().tolist()

    def of(self, b, tokens):
        """A sequence's, (1, tokens, heads, head_dim)."""
        x = self.whole
        if self.offsets is None:
            return x[b : b + 1, :, :tokens].transpose(1, 2)
        return x.as_strided((1, tokens, x.shape[1], x.shape[3]), (0, x.stride(2), x.stride(1), 1),
                            x.storage_offset() + self.offsets[b])

    def lengths(self, given):
        return [self.whole.shape[2]] * self.whole.shape[0] if given is None else given.whole.flatten().tolist()


def absent(what):
    pytest.skip(f"of cuDNN itself: {what}")


def attend(o, lse, q, k, v, attn_scale, name=None, generate_stats=False, use_causal_mask=False,
           use_causal_mask_bottom_right=False, sliding_window_length=None, diagonal_band_left_bound=None,
           diagonal_band_right_bound=None, diagonal_alignment=None, use_padding_mask=False, seq_len_q=None,
           seq_len_kv=None, sink_token=None, **others):
    """Writes o and LSE of cuDNN's arguments, sequence by sequence: a mask is aligned to each one's own lengths."""
    import jit_attention as ja

    for other, value in others.items():
        if value is not None and value is not False:
            absent(f"sdpa with {other}")
    right = 0 if use_causal_mask or use_causal_mask_bottom_right else diagonal_band_right_bound
    left = sliding_window_length or diagonal_band_left_bound  # that many keys, the own one among them
    is_bottom_right = use_causal_mask_bottom_right or diagonal_alignment == "BOTTOM_RIGHT"
    mask = None
    if left or right is not None:
        mask = ja.mask.sliding_window(left - 1 if left else -1, -1 if right is None else right,
                                      alignment="bottom_right" if is_bottom_right else "top_left")
    sinks = None if sink_token is None else sink_token.whole.flatten().float()
    if o.offsets is None:
        o.whole.zero_()
    if lse is not None and lse.offsets is None:
        lse.whole.fill_(-torch.inf)
    for b, (n, m) in enumerate(zip(q.lengths(seq_len_q), k.lengths(seq_len_kv))):
        own, own_lse = ja.attention(q.of(b, n), k.of(b, m), v.of(b, m), mask=mask, softmax_scale=attn_scale, sinks=sinks,
                                    return_lse=True)  # fmt: skip
        o.of(b, n).copy_(own)
        if lse is not None:
            lse.of(b, n).copy_(own_lse.transpose(1, 2)[..., None])


def fork_rng(seed=0):
    """cuDNN's decorator: a test's numbers are its own."""

    def decorator(test):
        @functools.wraps(test)
        def seeded(*arguments, **options):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                return test(*arguments, **options)

        return seeded

    return decorator


class Absent(types.ModuleType):
    """A module of which a test that needs more than there is, is one of cuDNN itself."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: absent(f"{self.__name__}.{name}")


def install():
    """Puts modules of these names into sys.modules."""
    mark = pytest.mark.filterwarnings("default")
    names = types.SimpleNamespace(HALF="half", BFLOAT16="bfloat16", FLOAT="float", INT32="int32", INT64="int64")
    modules = {
        "cudnn": dict(pygraph=Graph, data_type=names, heur_mode=types.SimpleNamespace(A="A"),
                      diagonal_alignment=types.SimpleNamespace(TOP_LEFT="TOP_LEFT", BOTTOM_RIGHT="BOTTOM_RIGHT")),
        "cudnn.sdpa": {}, "cudnn.sdpa.fwd": {}, "cudnn.sdpa.fwd.api_dsl": {},
        "cudnn.sdpa.fwd.engines": dict(engine_name=lambda *_, **__: "jit_attention"),
        "frost_test_utils": dict(requires_dsl=mark, requires_pre_rubin_blackwell=mark, requires_blackwell=mark,
                                 _dsl_installed=lambda: True, select_engine=lambda *_, **__: None, _SM=90),
        "test_utils": dict(torch_fork_set_rng=fork_rng),
    }  # fmt: skip
    for name, contents in modules.items():
        module = sys.modules[name] = Absent(name)
        module.__path__ = []
        vars(module).update(contents)
        with contextlib.suppress(KeyError):
            parent, _, child = name.rpartition(".")
            setattr(sys.modules[parent], child, module)
