"""Wrong arguments of any function: one sentence with the name that the caller gave, the value and the rule."""

import ast
import math
import pathlib

import jit_attention as ja
import ml_dtypes
import numpy
import pytest

BF16 = numpy.dtype(ml_dtypes.bfloat16)
STUB = ast.parse((pathlib.Path(ja.__file__).parent / "_core.pyi").read_text())
#: Public functions by name; of overloads the last one, which has all kinds of arguments.
FUNCTIONS = {node.name: node for node in STUB.body if isinstance(node, ast.FunctionDef) and hasattr(ja, node.name)}
WRONG = {
    "int": [1.5, "many", None, True, 2**80, numpy.float32(2)],
    "float": ["much", None, True, [1.0]],
    "bool": [1, "yes", None, numpy.int64(0)],
    "str": [3, None],
}
#: Words of which functions have their own list, and what a spec has, too: told of when arrays have been read.
LATER = {"layout", "arch", "tuning", "out_dtype", "cache_dtype", "descale_per", "softmax_scale"}


def kind_of(argument):
    return ast.unparse(argument.annotation).removesuffix(" | None")


def scalars():
    """Every scalar argument of every public function, with values that it cannot be."""
    for function in FUNCTIONS.values():
        for argument in [*function.args.args, *function.args.kwonlyargs]:
            is_optional = ast.unparse(argument.annotation).endswith(" | None")
            for value in WRONG.get(kind_of(argument), []) if argument.arg not in LATER else []:
                if value is not None or not is_optional:
                    yield function.name, argument.arg, value


def required(name):
    """Something for each argument without a default, of its kind."""
    function = FUNCTIONS[name]
    plain = function.args.args
    must = [argument for argument in plain[: len(plain) - len(function.args.defaults)]]
    must += [argument for argument, default in zip(function.args.kwonlyargs, function.args.kw_defaults) if default is None]
    some = {"int": 1, "float": 1.0, "bool": False, "str": "x"}
    return {argument.arg: some.get(kind_of(argument), ()) for argument in must}


@pytest.mark.parametrize("function, argument, value", list(scalars()))
def test_a_scalar_of_a_wrong_kind_or_size_is_one_sentence(function, argument, value):
    with pytest.raises((TypeError, ja.InvalidArgumentError)) as refusal:
        getattr(ja._core, function)(**required(function) | {argument: value})
    message = str(refusal.value)
    assert message.startswith(argument) and "\n" not in message and len(message) < 120, message
    if isinstance(refusal.value, ja.InvalidArgumentError):
        assert refusal.value.field == argument and "must be from" in message and str(value) in message
    elif not isinstance(value, (list, numpy.generic)):
        assert f"not {value!r}" in message


def test_there_are_scalars_to_try():
    assert len({(function, argument) for function, argument, _ in scalars()}) > 50


def test_numpys_numbers_are_numbers(place, rng, fetch):
    q = place(rng.standard_normal((1, 4, 1, 16)).astype(BF16))
    expected = fetch(ja.attention(q, q, q, num_splits=1, softmax_scale=0.25))
    same = ja.attention(q, q, q, num_splits=numpy.int8(1), softmax_scale=numpy.float16(0.25), dropout_p=numpy.float32(0))
    assert numpy.array_equal(fetch(same), expected)


@pytest.fixture
def arrays(place, rng):
    """A function that makes arrays of any shape, and type where one is wanted."""
    return lambda *shape, dtype=BF16: place(rng.standard_normal(shape).astype(dtype))


def attended(arrays, **changes):
    given = {name: arrays(1, 8, 2, 16) for name in "qkv"} | changes
    return lambda: ja.attention(**given)


def appended(arrays, **changes):
    given = dict(k=arrays(4, 2, 16), v=arrays(4, 2, 16), k_cache=arrays(1, 8, 2, 16), v_cache=arrays(1, 8, 2, 16),
                 slot_mapping=arrays(4, dtype=numpy.int64))
    return lambda: ja.append(**given | changes)


def quantized(arrays, **changes):
    return lambda: ja.quantize_qkv(**{name: arrays(1, 8, 2, 16) for name in "qkv"} | changes)


