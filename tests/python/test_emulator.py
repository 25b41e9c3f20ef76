"""Kernels of any PTX on the emulator, from Python and as the page about them shows."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import jit_attention as ja
import ml_dtypes
import numpy
import pytest
from jit_attention.emulator import Output, TensorMap, load

ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCK_SUM = (ROOT / "emulator/examples/block_sum.ptx").read_text()


def kernel(parameters, body, directives="", target="sm_90a"):
    text = f""".version 9.4
.target {target}
.address_size 64
.visible .entry k({parameters}) {directives}
{{
  .reg .b16 %h<4>;
  .reg .b32 %r<16>;
  .reg .b64 %rd<16>;
  .reg .f32 %f<4>;
  .reg .f64 %d<4>;
  .reg .pred %p<4>;
{body}
  ret;
}}
"""
    return load(text)["k"]


def copying(kind, type_, width):
    """Stores its second parameter where the first points."""
    register = {"u64": "%rd1", "f64": "%d1", "f32": "%f1", "u32": "%r1", "u16": "%h1"}[type_]
    return kernel(f".param .u64 out, .param .{type_} value",
                  f"ld.param.u64 %rd0, [out];\nld.param.{type_} {register}, [value];\nst.global.{type_} [%rd0], {register};")


@pytest.mark.parametrize("type_, dtype, value", [
    ("u64", numpy.int64, -5), ("u64", numpy.uint64, 2**64 - 1), ("u32", numpy.int32, -7), ("u16", numpy.int16, 3),
    ("f32", numpy.float32, 0.5), ("f64", numpy.float64, 0.1), ("u16", numpy.float16, 0.25),
])  # fmt: skip
def test_numbers(type_, dtype, value):
    run = copying("value", type_, numpy.dtype(dtype).itemsize)
    for given in (value, dtype(value)):
        x = numpy.zeros(1, dtype)
        assert not run(1, 1, Output(x), given).findings
        assert x[0] == dtype(value)


def test_a_module_tells_what_is_in_it(tmp_path):
    (tmp_path / "sum.ptx").write_text(BLOCK_SUM)
    module = load(tmp_path / "sum.ptx")
    assert module.ptx == BLOCK_SUM and module.arch == "sm_80"
    assert load(BLOCK_SUM.encode(), "sm_90a").arch == "sm_90a"
    assert [kernel.name for kernel in module.kernels] == ["block_sum"]
    assert [(p.offset, p.bytes) for p in module["block_sum"].parameters] == [(0, 8), (8, 8)]


def test_findings_have_their_place_and_seeds_their_order():
    x, sums = numpy.ones(1024, numpy.float32), numpy.empty(4, numpy.float32)
    for seed in range(3):
        report = load(BLOCK_SUM)["block_sum"](4, 256, x, Output(sums), seed=seed)
        for finding in report.findings:
            assert (finding.kind, finding.file, finding.line) == ("data race", "block_sum.cu", 9)
            assert BLOCK_SUM.splitlines()[finding.ptx_line - 1].split()[0] in ("ld.shared.f32", "st.shared.f32")
        assert report.findings and str(report).startswith("data race in block_sum block (")
    assert report.counts["kernel"] == "block_sum" and "bar.sync" in report.listing and report.warp_instructions > 1000
    assert not load(BLOCK_SUM)["block_sum"](4, 256, x, Output(sums), allow={"data race"}).findings
    mended = BLOCK_SUM.replace("$L__BB0_3:\n", "$L__BB0_3:\nbar.sync 0;\n")
    assert str(load(mended)["block_sum"](4, 256, x, Output(sums))) == "no findings" and (sums == 256).all()


def test_arrays_that_share_memory_share_it_on_the_device():
    add = kernel(".param .u64 to, .param .u64 from", """
      ld.param.u64 %rd0, [to];
      ld.param.u64 %rd1, [from];
      ld.global.u32 %r0, [%rd1];
      add.u32 %r0, %r0, 1;
      st.global.u32 [%rd0], %r0;
      ld.global.u32 %r1, [%rd1];
      st.global.u32 [%rd0+8], %r1;""")
    x = numpy.arange(16, dtype=numpy.int32)
    assert not add(1, 1, x[4:], x[2:]).findings  # x[4] = x[2] + 1; x[6] = x[2]
    assert x[:8].tolist() == [0, 1, 2, 3, 3, 5, 2, 7]
    y = numpy.arange(16, dtype=numpy.int32).reshape(4, 4)
    assert not add(1, 1, y.T[1:3, ::2], y[::-1, 3]).findings  # strides are the caller's: y[0, 1] = y[3, 3] + 1
    assert y[0].tolist() == [0, 16, 2, 15]


def test_what_a_kernel_must_not_touch():
    x = numpy.zeros(1, numpy.int32)
    store = copying("value", "u32", 4)
    assert [f.kind for f in store(1, 1, x[:0], 3).findings] == ["out of bounds"], "an empty array is a null pointer"
    assert [f.kind for f in store(1, 1, None, 3).findings] == ["out of bounds"]
    x.flags.writeable = False
    with pytest.raises(ja.InvalidArgumentError, match=r"args\[0\] \(out\): is a read-only array, and the kernel wrote to it"):
        store(1, 1, x, 3)


def test_structs_are_laid_out_as_in_cpp():
    read = kernel(".param .align 8 .b8 s[32]", """
      ld.param.u64 %rd0, [s];
      ld.param.u16 %h0, [s+10];
      ld.param.f32 %f0, [s+16];
      ld.param.u32 %r1, [s+20];
      cvt.u32.u16 %r0, %h0;
      st.global.u32 [%rd0], %r0;
      st.global.f32 [%rd0+4], %f0;
      st.global.u32 [%rd0+8], %r1;""")
    x = numpy.zeros(3, numpy.uint32)
    assert not read(1, 1, (x, numpy.uint8(1), numpy.int16(5), (numpy.float32(2), numpy.int32(-1), numpy.float64(0)))).findings
    assert x.tolist() == [5, 0x40000000, 2**32 - 1]


@pytest.mark.parametrize("swizzle", [0, 32])
def test_tensor_maps(swizzle):
    load_box = kernel(".param .align 64 .b8 map[128], .param .u64 out", """
      .shared .align 128 .b8 tile[512];
      .shared .align 8 .b64 bar;
      ld.param.u64 %rd0, [out];
      mov.u32 %r0, tile;
      mov.u32 %r1, bar;
      mbarrier.init.shared::cta.b64 [%r1], 1;
      fence.mbarrier_init.release.cluster;
      mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 256;
      mov.u32 %r2, 16;
      mov.u32 %r3, 8;
      mov.b64 %rd3, map;
      cvta.param.u64 %rd3, %rd3;
      cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r0], [%rd3, {%r2, %r3}], [%r1];
