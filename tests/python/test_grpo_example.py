"""examples/grpo.py: the engine's logprobs are the trainer's, bit by bit."""

import importlib.util
import pathlib
import sys

import jit_attention as ja
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")


@pytest.fixture(scope="module")
def example():
    path = pathlib.Path(__file__).parents[2] / "examples" / "grpo.py"
    spec = importlib.util.spec_from_file_location("grpo", path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_there_is_no_difference_of_logprobs(example):
    written = []
    keep = example.trained_logps
    example.trained_logps = lambda model, samples, *rest: (written.append(samples), keep(model, samples, *rest))[1]
    differences, rewards = example.train(steps=3, prompts=1, samples=4, new=4, layers=1, length=100)
    assert differences == [0, 0, 0]
    assert len(rewards) == 3 and all(0 <= reward <= 1 for reward in rewards)
    first, last = written[0], written[-1]
    assert len(first) == 4 and all(len(sample.logps) == 4 for sample in first)
    assert all(sample.pages[:2] == first[0].pages[:2] for sample in first)  # of the prompt, which all share
    assert {sample.drafts for sample in first} == {False, True}
    assert all(-8 < logp < -0.01 for sample in first for logp in sample.logps)  # of 32 tokens, none of which is certain
    assert first[0].logps != last[0].logps  # weights have moved


def test_there_is_one_without_spans(example):
    if not str(ja.devices()[0].arch).startswith("sm_90"):
        pytest.skip("one family has all varlen calls of other GPUs")
    assert example.train(steps=1, prompts=2, samples=4, new=6, layers=1, length=80, split_keys=0)[0][0] > 0
