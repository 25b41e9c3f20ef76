#!/usr/bin/env python3
"""vLLM's engine with jit_attention's backends, on small models of random weights, beside Transformers in fp32.

    bench/vllm_engine.py                         every engine of the table, each in a process of its own
    bench/vllm_engine.py llama mla-graphs        these
    bench/vllm_engine.py --jobs 4                so many at once, since most of the time is vLLM's start

Each engine answers prompts of 1 to 700 tokens greedily. A model of the same weights in fp32 then says how many of the
tokens are its first choice after the same text ("first choice"), how much less likely the worst of the others is in its
eyes ("worst gap"), and how far logprobs are from its own ("logprobs"). 16 bits move choices of random weights, so the
yardstick is another backend of vLLM's. Engines of one model are compared token by token, too.

Needs a GPU, PyTorch, vLLM and Transformers. Exit status 1 when an engine fails, 2 for wrong arguments or without these.
"""

import argparse
import concurrent.futures
import importlib.util
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from comparison import environment  # noqa: E402

LATENT = dict(block_size=64, max_num_batched_tokens=128, max_num_seqs=8)  # chunks short enough to read latents


def graphs(mode):
    return dict(enforce_eager=False, compilation_config={"mode": 0, "cudagraph_mode": mode,
                                                         "cudagraph_capture_sizes": [1, 2, 4, 8, 16]})


# Model, backend and arguments of vllm.LLM.
ENGINES = {
    "llama": ("llama", "CUSTOM", {}),
    "llama-triton": ("llama", "TRITON_ATTN", {}),
    "llama-graphs": ("llama", "CUSTOM", graphs("FULL")),
    "llama-chunks": ("llama", "CUSTOM", dict(max_num_batched_tokens=192)),
    "llama-fp8": ("llama", "CUSTOM", dict(kv_cache_dtype="fp8_e4m3")),
    "llama-fp8-triton": ("llama", "TRITON_ATTN", dict(kv_cache_dtype="fp8_e4m3")),
    "llama-fp8-per-token": ("llama", "CUSTOM", dict(kv_cache_dtype="fp8_per_token_head")),
    "mistral": ("mistral", "CUSTOM", {}),
    "mistral-triton": ("mistral", "TRITON_ATTN", {}),
    "mla": ("deepseek", "CUSTOM", LATENT),
    "mla-graphs": ("deepseek", "CUSTOM", LATENT | graphs("FULL_DECODE_ONLY")),
}
PROMPTS = (5, 37, 128, 300, 700, 1)  # tokens
NEW = 32
VOCABULARY = 1024
SECONDS = 300  # per engine, including vLLM's start
RECORD = "RECORD "


def prompts():
    source = random.Random(3)
    return [[source.randrange(3, VOCABULARY) for _ in range(count)] for count in PROMPTS]


def make_model(kind, folder):
    """Writes a configuration and seeded random weights for `from_pretrained`."""
    import torch
    import transformers

    torch.manual_seed(0)
    shape = dict(vocab_size=VOCABULARY, hidden_size=512, intermediate_size=1024, num_hidden_layers=4,
                 max_position_embeddings=4096, tie_word_embeddings=False, initializer_range=0.08, bos_token_id=1,
                 eos_token_id=2)
    heads = dict(num_attention_heads=8, num_key_value_heads=2, head_dim=64)
    if kind == "llama":
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**shape, **heads))
    elif kind == "mistral":
        model = transformers.MistralForCausalLM(transformers.MistralConfig(**shape, **heads, sliding_window=100))
    else:  # latents of 512 + 64, no expert layer
        model = transformers.DeepseekV2ForCausalLM(transformers.DeepseekV2Config(
            **shape, num_attention_heads=16, num_key_value_heads=16, kv_lora_rank=512, q_lora_rank=None,
            qk_rope_head_dim=64, qk_nope_head_dim=128, v_head_dim=128, n_routed_experts=2, n_shared_experts=1,
            num_experts_per_tok=1, moe_intermediate_size=64, n_group=1, topk_group=1,
            first_k_dense_replace=shape["num_hidden_layers"], head_dim=64))
    model.to(torch.bfloat16).save_pretrained(folder)


def in_fp32(folder, answers):
    """The answers' tokens and logprobs under the fp32 model, after the same text."""
    import torch
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    model = model.cuda().eval()
    tokens = first_choice = 0
    gap = logprob = 0.0
    for prompt, (chosen, logprobs) in zip(prompts(), answers):
        text = torch.tensor([prompt + chosen], device="cuda")
        with torch.no_grad():
            logits = model(text, use_cache=False).logits[0, len(prompt) - 1 : -1].float()
        expected = logits.log_softmax(-1)
        own = expected.gather(1, torch.tensor(chosen, device="cuda")[:, None])[:, 0]
        best = expected.max(-1)
        tokens += len(chosen)
        first_choice += sum(int(a == b) for a, b in zip(best.indices.tolist(), chosen))
        gap = max(gap, float((best.values - own).max()))
        logprob = max(logprob, float((own.cpu() - torch.tensor(logprobs)).abs().max()))
    return dict(tokens=tokens, first_choice=first_choice, worst_gap=round(gap, 3), logprobs=round(logprob, 3))


