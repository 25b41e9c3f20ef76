"""Specs, and kernels that can be read. No GPU is needed."""

import dataclasses
import pathlib
import pickle
import random
import re

import jit_attention as ja
import pytest

ARCH = "sm_90a"


@pytest.fixture(scope="module")
def kernel():
    return ja.compile(ja.AttentionSpec(head_dim=64, mask=ja.mask.causal()), ARCH)


def test_a_kernel_says_all_about_itself(kernel):
    assert kernel.arch == ARCH and kernel.spec == "bf16 d64 mask=causal"
    assert kernel.name.startswith("attention_forward_") and kernel.name in kernel.source
    assert f".entry {kernel.name}" in kernel.ptx and ".target sm_90a" in kernel.ptx
    assert kernel.cubin.startswith(b"\x7fELF")
    assert 32 <= kernel.registers <= 255 and kernel.threads % 32 == 0 and kernel.smem_bytes > 0
    assert kernel.spill_bytes == 0, "configs that spill are passed over"
    assert kernel.why.startswith("cost model") and kernel.tuning_log == [] and kernel.compile_ms > 0
    report = kernel.report
    assert report["registers"] == kernel.registers and report["key"] == kernel.key and len(kernel.key) == 32
    assert kernel.spec in repr(kernel)


def test_sass_or_the_reason_why_not(kernel):
    try:
        assert kernel.name in kernel.sass
    except FileNotFoundError as missing:
        assert "nvdisasm" in str(missing)


def test_dump_writes_what_a_person_reads(kernel, tmp_path):
    paths = kernel.dump(tmp_path / "out")
    names = {pathlib.Path(path).name for path in paths}
    assert {"kernel.cu", "kernel.ptx", "kernel.cubin", "report.json"} <= names
    assert (tmp_path / "out/kernel.cu").read_text() == kernel.source
    assert all(pathlib.Path(path).exists() for path in paths)
    (tmp_path / "file").write_text("")
    with pytest.raises(ja.IoError) as failure:
        kernel.dump(str(tmp_path / "file"))
    assert isinstance(failure.value, OSError) and "file" in str(failure.value)


def test_configs_are_dicts_that_can_be_given_back(kernel):
    spec = ja.AttentionSpec(head_dim=64, mask=ja.mask.causal())
    configs = ja.candidate_configs(spec, ARCH)
    assert len(configs) > 10 and kernel.config in configs
    other = next(config for config in configs if config["tile_kv"] != kernel.config["tile_kv"])
    assert ja.compile(spec, ARCH, other).config == other
    assert ja.compile(spec, ARCH, " ".join(f"{k}={str(v).lower()}" for k, v in other.items())).config == other
    with pytest.raises(ja.InvalidArgumentError, match="tile_z"):
        ja.compile(spec, ARCH, {"tile_z": 1})
    with pytest.raises(ja.NoValidConfigError, match="tile_q"):
        ja.compile(spec, ARCH, other | {"tile_q": 7})
    with pytest.raises(TypeError, match="config must be a dict"):
        ja.compile(spec, ARCH, 7)


def test_every_way_to_ask_for_an_arch():
    with pytest.raises(ja.InvalidArgumentError, match="sm_90a"):
        ja.compile(ja.AttentionSpec(), "sm_banana")
    with pytest.raises(ja.InvalidArgumentError, match="sm_70.*accepted: sm_80"):
        ja.supports("sm_70")


def test_all_reasons_against_a_spec():
    assert ja.refusals("sm_80") == ja.refusals() == ja.refusals("sm_90a", head_dim=64, mask=ja.mask.causal()) == []
    assert ja.supports("sm_80") is True and ja.supports("sm_90a", head_dim=100) is False
    reasons = {reason.field: reason for reason in ja.refusals("sm_90a", head_dim=100, gqa_ratio=0)}
    assert reasons.keys() == {"head_dim", "gqa_ratio"}
    assert (reasons["head_dim"].value, reasons["head_dim"].nearest) == ("100", "104")
    assert "multiple of 8" in reasons["head_dim"].rule
    with pytest.raises(TypeError, match=r"^AttentionSpec\(\) has no argument 'heads'; give gqa_ratio"):
        ja.supports(heads=3)