def merged(arrays, **changes):
    given = dict(outs=[arrays(4, 2, 16)], lses=[arrays(2, 4, dtype=numpy.float32)])
    return lambda: ja.merge(**given | changes)


def differentiated(arrays, **changes):
    given = {name: arrays(1, 8, 2, 16) for name in ("do", "q", "k", "v", "o")}
    return lambda: ja.attention_backward(**given | dict(lse=arrays(1, 2, 8, dtype=numpy.float32)) | changes)


# A call, what is wrong with it, and the argument of which the error speaks, with words of the sentence.
NAMES = [
    (attended, lambda new: dict(dropout_p=math.nan), "dropout_p", "is nan"),
    (attended, lambda new: dict(dropout_p=-0.5), "dropout_p", "is -0.5"),
    (attended, lambda new: dict(dropout_p=0.5), "rng_state", "is missing"),
    (attended, lambda new: dict(softmax_scale=-1), "softmax_scale", "= -1 must be positive"),
    (attended, lambda new: {name: new(1, 8, 2, 20) for name in "qkv"}, "q", "its head_dim = 20"),
    (attended, lambda new: dict(v=new(1, 8, 2, 20)), "v", "its head_dim_v = 20"),
    (attended, lambda new: dict(out_dtype="fp16"), "out_dtype", "= fp16 must be"),
    (attended, lambda new: dict(split_keys=65), "split_keys", "= 65 must be"),
    (attended, lambda new: dict(interpolated_exponentials=True), "interpolated_exponentials", "= true"),
    (appended, lambda new: dict(k=new(4, 2, 16, dtype=numpy.int64)), "k", "its dtype = int64"),
    (appended, lambda new: dict(k_cache=new(1, 8, 2, 16, dtype=numpy.float32)), "k_cache", "fp32"),
    (appended, lambda new: dict(v=new(4, 2, 20)), "v", "its head_dim_v = 20"),
    (appended, lambda new: dict(cos_sin=new(8, 7), positions=new(4, dtype=numpy.int64)), "cos_sin", "its rotary_dim = 7"),
    (appended, lambda new: dict(cos=new(8, 9), sin=new(8, 9), positions=new(4, dtype=numpy.int64)), "cos", "= 18"),
    (quantized, lambda new: {name: new(1, 8, 2, 16, dtype=numpy.int32) for name in "qkv"}, "q", "int32"),
    (quantized, lambda new: {name: new(1, 8, 2, 20) for name in "qkv"}, "q", "its head_dim = 20"),
    (quantized, lambda new: dict(q_positions=new(8, dtype=numpy.int64)), "q_positions", "no cos_sin"),
    (merged, lambda new: dict(outs=[new(4, 2, 16, dtype=numpy.int64)]), "outs", "is int64; it must be fp32, bf16"),
    (merged, lambda new: dict(outs=[new(4, 2, 16, dtype=numpy.int32)]), "outs", "is int32"),
    (differentiated, lambda new: dict(dropout_p=math.nan), "dropout_p", "is nan"),
    (differentiated, lambda new: {name: new(1, 8, 2, 20) for name in ("do", "q", "k", "v", "o")}, "q", "= 20"),
    (differentiated, lambda new: dict(do=new(1, 8, 1, 16)), "do", "heads"),
]


@pytest.mark.parametrize("call, change, argument, words", NAMES)
def test_errors_name_what_the_caller_gave(call, change, argument, words, arrays):
    with pytest.raises(ja.Error) as refusal:
        call(arrays, **change(arrays))()
    error = refusal.value
    assert error.field == argument and error.message.startswith(argument) and words in error.message, error.message
    assert "spec." not in error.message


