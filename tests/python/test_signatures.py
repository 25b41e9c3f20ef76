"""Signatures of public functions, which tools read, and the answers to keywords that they do not have."""

import ast
import copy
import importlib
import inspect
import pathlib
import pickle
import re

import jit_attention as ja
import pytest

STUB = ast.parse((pathlib.Path(ja.__file__).parent / "_core.pyi").read_text())
NATIVE = [name for name in ja.__all__ + ["compile"] if type(getattr(ja, name)) is type(ja.attention)]
METHODS = ["Attention.__call__", "Attention.kernel", "Kernel.dump"]


def found(name):
    kind, _, method = name.rpartition(".")
    return getattr(getattr(ja, kind) if kind else ja, method)


def functions(module):
    names = [name for name in module.__all__ if callable(getattr(module, name))]
    return {f"{module.__name__}.{name}": getattr(module, name) for name in names}


@pytest.mark.parametrize("module", ["", ".mask", ".score", ".cache", ".flash_attn", ".flash_attn.v3", ".flash_attn.v4",
                                    ".flash_mla", ".torch", ".jax"])
def test_every_public_function_has_a_signature(module):
    for framework in ("torch", "jax"):
        if module == f".{framework}" or (module, framework) == (".flash_mla", "torch"):
            pytest.importorskip(framework, reason=f"needs {framework}")
    for name, function in functions(importlib.import_module(f"jit_attention{module}")).items():
        # Classes that only the library makes have none.
        if not inspect.isclass(function) or function.__module__ != "jit_attention._core":
            assert "unknown" not in inspect.signature(function).parameters, name


def test_there_are_functions_of_the_extension():
    assert len(NATIVE) >= 12 and "attention" in NATIVE and "devices" in NATIVE


@pytest.mark.parametrize("name", NATIVE + METHODS)
def test_the_stub_has_the_parameters_of_the_extension(name):
    ((native, _, defaults),) = found(name).__nb_signature__
    (function,) = ast.parse(re.sub(r"\\(\d+)", r"D[\1]", native) + ": ...").body
    arguments = function.args
    given = list(defaults or ())
    from_native = {}
    for argument, default in zip(
        arguments.posonlyargs + arguments.args + arguments.kwonlyargs,
        [None] * (len(arguments.posonlyargs + arguments.args) - len(arguments.defaults)) + arguments.defaults
        + arguments.kw_defaults,
    ):
        value = inspect.Parameter.empty if default is None else given[default.slice.value]
        kind = inspect.Parameter.KEYWORD_ONLY if argument in arguments.kwonlyargs else inspect.Parameter.POSITIONAL_OR_KEYWORD
        from_native[argument.arg] = kind, pytest.approx(value) if isinstance(value, float) else value
    shown = {parameter.name: (parameter.kind, parameter.default)
             for parameter in inspect.signature(found(name)).parameters.values()}
    assert shown == from_native


@pytest.mark.parametrize("name", NATIVE)
def test_functions_of_the_extension_are_found_by_their_names(name):
    function = getattr(ja, name)
    assert function.__name__ == name and function.__module__ == "jit_attention"
    assert pickle.loads(pickle.dumps(function)) is function and copy.deepcopy(function) is function
    assert inspect.isroutine(function) and repr(function) == f"<function jit_attention.{name}>"


def overloads(module):
    """Definitions of each function of a module that has overloads, the last one without that decorator, by name."""
    by_name = {}
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef):
            by_name.setdefault(node.name, []).append(node)
    return {name: nodes for name, nodes in by_name.items()
            if any(ast.unparse(each) == "overload" for node in nodes for each in node.decorator_list)}


def arguments(node):
    return {argument.arg: ast.unparse(argument) for argument in node.args.args + node.args.kwonlyargs}