WAIT:
      mbarrier.try_wait.parity.shared::cta.b64 %p0, [%r1], 0;
      @!%p0 bra WAIT;
      mov.u32 %r4, 0;
COPY:
      add.u32 %r5, %r0, %r4;
      ld.shared.u32 %r6, [%r5];
      cvt.u64.u32 %rd1, %r4;
      add.u64 %rd2, %rd0, %rd1;
      st.global.u32 [%rd2], %r6;
      add.u32 %r4, %r4, 4;
      setp.lt.u32 %p1, %r4, 256;
      @%p1 bra COPY;""")
    a = numpy.arange(20 * 48, dtype=numpy.float32).reshape(20, 48).astype(ml_dtypes.bfloat16)
    box = numpy.empty((8, 16), ml_dtypes.bfloat16)
    assert not load_box(1, 1, TensorMap(a, box=(8, 16), swizzle=swizzle), Output(box)).findings
    expected = a[8:16, 16:32].copy()
    if swizzle:  # the 16 bytes of a row of 32 change places where bit 7 of the address is set
        expected[4:] = numpy.roll(expected[4:], 8, axis=1)
    assert (box == expected).all()


def test_clusters():
    rank = kernel(".param .u64 out", """
      ld.param.u64 %rd0, [out];
      mov.u32 %r0, %cluster_ctarank;
      mov.u32 %r1, %ctaid.x;
      mul.wide.u32 %rd1, %r1, 4;
      add.u64 %rd0, %rd0, %rd1;
      st.global.u32 [%rd0], %r0;""")
    x = numpy.empty(4, numpy.int32)
    assert not rank(4, 32, Output(x), cluster=2, allow="data race").findings and x.tolist() == [0, 1, 0, 1]


def test_what_never_ends_is_ended(run_python):
    endless = kernel("", "AGAIN:\nbra AGAIN;")
    assert [f.kind for f in endless(1, 32, step_limit=100000).findings] == ["step limit"]
    waiting = kernel("", "mov.u32 %r0, %tid.x;\nsetp.lt.u32 %p0, %r0, 32;\n@%p0 bar.sync 0, 64;")
    assert [f.kind for f in waiting(1, 64).findings] == ["deadlock"]
    run_python("""
