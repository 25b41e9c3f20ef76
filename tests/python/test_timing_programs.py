"""The programs of bench/ that want a GPU: what they say where there is none."""

import pathlib
import subprocess
import sys

import pytest

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))

from comparison import environment  # noqa: E402

PROGRAMS = {
    "block_lists_time": [],
    "block_mask_time": [],
    "block_reader_time": [],
    "dropout_time": [],
    "engine_host_time": [],
    "equal_runs": [],
    "gradient_accuracy": [],
    "gate_time": [],
    "invariant_time": [],
    "jax_time": [],
    "latent_lists_time": [],
    "list_draws": [],
    "list_gradients_time": [],
    "nsa_time": [],
    "output_time": [],
    "quantized_output_time": [],
    "quantizer_time": [],
    "vllm_engine": [],
    "serving_configs": ["paged/b16-h32/8-kv8192-p16"],
}


def run(program, *arguments):
    return subprocess.run([sys.executable, BENCH / f"{program}.py", *arguments], capture_output=True, text=True)


@pytest.mark.parametrize("program", PROGRAMS)
def test_without_a_gpu_one_sentence_and_exit_2(program):
    if environment.no_gpu() is None:
        pytest.skip("there is a GPU here")
    done = run(program, *PROGRAMS[program])
    assert done.returncode == 2 and "measuring needs" in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("program", PROGRAMS)
def test_help_and_wrong_arguments_need_no_gpu(program):
    offered, refused = run(program, "--help"), run(program, "--nonsense")
    assert offered.returncode == 0 and offered.stdout.startswith(f"usage: {program}.py") and not offered.stderr
    assert refused.returncode == 2 and f"{program}.py: error: " in refused.stderr