def test_functions_can_be_sent_to_other_processes():
    for function in (ja.attention, ja.compile, ja.prepare, ja.tune, ja.devices):
        assert pickle.loads(pickle.dumps(function)) is function


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"head_dim": 100}, "head_dim = 100 must be a multiple of 8 from 8 to 512; nearest supported: 104"),
        ({"head_dim": 1024}, "nearest supported: 512"),
        ({"head_dim_v": -8}, "head_dim_v"),
        ({"gqa_ratio": 0}, "gqa_ratio"),
        ({"alignment": 3}, "alignment"),
        ({"seqlen_q": -1}, "seqlen_q"),
        ({"softmax_scale": -0.5}, "softmax_scale"),
        ({"head_dim": 2**40}, "head_dim"),
        ({"dtype": "fp32"}, "dtype = fp32 must be bf16 or fp16 or fp8_e4m3 or fp8_e5m2; nearest supported: bf16"),
        ({"dtype": "float8"}, "dtype: is 'float8'; it must be \"bf16\" or \"fp16\"$"),
        ({"dtype": None}, "dtype: is None; it must be \"bf16\" or \"fp16\"$"),
        ({"softmax_scale": 3e38}, "softmax_scale = 3e.38 must be positive and at most 100000"),
    ],
)
def test_specs_that_cannot_be_served_are_refused(fields, message):
    with pytest.raises(ValueError, match=message) as refusal:
        ja.AttentionSpec(**fields)
    assert isinstance(refusal.value, ja.Error)


@pytest.mark.parametrize(
    "fields",
    [{"head_dim": "64"}, {"head_dim": 64.0}, {"gqa_ratio": True}, {"mask": "causal"}, {"score": ja.mask.causal()}],
)
def test_specs_of_wrong_types_are_refused(fields):
    with pytest.raises(TypeError, match=next(iter(fields))):
        ja.AttentionSpec(**fields)


def test_specs_are_values():
    spec = ja.AttentionSpec(dtype="fp16", head_dim=96, mask=ja.mask.causal(), score=ja.score.softcap(20))
    assert pickle.loads(pickle.dumps(spec)) == spec and hash(spec) == hash(dataclasses.replace(spec))
    assert dataclasses.replace(spec, head_dim=64) != spec
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec.head_dim = 64
    with pytest.raises(ja.InvalidSpecError):
        dataclasses.replace(spec, head_dim=65)


def test_a_spec_is_wanted():
    with pytest.raises(TypeError, match="spec must be a jit_attention.AttentionSpec, not a dict"):
        ja.compile({}, ARCH)


def test_prepare_takes_all_of_q_k_v_or_none(place, rng):
    with pytest.raises(TypeError, match="q, k and v are given all or none"):
        ja.prepare(ja.AttentionSpec(), place(rng.standard_normal((1, 8, 1, 128)).astype("float16")))
    with pytest.raises(ja.InvalidArgumentError, match="there is no device 99"):
        ja.prepare(ja.AttentionSpec(), device=99)


def test_prepare_refuses_what_a_call_refuses(place, rng):
    q = place(rng.standard_normal((1, 8, 2, 64)).astype("float16"))
    spec = ja.AttentionSpec(dtype="fp16", head_dim=64, score=ja.score.alibi())
    with pytest.raises(ja.InvalidArgumentError, match="alibi_slopes: is read by"):
        ja.prepare(spec, q, q, q)
    plain = dataclasses.replace(spec, score=None)
    with pytest.raises(ja.InvalidArgumentError, match="more: was given, but neither"):
        ja.prepare(plain, q, q, q, tensors={"more": q})
    with pytest.raises(ja.InvalidArgumentError, match="tensors: are given without q, k and v"):
        ja.prepare(plain, tensors={"more": q})
    with pytest.raises(ja.InvalidArgumentError, match="layout: is 'zzz'"):
        ja.prepare(plain, layout="zzz")
    prepared = ja.prepare(plain, q, q, q)
    with pytest.raises(ja.InvalidArgumentError, match="layout: is 'zzz'"):
        prepared.kernel(layout="zzz")
    with pytest.raises(ja.InvalidArgumentError, match="q: is fp16; it must be bf16"):
        ja.prepare(dataclasses.replace(plain, dtype="bf16"))(q, q, q)


