"""Masks and scores as values."""

import dataclasses
import pickle
import re

import jit_attention as ja
import pytest
from jit_attention import _core, mask, score


@pytest.mark.parametrize(
    "value, text",
    [
        (mask.none(), "none"),
        (mask.causal(), "causal"),
        (mask.causal("top_left"), "causal(top_left)"),
        (mask.sliding_window(7), "sliding_window(7)"),
        (mask.sliding_window(-1, 3, "top_left"), "sliding_window(-1, 3, top_left)"),
        (mask.causal() & mask.prefix(4) | mask.document(), "causal && prefix(4) || document"),
        (mask.causal() & (mask.prefix(4) | mask.document()), "causal && (prefix(4) || document)"),
        (~mask.prefix_lengths(), "!prefix_lengths"),
        (score.none(), "none"),
        (score.softcap(30), "softcap(30)"),
        (score.softcap(0.1).then(score.alibi()), "softcap(0.1), alibi"),
        (score.bias("bf16"), "bias(bf16)"),
    ],
)
def test_text_and_back(value, text):
    parse = mask.parse if isinstance(value, ja.Mask) else score.parse
    assert str(value) == text
    assert parse(text) == value and hash(parse(text)) == hash(value)
    assert pickle.loads(pickle.dumps(value)) == value


def striped(step):
    return mask.text("return q % step == 0;", name="striped", constants={"step": step})


def test_texts_of_the_user_are_part_of_the_value():
    assert striped(3) == striped(3) and hash(striped(3)) == hash(striped(3))
    assert striped(3) != striped(4) and striped(1) != striped(True)
    both = striped(3) & mask.causal()
    assert str(both) == "text(striped) && causal" and both.texts == striped(3).texts
    assert pickle.loads(pickle.dumps(both)) == both
    assert mask.parse("text(striped) && causal", both.texts) == both
    assert (striped(3) | striped(3)).texts == striped(3).texts
    with pytest.raises(ja.InvalidSpecError, match="two different texts are named 'striped'"):
        striped(3) & striped(4)


FIELDS = dict(
    name="m", body="return true;", classify="return TileClass::full;", constants={"c": 1}, tensors={"t": "fp32"}
)


@pytest.mark.parametrize(
    "change",
    [
        {"name": "n"},
        {"body": "return q > k;"},
        {"classify": ""},
        {"constants": {"c": 2}},
        {"constants": {"d": 1}},
        {"tensors": {"t": "int32"}},
        {"tensors": {"u": "fp32"}},
    ],
)
def test_every_field_of_a_text_counts(change):
    text, other = ja.FunctorText(**FIELDS), ja.FunctorText(**FIELDS | change)
    assert text == ja.FunctorText(**FIELDS) and text != other and hash(text) != hash(other)
    assert pickle.loads(pickle.dumps(other)) == other
    assert mask.text(**FIELDS) != mask.text(**FIELDS | change)
    if "name" not in change:
        with pytest.raises(ja.InvalidSpecError, match="two different texts are named 'm'"):
            mask.text(**FIELDS) & mask.text(**FIELDS | change)


def test_element_types_by_any_name():
    numpy = pytest.importorskip("numpy")
    kinds = ("fp32", "float32", numpy.float32, numpy.dtype("float32"))
    assert len({score.bias(kind) for kind in kinds}) == 1
    assert ja.FunctorText("m", "return true;", tensors={"t": "float16"}).tensors == {"t": "fp16"}
    assert ja.AttentionSpec(dtype="bfloat16") == ja.AttentionSpec(dtype="bf16")


def test_numbers_of_numpy_are_numbers():
    numpy = pytest.importorskip("numpy")
    assert mask.prefix(numpy.int64(3)) == mask.prefix(3)
    constants = {"i": numpy.int32(3), "f": numpy.float32(0.5)}
    assert mask.text("return q < i * f;", name="m", constants=constants).texts[0].constants["i"] == 3
    assert ja.AttentionSpec(head_dim=numpy.int64(64)).head_dim == 64