import os, signal, threading
import jit_attention as ja
kernel = ja.emulator.load(".version 8.7\\n.target sm_80\\n.address_size 64\\n.entry k() {\\nAGAIN:\\nbra AGAIN;\\n}\\n")["k"]
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    kernel(1, 32)
except KeyboardInterrupt:
    raise SystemExit(0)
raise SystemExit("it was not interrupted")
""")


@pytest.mark.parametrize("arguments, options, message", [
    ((1,), {}, "k takes 2 parameters, 1 were given"),
    ((None, 2**32), {}, "args[1] (value): is 4294967296, which a parameter of 4 bytes does not hold"),
    ((None, numpy.int64(3)), {}, "args[1] (value): has 8 bytes, the parameter has 4"),
    ((None, b"12345"), {}, "args[1] (value): has 5 bytes, the parameter has 4"),
    ((numpy.array([None]), 3), {}, "args[0] (out): is an array of Python objects; a kernel reads numbers"),
    ((Output(numpy.zeros((4, 4))[:, 1]), 3), {}, "args[0] (out): is an Output of an array that is not contiguous and writeable"),
    ((TensorMap(numpy.zeros((4, 4), numpy.float32), (4,)), 3), {}, "args[0] (out): the box has 1 sizes and the array 2 dimensions"),
    ((TensorMap(numpy.zeros((4, 4), numpy.float32), (4, 4), 16), 3), {}, "args[0] (out): swizzle is 16; it must be 0, 32, 64 or"),
    ((TensorMap(numpy.zeros((4, 4), complex), (4, 4)), 3), {}, "args[0] (out): a tensor map has no elements complex128"),
    ((TensorMap(numpy.zeros((4, 4), numpy.float32).T, (4, 4)), 3), {}, "args[0] (out): has strides (4, 16); the last axis must"),
    ((TensorMap(numpy.zeros((4, 4), numpy.float32), (999, 4)), 3), {}, "args[0] (out): "),
    ((None, 3), {"grid": 0}, "grid (0, 1, 1): each size must be at least 1"),
    ((None, 3), {"grid": (1, 2, 3, 4)}, "grid: is (1, 2, 3, 4); it must be one to three numbers below 2**32"),
    ((None, 3), {"block": 2048}, "block (2048, 1, 1)"),
    ((None, 3), {"block": -1}, "block: is -1; it must be from 0 to 2**64 - 1"),
    ((None, 3), {"cluster": 3}, "cluster (3, 1, 1) does not divide grid (1, 1, 1)"),
    ((None, 3), {"dynamic_shared": 2**40}, "a block can have 232448"),
    ((None, 3), {"level": "hardware"}, "level: is 'hardware'; it must be 'strict' or 'silicon'"),
    ((None, 3), {"allow": ["race"]}, "allow: 'race' is no kind of finding; these are: data race, "),
])  # fmt: skip
def test_wrong_launches(arguments, options, message):
    launch = {"grid": 1, "block": 1} | options
    with pytest.raises(ja.InvalidArgumentError) as raised:
        copying("value", "u32", 4)(launch.pop("grid"), launch.pop("block"), *arguments, **launch)
    assert message in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.parametrize("arguments, message", [
    (("x", 3), r"args\[0\] \(out\): is a str; it must be a NumPy array or scalar"),
    (((numpy.int32(3), 3), 3), r"args\[0\] \(out\): 3 in a struct has no size; give a NumPy scalar"),
    ((Output([1, 2]), 3), r"args\[0\] \(out\): the array is a list; it must be NumPy's"),
])  # fmt: skip
def test_arguments_of_wrong_types(arguments, message):
    with pytest.raises(TypeError, match=message):
        copying("value", "u32", 4)(1, 1, *arguments)
    with pytest.raises(TypeError, match="grid: is 1.5; it must be an int"):
        copying("value", "u32", 4)(1.5, 1, None, 3)


@pytest.mark.parametrize("text, message", [
    ("", "PTX line 1: "),
    (".version 99.0\n.target sm_90\n", "PTX line 1: PTX 99.0 is newer than "),
    (".version 8.7\n.target sm_1\n.address_size 64\n", "PTX line 2: .target sm_1 is no architecture"),
    (BLOCK_SUM.replace("ld.shared.f32", "ld.shared.f31", 1), "PTX line 57: ld.shared.f31: "),
    (BLOCK_SUM.replace("add.f32", "frobnicate.f32", 1), "PTX line 59: frobnicate.f32: the emulator does not know this instruction"),
    (BLOCK_SUM[:900], "PTX line "),
    (b"\xff\xfe", "PTX line 1: "),
])  # fmt: skip
def test_wrong_texts(text, message):
    with pytest.raises(ja.InvalidArgumentError) as raised:
        load(text)
    assert str(raised.value).startswith(message) and "\n" not in str(raised.value), raised.value
    assert raised.value.field == "ptx"


def test_wrong_names():
    with pytest.raises(ja.InvalidArgumentError, match="there is no kernel sum; the module has block_sum"):
        load(BLOCK_SUM)["sum"]
    with pytest.raises(ja.InvalidArgumentError, match="PTX line 9: PTX for sm_80 does not run on|is no architecture"):
        load(BLOCK_SUM, "sm_70")
    with pytest.raises(TypeError, match="ptx: is a int; it must be a str, bytes, or a path"):
        load(3)


def test_the_page_does_what_it_says(tmp_path, capsys, monkeypatch):
    page = (ROOT / "docs/reference/emulate.md").read_text()
    shutil.copytree(ROOT / "emulator/examples", tmp_path / "emulator/examples")
    paths = os.pathsep.join(os.path.abspath(path) for path in sys.path if path)
    monkeypatch.chdir(tmp_path)
    (program,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(compile(program, "page", "exec"), {})
    (printed,) = re.findall(r"prints\n\n(.*?)\n\n", page, re.DOTALL)
    assert capsys.readouterr().out.startswith(" ".join(printed.split()))
    commands = [line.strip() for line in page.splitlines() if line.startswith(("    python3 ", "    jit-attention "))]
    assert len(commands) == 2
    for command, status in zip(commands, (0, 1)):
        for word, here in (("python3", sys.executable), ("jit-attention", f"{sys.executable} -m jit_attention")):
            command = command.replace(word, here)
        done = subprocess.run(command, shell=True, capture_output=True, text=True,
                              env=os.environ | {"PYTHONPATH": paths})  # fmt: skip
        assert done.returncode == status, done
    assert "data race in block_sum" in done.stdout and numpy.load("sums.npy").shape == (4,)
