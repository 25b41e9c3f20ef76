"""examples/serve.py: a model that is trained, served from a paged cache, and answers as the stock one does."""

import importlib.util
import pathlib
import sys

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")
pytest.importorskip("transformers", reason="needs transformers")


@pytest.fixture(scope="module")
def example():
    path = pathlib.Path(__file__).parents[2] / "examples" / "serve.py"
    spec = importlib.util.spec_from_file_location("serve", path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_answers_as_the_stock_model_token_by_token(example):
    server, served, stock, right, *_ = example.serve(steps=150, requests=6, layers=1)
    assert [request.answer for request in served] == stock
    answers = [bytes(request.answer).decode() for request in served]
    assert sum(map(str.__eq__, answers, right)) >= 4, list(zip(answers, right))
    assert server.steps["mixed"] >= 2 and server.steps["decoding"] >= 2
    assert (server.graph is None) == (server.device.type == "cpu")
    assert sorted(server.free_pages) == list(range(64))
    assert any(len(request.prompt) > server.most_tokens for request in served)  # which comes in chunks


def test_requests_wait_for_pages_and_rows(example):
    model = example.trained(example.where(), layers=1, steps=0)
    prompts = [list(range(40, 40 + n)) for n in (9, 17, 5, 12)]

    def answers(**sizes):
        server = example.Server(model, most_tokens=64, **sizes)
        served = [server.add(prompt, 3) for prompt in prompts]
        server.run()
        return [request.answer for request in served], sum(server.steps.values())

    narrow, narrow_steps = answers(pages=5, page_size=4, most_requests=2, seqlen=20)
    wide, wide_steps = answers(pages=16, page_size=16, most_requests=4)
    assert all(narrow) and narrow == wide and narrow_steps > wide_steps
    with pytest.raises(ValueError, match="20 tokens and 3 new ones does not fit"):
        example.Server(model, seqlen=22).add(list(range(20)), 3)


@pytest.mark.parametrize("words, sentence", [
    (["--steps", "-1"], "--steps is -1; it must be 0 or more"),
    (["--requests", "0"], "--requests is 0; it must be 1 or more"),
    (["--layers", "0"], "--layers is 0; it must be 1 or more"),
])  # fmt: skip
def test_wrong_arguments(example, capsys, words, sentence):
    with pytest.raises(SystemExit):
        example.arguments(words)
    assert sentence in capsys.readouterr().err
    assert example.arguments([]) == dict(steps=500, requests=32, layers=2)