@pytest.mark.parametrize(
    "make",
    [
        lambda: mask.sliding_window(3.7),
        lambda: mask.sliding_window("5"),
        lambda: mask.prefix(True),
        lambda: score.softcap("30"),
        lambda: mask.parse(None),
        lambda: mask.text(None, name="m"),
        lambda: mask.text("return true;", name=None),
        lambda: mask.text("return true;", name="m", constants={1: 2}),
    ],
)
def test_nothing_is_made_a_number_or_text_in_silence(make):
    with pytest.raises(TypeError, match="must be"):
        make()


def test_arrays_that_a_call_needs():
    text = score.text("return score + table[q];", name="shift", tensors={"table": "fp32"})
    assert score.alibi().then(text).tensors == {"alibi_slopes": "fp32", "table": "fp32"}
    assert (mask.document() | mask.causal()).tensors == {"document_ids_q": "int32", "document_ids_kv": "int32"}
    assert mask.causal().tensors == {}


def test_and_or_not_are_refused_where_operators_are_meant():
    with pytest.raises(TypeError, match="combine masks with & | ~"):
        mask.causal() and mask.prefix(3)
    with pytest.raises(TypeError):
        not mask.causal()
    with pytest.raises(TypeError):
        mask.causal() & "prefix(3)"
    with pytest.raises(TypeError, match="then.. takes a Score, not a Mask"):
        score.alibi().then(mask.causal())


def test_values_cannot_be_changed():
    with pytest.raises(AttributeError):
        mask.causal().text = "none"
    with pytest.raises(TypeError):
        striped(3).texts[0].constants["step"] = 4


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: mask.sliding_window(-2), "window_size_left = -2 must be at least 0, or -1"),
        (lambda: mask.prefix(-1), "prefix: length = -1 must be at least 0"),
        (lambda: mask.prefix(2**40), "length: is 1099511627776; it must be from"),
        (lambda: score.bias("fp32), softcap(3"), "dtype: is .fp32., softcap"),
        (lambda: mask.causal("middle"), 'alignment: is .middle.; it must be "bottom_right" or "top_left"'),
        (lambda: mask.text("return true;", name="no good"), "name of a text functor must be .* not 'no good'"),
        (lambda: mask.text("#include <x>\nreturn true;", name="m"), "preprocessor directive in line 1"),
        (lambda: mask.text("return true;", name="m", constants={"q": 3}), "'q'"),
        (lambda: mask.text("return true;", name="m", constants={"for": 3}), "'for' .* a keyword"),
        (lambda: mask.text("return true;", name="m", tensors={"t": "fp8"}), "fp8"),
        (lambda: mask.parse("causl"), "causl"),
        (lambda: score.softcap(0), "cap: is 0; it must be positive and finite"),
        (lambda: score.softcap(float("nan")), "nan"),
        (lambda: score.bias("int32"), "int32"),
        (lambda: score.parse("softcap(1"), "softcap"),
    ],
)
def test_what_means_nothing_is_refused(make, message):
    with pytest.raises((ja.InvalidSpecError, ja.InvalidArgumentError), match=message):
        make()


@pytest.mark.parametrize("constant", ["3", None, [1]])
def test_constants_are_numbers(constant):
    with pytest.raises(TypeError, match="constant c must be a bool, an int or a float"):
        mask.text("return true;", name="m", constants={"c": constant})


def test_a_constant_that_64_bits_cannot_hold_is_refused():
    with pytest.raises(ja.InvalidSpecError, match="constant c: 9223372036854775808 does not fit into 64 bits"):
        mask.text("return true;", name="m", constants={"c": 2**63})


def test_python_and_the_library_have_the_same_fields_of_a_spec():
    names = [field.name for field in dataclasses.fields(ja.AttentionSpec)]
    assert names == list(_core.spec_fields())
    for name in names:
        assert re.search(rf"^ +{name}: ", ja.AttentionSpec.__doc__, re.MULTILINE)


@pytest.mark.parametrize("module, usages", list(zip((mask, score), _core.functor_usages())))
def test_every_functor_of_the_library_has_a_function(module, usages):
    for name in re.findall(r"(\w+)(?:\([^)]*\))?(?:, |$)", usages):
        function = getattr(module, name)
        assert function.__doc__
    assert usages in module.parse.__doc__