def test_overloads_agree_but_for_what_chooses_the_result():
    by_name = overloads(STUB)
    assert {"attention", "__call__", "attention_backward", "append"} == set(by_name)
    for nodes in by_name.values():
        last = arguments(nodes[-1])
        for node in nodes[:-1]:
            mine = arguments(node)
            assert list(mine) == list(last)
            differ = {name for name in mine if mine[name] != last[name]}
            assert differ <= {"return_lse", "return_aux", "d_sinks", "d_tensors", "sinks", "q", "q_out"}, (node.name, differ)


@pytest.mark.parametrize("module", ["dense", "varlen", "kvcache", "v3", "v4"])
def test_overloads_of_flash_attention_have_the_arguments_and_defaults_of_the_function(module):
    by_name = overloads(ast.parse((pathlib.Path(ja.__file__).parent / "flash_attn" / f"{module}.py").read_text()))
    assert by_name
    for nodes in by_name.values():
        last, chooses = arguments(nodes[-1]), {"return_attn_probs", "return_softmax_lse", "return_lse"}
        defaults = {ast.unparse(default) for default in nodes[-1].args.defaults}
        for node in nodes[:-1]:
            mine = arguments(node)
            assert list(mine) == list(last) and {name for name in mine if mine[name] != last[name]} <= chooses
            assert {ast.unparse(each) for each in node.args.defaults + list(filter(None, node.args.kw_defaults))} <= defaults


# A wrong keyword, and the right one.
OF_OTHERS = [
    ("attention", "causal", "give mask=jit_attention.mask.causal()"),
    ("attention", "is_causal", 'give mask=jit_attention.mask.causal("top_left")'),
    ("attention", "scale", "softmax_scale"),
    ("attention", "sm_scale", "softmax_scale"),
    ("attention", "softmax_scal", "softmax_scale"),
    ("attention", "window_size", "mask=jit_attention.mask.sliding_window(left, right)"),
    ("attention", "sliding_window", "mask=jit_attention.mask.sliding_window(sliding_window - 1)"),
    ("attention", "attn_mask", 'score=jit_attention.score.bias() with tensors={"bias": attn_mask}'),
    ("attention", "attn_bias", "score=jit_attention.score.bias()"),
    ("attention", "softcap", "score=jit_attention.score.softcap(cap)"),
    ("attention", "alibi_slopes", "score=jit_attention.score.alibi()"),
    ("attention", "return_softmax_lse", "return_lse=True"),
    ("attention", "dropout", "dropout_p"),
    ("attention", "block_table", "page_table"),
    ("attention", "cache_seqlens", "seqused_k"),
    ("attention", "qo_indptr", "cu_seqlens_q"),
    ("attention", "cu_seqlens_kv", "cu_seqlens_k"),
    ("attention", "kv_layout", "layout"),
    ("attention", "s_aux", "sinks"),
    ("attention", "query", "q"),
    ("attention", "max_seqlen_q", "leave it out"),
    ("attention", "enable_gqa", "leave it out"),
    ("attention", "deterministic", "leave it out"),
    ("attention", "banana", "help(jit_attention.attention)"),
    ("attention_backward", "dout", "do"),
    ("attention_backward", "softmax_lse", "lse"),
    ("attention_backward", "out", "o"),
    ("append", "key_cache", "k_cache"),
    ("append", "cos_sin_cache", "cos_sin"),
    ("append", "rotary_cos", "cos"),
    ("append", "is_neox", "rotary_interleaved=not is_neox"),
    ("merge", "v_a", "outs"),
    ("merge", "lse_partial", "lses"),
    ("compile", "target", "arch"),
    ("tune", "seqlen_k", "seqlen_kv"),
    ("devices", "arch", "it has none"),
    ("Kernel.dump", "path", "it has folder"),
    ("AttentionSpec", "causal", "mask=jit_attention.mask.causal()"),
    ("AttentionSpec", "heads_kv", "gqa_ratio"),
    ("AttentionSpec", "headdim", "head_dim"),
    ("supports", "scale", "softmax_scale"),
    ("block_mask", "BLOCK_SIZE", "block_size"),
    ("block_mask", "mask_mod", "mask=jit_attention.mask.text(...)"),
    ("quantize_qkv", "rotary_interleave", "rotary_interleaved"),
    ("mask.causal", "top_left", 'alignment="top_left"'),
    ("mask.sliding_window", "right", "window_size_right"),
    ("mask.text", "constant", "constants"),
    ("score.bias", "dtypes", "dtype"),
    ("cache.prune", "max_byte", "max_bytes"),
]
#: What functions cannot do without: Python says itself when one of these is missing.
REQUIRED = {"block_mask": (1, 2), "quantize_qkv": (1, 2, 3), "mask.sliding_window": (1,), "mask.text": ("x",), "cache.prune": (1,)}