# Options that would change nothing, each with what says so.
WITHOUT_EFFECT = [
    (attended, lambda new: dict(rng_state=new(2, dtype=numpy.int64)), "dropout_p is 0"),
    (attended, lambda new: dict(descale_per="head"), "no scales belong to"),
    (differentiated, lambda new: dict(rng_state=new(2, dtype=numpy.int64)), "dropout_p is 0"),
    (appended, lambda new: dict(rotary_interleaved=True), "no cos_sin"),
    (appended, lambda new: dict(mrope_sections=(2, 3, 3)), "no cos_sin"),
    (appended, lambda new: dict(mrope_interleaved=True), "without mrope_sections"),
    (appended, lambda new: dict(norm_adds_one=True), "no k_norm_weight"),
    (appended, lambda new: dict(norm_eps=1e-3), "no k_norm_weight"),
    (appended, lambda new: dict(dtype="fp16"), "but k holds bf16"),
    (quantized, lambda new: dict(rotary_interleaved=True), "no cos_sin"),
    (quantized, lambda new: dict(norm_adds_one=True), "no q_norm_weight or k_norm_weight"),
    (quantized, lambda new: dict(norm_eps=1e-3), "no q_norm_weight or k_norm_weight"),
    (quantized, lambda new: dict(dtype="fp16"), "but q holds bf16"),
    (merged, lambda new: dict(dtype="fp16"), "but outs holds bf16"),
]


@pytest.mark.parametrize("call, change, words", WITHOUT_EFFECT)
def test_options_without_effect_are_refused(call, change, words, arrays):
    changes = change(arrays)
    with pytest.raises(ja.InvalidArgumentError) as refusal:
        call(arrays, **changes)()
    assert refusal.value.field == next(iter(changes)) and words in str(refusal.value)


@pytest.mark.parametrize("given, argument", [
    (dict(rotary_dim=8), "rotary_dim"), (dict(rotary_interleaved=True), "rotary_interleaved"),
    (dict(mrope_sections=(2, 1, 1)), "mrope_sections"), (dict(norm=True), "norm"),
    (dict(serving=True, mrope_interleaved=True), "mrope_interleaved"),
    (dict(serving=True, norm_adds_one=True), "norm_adds_one"),
])
def test_packs_have_no_options_without_effect(given, argument, tmp_path):
    with pytest.raises(ja.InvalidArgumentError, match=f"^{argument}: was given"):
        ja.write_pack(str(tmp_path / "pack"), [ja.AttentionSpec(head_dim=16)], ["sm_80"], **given)


@pytest.mark.parametrize("heads_first", [False, True])
def test_shapes_in_messages_are_as_they_were_given(heads_first, arrays):
    def new(seqlen, heads, **kind):
        return arrays(*((1, heads, seqlen) if heads_first else (1, seqlen, heads)), 16, **kind)

    layout = dict(layout="BHSD" if heads_first else "BSHD")
    wrong = "bf16 (1, 2, 9, 16) strides" if heads_first else "bf16 (1, 9, 2, 16) strides"
    right = {name: new(8, 2) for name in "qkv"}
    for name in ("v", "out"):
        with pytest.raises(ja.InvalidArgumentError) as refusal:
            ja.attention(**right | {name: new(9, 2)}, **layout)
        assert refusal.value.field == name and wrong in str(refusal.value)
    with pytest.raises(ja.InvalidArgumentError) as refusal:
        ja.attention_backward(new(8, 2), **right | dict(v=new(9, 2)), o=new(8, 2), lse=arrays(1, 2, 8, dtype=numpy.float32),
                              **layout)
    assert refusal.value.field == "v" and wrong in str(refusal.value)
    bytes_of = {name: new(8, 2, dtype=numpy.uint8) for name in "qkv"}
    with pytest.raises(ja.InvalidArgumentError) as refusal:
        shape = (1, 2, 3) if heads_first else (1, 3, 2)
        scales = {f"{name}_descale": arrays(*shape, dtype=numpy.float32) for name in "qk"}
        scales["v_descale"] = arrays(1, 2, dtype=numpy.float32)
        ja.attention(**bytes_of, dtype="fp8_e4m3", **scales, **layout)
    assert refusal.value.field == "q_descale" and f"has blocks = 3; it must be 1: fp32 {shape}" in str(refusal.value)
    with pytest.raises(ja.InvalidArgumentError) as refusal:
        ja.prepare_backward(new(8, 2), **right, o=new(8, 2), lse=arrays(1, 2, 8, dtype=numpy.float32), dv=new(9, 2), **layout)
    assert refusal.value.field == "dv" and wrong in str(refusal.value)


