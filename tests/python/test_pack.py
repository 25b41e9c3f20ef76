"""Packs as Python writes and uses them: a process that has one never compiles."""

import pytest

import jit_attention as ja

SIZES = {"heads_q": 2, "max_batch": 2, "max_seqlen": 64}

CALL = """
import numpy, jit_attention as ja
ja.use_device("emulated:sm_80")
q = numpy.ones((1, 40, 2, 16), numpy.float16)
o = ja.attention(q, q, q, mask={mask})
assert (o == 1).all()
"""


@pytest.fixture
def offline(run_python, tmp_path):
    def run(mask, pack):
        return run_python(CALL.format(mask=mask), JIT_ATTENTION_CACHE_DIR=str(tmp_path / "empty"),
                          JIT_ATTENTION_PACK=str(pack), JIT_ATTENTION_OFFLINE="1")

    return run


def test_a_process_with_the_pack_never_compiles(offline, tmp_path):
    pack = tmp_path / "a.pack"
    padded = ja.mask.causal() & ja.mask.text("return k < 100;", name="short")
    specs = [ja.AttentionSpec(dtype="fp16", head_dim=16, mask=mask) for mask in (ja.mask.causal(), padded)]
    kernels = ja.write_pack(str(pack), specs, ["emulated:sm_80"], **SIZES)
    assert {kernel["spec"] for kernel in kernels} == {"fp16 d16 mask=causal", "fp16 d16 mask=causal && text(short)"}
    assert all(kernel["target"] == "sm_80 as PTX" and kernel["sizes"] > 0 for kernel in kernels)
    assert sum(kernel["bytes"] for kernel in kernels) < pack.stat().st_size
    offline("ja.mask.causal()", pack)
    offline("ja.mask.causal() & ja.mask.text('return k < 100;', name='short')", pack)
    with pytest.raises(Exception, match="is neither in the cache nor in a pack"):
        offline("None", pack)


def test_what_cannot_be_packed_is_named(tmp_path):
    pack = tmp_path / "a.pack"
    with pytest.raises(ja.InvalidArgumentError, match="sm_70"):
        ja.write_pack(str(pack), [ja.AttentionSpec()], ["sm_70"])
    with pytest.raises(ja.InvalidSpecError, match="head_dim"):
        ja.write_pack(str(pack), [ja.AttentionSpec(head_dim=20)], ["sm_80"])
    with pytest.raises(TypeError):
        ja.write_pack(str(pack), ["causal"], ["sm_80"])
    with pytest.raises(ja.IoError):
        ja.write_pack(str(tmp_path / "none" / "a.pack"), [], ["sm_80"])
    assert not pack.exists()
