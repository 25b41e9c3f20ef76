"""Exceptions carry what the library knows."""

import copy
import pathlib
import pickle
import re

import jit_attention as ja
import pytest

BROKEN = ja.mask.text("return q >=\n k + undeclared;", name="broken")


def compile_broken():
    return ja.compile(ja.AttentionSpec(mask=BROKEN), "sm_80")


def test_a_compile_error_points_into_the_users_text():
    with pytest.raises(
        ja.CompileFailedError, match='broken:2: error: identifier "undeclared" is undefined'
    ) as failure:
        compile_broken()
    error = failure.value
    assert error.code == "compile_failed" and error.stage == "compile"
    assert "undeclared" in error.log and 'extern "C"' in error.source


def test_warnings_about_templates_are_no_part_of_an_error():
    with pytest.raises(ja.CompileFailedError) as failure:
        ja.compile(ja.AttentionSpec(mask=ja.mask.text("return k <=;", name="cut")), "sm_90a")
    log = failure.value.log
    assert log.startswith("cut:1: error:") and "warning" not in log and "Remark" not in log and "1 error" in log


def test_events_about_bytes_that_are_no_characters_are_delivered(caplog):
    caplog.set_level("INFO", "jit_attention")
    with pytest.raises(ja.CompileFailedError, match="sign:1: error"):
        ja.compile(ja.AttentionSpec(mask=ja.mask.text("return k \u2264 q;", name="sign")), "sm_80")
    ja.compile(ja.AttentionSpec(head_dim=8), "sm_80")  # delivers what the call before it has left
    assert "mask 'sign' is asked score by score" in caplog.text


def test_texts_are_characters():
    with pytest.raises(UnicodeEncodeError, match="surrogates not allowed"):
        ja.mask.text("return k <= q; // \udc80", name="lone")


def test_errors_survive_pickling():
    with pytest.raises(ja.CompileFailedError) as failure:
        compile_broken()
    for error in (pickle.loads(pickle.dumps(failure.value)), copy.copy(failure.value)):
        assert type(error) is ja.CompileFailedError and str(error) == str(failure.value)
        assert error.log == failure.value.log and error.source == failure.value.source and error.stage == "compile"


@pytest.mark.parametrize("kind", ja.Error.__subclasses__())
def test_each_kind_can_be_made_and_pickled(kind):
    error = ja.errors.error_of_code(kind.code, "launch", "k", "k: is wrong", 7, "", "")
    assert type(error) is kind and isinstance(error, ja.Error) and str(error) == "k: is wrong"
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind and (again.field, again.native_code, again.stage) == ("k", 7, "launch")


def test_kinds_are_those_of_the_library():
    assert len({kind.code for kind in ja.Error.__subclasses__()}) == 13 + 2  # of process groups
    for kind in (ja.InvalidSpecError, ja.InvalidArgumentError):
        assert issubclass(kind, ValueError)
    assert issubclass(ja.IoError, OSError)


def test_the_page_of_errors_has_each_class():
    page = pathlib.Path(__file__).parents[2] / "docs/reference/errors.md"
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \| (?:`(\w+)`)? ?\|", page.read_text(), re.MULTILINE)
    classes = [(name, getattr(ja, name)) for name in ja.errors.__all__ if name != "Error"]
    assert sorted(rows) == sorted((name, kind.code, "".join(base.__name__ for base in kind.__bases__[1:]))
                                  for name, kind in classes)


def test_missing_nvrtc_is_an_error_that_says_what_to_do(run_python, tmp_path):
    script = """
import jit_attention as ja
try:
    ja.compile(ja.AttentionSpec(), "sm_80")
except ja.NvrtcUnavailableError as error:
    assert "JIT_ATTENTION_NVRTC" in str(error), str(error)
    print("refused")
"""
    printed = run_python(script, JIT_ATTENTION_NVRTC=str(tmp_path), JIT_ATTENTION_CACHE_DIR=str(tmp_path))
    assert "refused" in printed


def test_offline_forbids_compiling(run_python, tmp_path):
    script = """
import jit_attention as ja
try:
    ja.compile(ja.AttentionSpec(), "sm_80")
except ja.OfflineError as error:
    print("refused", error.code)
"""
    assert "refused offline" in run_python(script, JIT_ATTENTION_OFFLINE="1", JIT_ATTENTION_CACHE_DIR=str(tmp_path))


def test_malformed_settings_are_named(run_python):
    script = """
import jit_attention as ja
try:
    ja.compile(ja.AttentionSpec(), "sm_80")
except ja.InvalidArgumentError as error:
    print(error)
"""
    assert "JIT_ATTENTION_TUNING" in run_python(script, JIT_ATTENTION_TUNING="sometimes")