def test_tuning_wants_a_gpu(emulated):
    if not emulated:
        pytest.skip("there is a GPU")
    sizes = dict(batch=1, heads_q=8, seqlen_q=512, seqlen_kv=512)
    with pytest.raises(ja.InvalidArgumentError, match="device: is emulated"):
        ja.tune(ja.AttentionSpec(), **sizes)
    with pytest.raises(ja.InvalidArgumentError, match="batch: is 0; it must be at least 1"):
        ja.tune(ja.AttentionSpec(), **sizes | {"batch": 0})
    with pytest.raises(ja.InvalidArgumentError, match="device: is emulated"):
        ja.tune(ja.AttentionSpec(), **sizes, backward=True, deterministic=True)
    with pytest.raises(ja.InvalidArgumentError, match="batch: is 0; it must be at least 1"):
        ja.tune(ja.AttentionSpec(), **sizes | {"batch": 0}, backward=True)
    with pytest.raises(ja.InvalidArgumentError, match="deterministic: is True; it is of gradients"):
        ja.tune(ja.AttentionSpec(), **sizes, deterministic=True)
    with pytest.raises(ja.InvalidSpecError, match="values_in_keys.*has no backward"):
        ja.tune(ja.AttentionSpec(values_in_keys=True), **sizes, backward=True)


def test_the_logger_tells_what_was_done_and_how_long_it_took(tmp_path, caplog):
    caplog.set_level("DEBUG", "jit_attention")
    fresh = ja.mask.text("return k != never;", name="fresh", constants={"never": random.randrange(1 << 30)})
    spec = ja.AttentionSpec(head_dim=16, dtype="fp16", mask=fresh)
    sizes = dict(heads_q=1, max_batch=1, max_seqlen=16)
    made = ja.write_pack(str(tmp_path / "pack"), [spec], ["emulated:sm_80"], **sizes)
    told = [(record.levelname, record.getMessage()) for record in caplog.records]
    for kernel in made:
        assert any(level == "INFO" and re.fullmatch(rf"compiled {kernel['name']} in \d+\.\d\d s", text)
                   for level, text in told)  # fmt: skip
    progress = [text for level, text in told if level == "DEBUG"]
    assert re.fullmatch(r"(\d+)/\1 after \d+\.\d s: compiling for the pack", progress[-1])
    caplog.clear()
    ja.write_pack(str(tmp_path / "pack"), [spec], ["emulated:sm_80"], **sizes)
    assert not any("compiled" in record.getMessage() for record in caplog.records)


def test_tuning_on_a_gpu(emulated, caplog):
    if emulated:
        pytest.skip("needs a GPU")
    caplog.set_level("DEBUG", "jit_attention")
    spec = ja.AttentionSpec(head_dim=64)
    result = ja.tune(spec, batch=2, heads_q=8, seqlen_q=1024, seqlen_kv=1024)
    told = [record.getMessage() for record in caplog.records if record.levelname == "INFO"]
    assert sum(bool(re.match(r"tuned in \d+\.\d s: family=", text)) for text in told) == 1
    assert set(result["log"]) <= {record.getMessage().split(": ", 1)[-1] for record in caplog.records}
    assert result["candidates"] >= 2 and 0 < result["median_us"] <= result["default_us"]
    assert result["configs"][0] in ja.candidate_configs(spec, ja.devices()[0].arch)
    assert len(result["log"]) >= result["candidates"]


@pytest.mark.parametrize("deterministic", [False, True])
def test_tuning_of_gradients_on_a_gpu(emulated, deterministic):
    if emulated:
        pytest.skip("needs a GPU")
    sizes = dict(batch=2, heads_q=8, seqlen_q=1024, seqlen_kv=1024)
    result = ja.tune(ja.AttentionSpec(head_dim=64), **sizes, backward=True, deterministic=deterministic)
    assert result["candidates"] >= 2 and 0 < result["median_us"] <= result["default_us"]
    assert all(config["family"].startswith("backward_") for config in result["configs"])
    if len(result["configs"]) == 1:
        assert result["configs"][0]["deterministic"] == deterministic


def test_traces_of_emulated_devices(emulated, place, rng):
    q = place(rng.standard_normal((1, 8, 1, 64)).astype("float16"))
    with ja.trace() as seen:
        ja.attention(q, q, q)
    if not emulated:
        assert seen.launches == []
        return
    (launch,) = seen.launches
    assert launch.kernel.startswith("attention_forward") and launch.findings == [] and launch.warp_instructions > 100
    assert launch.counts["kernel"] == launch.kernel and len(launch.counts["by_line"]) > 10
    assert "mma" in launch.listing