def register_plugin(folder):
    """Writes the metadata of an installation by pip: vLLM, also in its subprocesses, finds the backend by this entry
    point."""
    info = pathlib.Path(folder) / "jit_attention-0.0.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: jit-attention\nVersion: 0.0.0\n")
    (info / "entry_points.txt").write_text("[vllm.general_plugins]\njit_attention = jit_attention.vllm:register\n")
    sys.path.append(str(folder))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(folder))))


def run_engine(name, folder):
    """Runs one engine in this process. Returns its record."""
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    os.environ.setdefault("VLLM_USE_FLASHINFER_SAMPLER", "0")
    _, backend, options = ENGINES[name]
    with tempfile.TemporaryDirectory() as entry:
        register_plugin(entry)
        import torch
        import vllm

        defaults = dict(enforce_eager=True, skip_tokenizer_init=True, dtype="bfloat16", max_model_len=2048,
                        max_num_seqs=16, enable_prefix_caching=False, seed=0, disable_log_stats=True,
                        gpu_memory_utilization=0.2, kv_cache_memory_bytes=1 << 30)
        engine = vllm.LLM(model=str(folder), attention_backend=backend, **defaults | options)
        sampling = vllm.SamplingParams(temperature=0, max_tokens=NEW, ignore_eos=True, logprobs=1, detokenize=False)
        outputs = engine.generate([dict(prompt_token_ids=p) for p in prompts()], sampling, use_tqdm=False)
    answers = []
    for output in outputs:
        tokens = list(output.outputs[0].token_ids)
        answers.append((tokens, [by_token[t].logprob for t, by_token in zip(tokens, output.outputs[0].logprobs)]))
    layers = engine.llm_engine.vllm_config.compilation_config.static_forward_context.values()
    classes = sorted({layer.get_attn_backend().__name__ for layer in layers if hasattr(layer, "get_attn_backend")})
    return dict(engine=name, classes=classes, vllm=vllm.__version__, torch=torch.__version__,
                gpu=torch.cuda.get_device_name(), **in_fp32(folder, answers), answers=[tokens for tokens, _ in answers])


def run_apart(name, folder):
    """Runs the engine in a separate process."""
    command = [sys.executable, __file__, "--folder", str(folder), name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return dict(engine=name, error=f"no answer for {SECONDS} s")
    for line in done.stdout.splitlines():
        if line.startswith(RECORD):
            return json.loads(line[len(RECORD):])
    return dict(engine=name, error="\n".join((done.stdout + done.stderr).splitlines()[-15:]))


def print_records(records):
    print("| engine | class | first choice | worst gap | logprobs |\n| --- | --- | ---: | ---: | ---: |")
    for record in records.values():
        if "error" in record:
            print(f"| {record['engine']} | failed |  |  |  |")
        else:
            print(f"| {record['engine']} | {', '.join(record['classes'])} | {record['first_choice']} of "
                  f"{record['tokens']} | {record['worst_gap']} | {record['logprobs']} |")
    for record in records.values():
        first = next((r for r in records.values() if ENGINES[r["engine"]][0] == ENGINES[record["engine"]][0]), record)
        if first is record or "error" in record or "error" in first:
            continue
        same = sum(a == b for a, b in zip(first["answers"], record["answers"]))
        print(f"\n{first['engine']} and {record['engine']}: the same tokens for {same} of {len(PROMPTS)} requests")
    for record in records.values():
        if "error" in record:
            print(f"\n{record['engine']}: {record['error']}", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engines", nargs="*", metavar="ENGINE", help=f"of {', '.join(ENGINES)}; default: all")
    parser.add_argument("--jobs", type=int, default=1, help="engines at once (1)")
    parser.add_argument("--out", type=pathlib.Path, help="file of JSON lines to append to")
    parser.add_argument("--folder", type=pathlib.Path, help=argparse.SUPPRESS)  # of the model: one engine, here
    options = parser.parse_args()
    if unknown := [name for name in options.engines if name not in ENGINES]:
        parser.error(f"no engine {unknown[0]}; there are {', '.join(ENGINES)}")
    if options.jobs < 1:
        parser.error(f"--jobs {options.jobs}: at least 1")
    environment.require_gpu(parser)
    if missing := [name for name in ("vllm", "transformers", "jit_attention") if importlib.util.find_spec(name) is None]:
        parser.exit(2, f"{parser.prog}: measuring needs {missing[0]}, which is not installed\n")
    if options.folder is not None:
        print(RECORD + json.dumps(run_engine(options.engines[0], options.folder)), flush=True)
        os._exit(0)  # vLLM's threads may outlive the engine
    names = options.engines or list(ENGINES)
    with tempfile.TemporaryDirectory() as models:
        folders = {kind: pathlib.Path(models) / kind for kind in sorted({ENGINES[name][0] for name in names})}
        for kind, folder in folders.items():
            make_model(kind, folder)
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            done = pool.map(lambda name: run_apart(name, folders[ENGINES[name][0]]), names)
            records = dict(zip(names, done))
    print(environment.one_line(), "", sep="\n")
    print_records(records)
    if options.out is not None:
        with options.out.open("a") as file:
            lines = [environment.describe(sys.argv, []), *(dict(kind="result", **r) for r in records.values())]
            file.writelines(json.dumps(line) + "\n" for line in lines)
    return int(any("error" in record for record in records.values()))


if __name__ == "__main__":
    sys.exit(main())