def test_varlen_arrays_have_one_layout(arrays):
    varlen = dict(cu_seqlens_q=arrays(2, dtype=numpy.int32), cu_seqlens_k=arrays(2, dtype=numpy.int32))
    with pytest.raises(ja.InvalidArgumentError) as refusal:
        ja.attention(arrays(8, 2, 16), arrays(8, 2, 16), arrays(9, 2, 16), **varlen, layout="BHSD")
    assert "bf16 (9, 2, 16) strides" in str(refusal.value)


@pytest.mark.parametrize("text", ["\ud800", "a" * 50 + "\udc80"])
def test_texts_are_what_utf8_can_hold(text):
    with pytest.raises(TypeError, match="^selection must be a str that UTF-8 can hold, not "):
        ja.use_device(text)


def test_numbers_of_thousands_of_digits_are_told_by_their_type(arrays):
    q = arrays(1, 8, 2, 16)
    with pytest.raises(ja.InvalidArgumentError, match="^head_dim_v: is a int; it must be from "):
        ja.attention(q, q, None, head_dim_v=10**5000)


TEMPERATURE = ja.score.text("return score * tau[0];", name="warm", tensors={"tau": "fp32"})


def test_a_config_leaves_nothing_to_tune(place):
    with pytest.raises(ja.InvalidArgumentError, match="^tuning: was given beside config"):
        ja.prepare(ja.AttentionSpec(head_dim=16), config="family=forward_mma_sync", tuning="first_run")


def test_a_number_is_a_tensor_of_one_element(place, rng, fetch):
    q, k, v, do = (place(rng.standard_normal((1, 8, 2, 16)).astype(BF16)) for _ in range(4))
    results = []
    for tau in (place(numpy.array(1.5, numpy.float32)), place(numpy.array([1.5], numpy.float32))):
        call = dict(score=TEMPERATURE, tensors={"tau": tau})
        o, lse = ja.attention(q, k, v, return_lse=True, **call)
        *_, gradients = ja.attention_backward(do, q, k, v, o, lse, d_tensors=["tau"], **call)
        assert tuple(gradients["tau"].shape) == tuple(tau.shape)
        results.append((fetch(o), fetch(gradients["tau"]).reshape(1)))
    for number, array in zip(*results):
        assert numpy.array_equal(number, array)


def test_a_text_reads_no_tensor_without_elements(place, rng, fetch):
    q = place(rng.standard_normal((1, 8, 2, 16)).astype(BF16))
    call = dict(score=TEMPERATURE, tensors={"tau": place(numpy.zeros(0, numpy.float32))})
    with pytest.raises(ja.InvalidArgumentError, match="^tau: has no element, and a text reads it for each score"):
        ja.attention(q, q, q, **call)
    # Without a score nothing is read.
    assert ja.attention(q[:0], q[:0], q[:0], **call).shape == (0, 8, 2, 16)
    assert ja.attention(q[:, :0], q, q, **call).shape == (1, 0, 2, 16)
    assert not fetch(ja.attention(q, q[:, :0], q[:, :0], **call)).any()


def test_more_heads_than_blocks_beside_each_other(place, rng, fetch):
    heads = 66000
    q, k, v = (rng.standard_normal((1, length, heads, 8)).astype(BF16) for length in (1, 2, 2))
    exact = [array.astype(numpy.float64) for array in (q, k, v)]
    scores = numpy.einsum("bihd,bjhd->bhij", *exact[:2]) / math.sqrt(8)
    weights = numpy.exp(scores - scores.max(-1, keepdims=True))
    expected = numpy.einsum("bhij,bjhd->bihd", weights / weights.sum(-1, keepdims=True), exact[2])
    assert numpy.abs(fetch(ja.attention(*map(place, (q, k, v)))) - expected).max() < 0.03


def test_a_family_says_which_heads_it_has_no_blocks_for(place):
    if ja.devices()[0].arch != "sm_90a":
        pytest.skip("forward_split_cluster is a family of sm_90a")
    q = place(numpy.zeros((1, 1, 66000, 8), BF16))
    prepared = ja.prepare(ja.AttentionSpec(head_dim=8), config={"family": "forward_split_cluster"})
    with pytest.raises(ja.InvalidArgumentError, match="^k: has 66000 heads, more than the 65535 that a launch of"):
        prepared(q, q, q)