@pytest.mark.parametrize("name, keyword, right", OF_OTHERS)
def test_a_wrong_keyword_is_answered_with_the_right_one(name, keyword, right):
    function = ja
    for part in name.split("."):
        function = getattr(function, part)
    options = {"name": "x"} if name == "mask.text" else {}
    arguments = (None,) if name == "Kernel.dump" else REQUIRED.get(name, ())
    if name == "supports":
        arguments = ("sm_90a",)
    with pytest.raises(TypeError) as refusal:
        function(*arguments, **options, **{keyword: True})
    message = str(refusal.value)
    shown = "AttentionSpec" if name == "supports" else name.removeprefix("mask.").removeprefix("score.").removeprefix("cache.")
    assert message.startswith(f"{shown}() has no argument '{keyword}'; ") and right in message, message
    assert "\n" not in message and len(message) < 200


@pytest.mark.parametrize("call, words", [
    (lambda: ja.attention(), "attention() needs q and k"),
    (lambda: ja.attention_backward(1, 2), "attention_backward() needs k, v, o and lse"),
    (lambda: ja.attention(1, 2, 3, 4), "attention() takes 3 positional arguments (q, k, v), and 4 were given; name the others"),
    (lambda: ja.attention(1, 2, k=3), "attention() was given k twice: by position and by name"),
    (lambda: ja.devices(1), "devices() takes no positional arguments"),
    (lambda: ja.Kernel.dump(None, "a", "b"), "Kernel.dump() takes 1 positional arguments (folder), and 2 were given"),
    (lambda: ja.attention(1, 2, 3, num_splits=1.5), "num_splits must be an int, not 1.5"),
])
def test_a_call_that_does_not_fit_is_one_sentence(call, words):
    with pytest.raises(TypeError) as refusal:
        call()
    assert str(refusal.value).startswith(words) and "\n" not in str(refusal.value)


def test_none_is_no_layout():
    with pytest.raises(ja.InvalidArgumentError, match='^layout: is None; it must be "BSHD"'):
        ja.attention(1, 2, 3, layout=None)


def test_names_of_others_belong_to_parameters_that_exist():
    from jit_attention import _keywords

    known = {name for function in NATIVE for name in inspect.signature(getattr(ja, function)).parameters}
    for function in (ja.quantize_qkv, ja.block_mask, ja.BlockMask.from_lists, ja.AttentionSpec, ja.mask.sliding_window,
                     ja.mask.prefix, ja.score.softcap):
        known |= set(inspect.signature(function).parameters)
    known |= {"alignment", "scale"}  # of mask.causal, of torch's scaled_dot_product_attention
    assert set(_keywords._OTHER_NAMES) <= known
    assert {parameter for parameter, _ in _keywords._WRITTEN_AS.values()} <= known


def test_errors_of_calls_that_fit_stay_as_they_are():
    with pytest.raises(TypeError, match="^q"):
        ja.attention([1], [1], [1])


def test_torch_and_jax_answer_keywords():
    pytest.importorskip("torch", reason="needs PyTorch")
    import jit_attention.torch as jt

    for function in (jt.attention, jt.quantized_attention):
        with pytest.raises(TypeError, match=r"^\w+\(\) has no argument 'is_causal'; give mask="):
            function(1, 2, 3, is_causal=True)
    with pytest.raises(TypeError, match="here it is scale$"):
        jt.scaled_dot_product_attention(1, 2, 3, softmax_scale=1)
