#!/usr/bin/env python3
"""Host time inside the vLLM backend, in microseconds: what a layer and a step pay in eager mode until work is queued.

A step is what vLLM's model runner does of it: metadata is built once, then each layer stores its new keys and values
and attends. A step is measured from an idle stream that has room for all its launches, so that the GPU's time is not in
the figures; the driver's launches are. Figures are medians of steps, with the fastest beside them. "calls" counts
functions of Python and of C that Python calls in one layer.

    bench/engine_host_time.py                    vLLM's own classes, on a GPU
    bench/engine_host_time.py --stand-ins        no vLLM: classes with the same fields, those of the tests
    JIT_ATTENTION_DEVICE=emulated:sm_90a bench/engine_host_time.py --stand-ins --layers 1 --seconds 0
                                                 no GPU: tries the program; times are the emulator's

Ordinary layers have 32 heads over 8 of head_dim 128 and pages of 16, latent ones 16 heads over latents of 512 + 64 and
pages of 64. "mixed" is 15 requests that decode and a chunk of a prompt. Contexts are 256 tokens.

Exit status 2 without a GPU, without vLLM, and for wrong arguments.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import statistics
import sys
import time
import types

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from comparison import environment  # noqa: E402

CONTEXT = 256
CHUNK = 128  # of a prompt, in a mixed step: the most that reads latents
BATCHES = {"decode 1": [1], "decode 16": [1] * 16, "decode 64": [1] * 64, "mixed": [1] * 15 + [CHUNK]}
HEADS, HEADS_KV, HEAD_DIM = 32, 8, 128
LATENT_HEADS, LATENT, ROTATED = 16, 512, 64
WARM_STEPS = 3


class Step:
    """A step's requests in vLLM's form. new: tokens of each request."""

    def __init__(self, torch, device, new, page_size):
        from vllm.v1.attention.backend import CommonAttentionMetadata

        self.tokens, requests = sum(new), len(new)
        pages = -(-(CONTEXT + max(new)) // page_size)
        self.pages = requests * pages
        table = torch.arange(self.pages, dtype=torch.int32, device=device).view(requests, pages)
        slots = [page_size * pages * b + CONTEXT + i for b, n in enumerate(new) for i in range(n)]
        self.slots = torch.tensor(slots, dtype=torch.int64, device=device)
        starts = torch.tensor([sum(new[:b]) for b in range(requests + 1)], dtype=torch.int32)
        lengths = torch.tensor([CONTEXT + n for n in new], dtype=torch.int32)
        self.common = CommonAttentionMetadata(
            query_start_loc=starts.to(device), query_start_loc_cpu=starts, num_reqs=requests,
            seq_lens=lengths.to(device), num_actual_tokens=self.tokens, max_query_len=max(new),
            max_seq_len=CONTEXT + max(new), block_table_tensor=table, slot_mapping=self.slots, causal=True)


def ordinary_layer(torch, device, new, cache_dtype):
    """Functions that build a step's metadata, store a layer's keys and values, and attend; the last two take metadata.
    """
    from jit_attention.vllm.backend import JitAttentionBackend as Backend

    step = Step(torch, device, new, 16)
    made = torch.uint8 if cache_dtype.startswith("fp8") else torch.bfloat16
    columns = HEAD_DIM + 4 if cache_dtype == "fp8_per_token_head" else HEAD_DIM
    cache = torch.zeros(step.pages, 16, HEADS_KV, 2 * columns, dtype=made, device=device).transpose(1, 2)
    q, out = (torch.zeros(step.tokens, HEADS, HEAD_DIM, dtype=torch.bfloat16, device=device) for _ in range(2))
    k, v = (torch.zeros(step.tokens, HEADS_KV, HEAD_DIM, dtype=torch.bfloat16, device=device) for _ in range(2))
    one = torch.ones((), device=device)
    layer = types.SimpleNamespace(_k_scale=one, _v_scale=one)
    impl = Backend.get_impl_cls()(HEADS, HEAD_DIM, HEAD_DIM**-0.5, HEADS_KV, kv_cache_dtype=cache_dtype)
    config = types.SimpleNamespace(compilation_config=types.SimpleNamespace(cudagraph_num_of_warmups=0))
    builder = Backend.get_builder_cls()(None, ["layer"], config, torch.device(device))
    return (lambda: builder.build(0, step.common),
            lambda metadata: impl.do_kv_cache_update(layer, k, v, cache, metadata.slot_mapping),
            lambda metadata: impl.forward(layer, q, k, v, cache, metadata, out))


def latent_layer(torch, device, new, cache_dtype):
    """Such functions for a layer with latent attention: vLLM's calls of the backend, without projections."""
    import vllm.config
    from jit_attention.vllm import mla

    step = Step(torch, device, new, 64)
    columns = LATENT + ROTATED
    cache = torch.zeros(step.pages, 64, columns, dtype=torch.bfloat16, device=device)
    q = [torch.zeros(step.tokens, LATENT_HEADS, n, dtype=torch.bfloat16, device=device) for n in (LATENT, ROTATED)]
    latents = torch.zeros(step.tokens, LATENT, dtype=torch.bfloat16, device=device)
    rotated = torch.zeros(step.tokens, 1, ROTATED, dtype=torch.bfloat16, device=device)
    arguments = (LATENT_HEADS, columns, 0.07, 1, None, None, cache_dtype, None, "decoder", None)
    widths = dict(q_lora_rank=None, kv_lora_rank=LATENT, qk_nope_head_dim=128, qk_rope_head_dim=ROTATED,
                  qk_head_dim=128 + ROTATED, v_head_dim=128, kv_b_proj=None)
    if hasattr(vllm.config, "VllmConfig"):
        config = vllm.config.VllmConfig(device_config=vllm.config.DeviceConfig(device))
        with vllm.config.set_current_vllm_config(config):
            impl = mla.JitAttentionMLAImpl(*arguments, **widths)
    else:
        impl = mla.JitAttentionMLAImpl(*arguments, **widths)
    # vLLM's constructor needs a whole engine, for prompts that the backend does not read.
    builder = object.__new__(mla.JitAttentionMLAMetadataBuilder)
    builder.device, builder.use_pcp, builder.dcp_world_size = torch.device(device), False, 1
    builder.non_causal_multi_token_decode, builder.metadata_cls = False, mla.MLACommonMetadata
    builder.model_config = types.SimpleNamespace(get_head_size=lambda: columns)
    return (lambda: builder.build(0, step.common),
            lambda metadata: impl.do_kv_cache_update(latents, rotated, cache, step.slots, cache_dtype, None),
            lambda metadata: impl.forward_mqa(tuple(q), cache, metadata, None))


LAYERS = {
    "bf16": (ordinary_layer, "auto"),
    "fp8": (ordinary_layer, "fp8_e4m3"),
    "fp8 per token and head": (ordinary_layer, "fp8_per_token_head"),
    "latent": (latent_layer, "auto"),
}


def calls_of(function, *arguments):
    """The number of calls by Python during `function`: its own functions, C functions, and Python functions that these
    call."""
    count = [0]

    def note(frame, event, argument):
        count[0] += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        function(*arguments)
    finally:
        sys.setprofile(None)
    return count[0] - 1  # the last one is setprofile


def measured(functions, layers, synchronize, seconds):
    """Samples in microseconds: building a step; for each layer storing, attending, and both."""
    build, store, attend = functions
    samples = dict(build=[], store=[], attend=[], layer=[])
    until = time.perf_counter() + seconds
    for step in range(1 << 30):
        begin = time.perf_counter_ns()
        metadata = build()
        built = time.perf_counter_ns()
        for _ in range(layers):
            store(metadata)
            attend(metadata)
        end = time.perf_counter_ns()
        synchronize()
        parts = []
        for function in (store, attend):
            before = time.perf_counter_ns()
            for _ in range(layers):
                function(metadata)
            parts.append(time.perf_counter_ns() - before)
            synchronize()
        if step >= WARM_STEPS:
            samples["build"].append((built - begin) / 1e3)
            for name, time_ns in zip(("layer", "store", "attend"), (end - built, *parts)):
                samples[name].append(time_ns / 1e3 / layers)
            if time.perf_counter() >= until:
                break
    metadata = build()
    return samples, calls_of(store, metadata) + calls_of(attend, metadata)


def prepare(parser, options):
    """(torch, device name, synchronize function); exits on errors."""
    emulated = os.environ.get("JIT_ATTENTION_DEVICE", "").startswith("emulated")
    if not emulated or importlib.util.find_spec("torch") is None:
        environment.require_gpu(parser)
    if options.stand_ins:
        sys.path.insert(0, str(HERE.parent / "tests" / "python"))
        import vllm_stand_ins

        vllm_stand_ins.install()
    elif importlib.util.find_spec("vllm") is None:
        parser.exit(2, f"{parser.prog}: measuring needs vLLM, which is not installed; --stand-ins does without\n")
    import torch

    return torch, "cpu" if emulated else "cuda", (lambda: None) if emulated else torch.cuda.synchronize


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stand-ins", action="store_true", help="of vLLM's classes")
    parser.add_argument("--layers", type=int, default=32, metavar="N", help="of a step (32)")
    parser.add_argument("--kinds", nargs="+", choices=LAYERS, default=list(LAYERS), help="of layers (all)")
    parser.add_argument("--batches", nargs="+", choices=BATCHES, default=list(BATCHES), help="(all)")
    parser.add_argument("--seconds", type=float, default=0.5, metavar="S", help="for each row, at least one step (0.5)")
    parser.add_argument("--out", type=pathlib.Path, metavar="FILE.jsonl", help="lines of JSON are put behind its own")
    options = parser.parse_args(arguments)
    if not 1 <= options.layers <= 256:  # more launches than a stream queues
        parser.error(f"argument --layers: {options.layers}, which is not from 1 to 256")
    os.environ.setdefault("JIT_ATTENTION_TUNING", "off")
    torch, device, synchronize = prepare(parser, options)
    import vllm
    from comparison import records

    whose = "stand-ins of vLLM" if options.stand_ins else f"vLLM {vllm.__version__}"
    where = environment.one_line() if device == "cuda" else "An emulated GPU, whose time is in all figures."
    print(f"{where} {whose}, {options.layers} layers.\n")
    print("| µs, median (fastest) | build, a step | store, a layer | attend, a layer | both, a layer "
          "| calls, a layer |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    lines = [environment.describe(sys.argv, [], vllm=whose, layers=options.layers)] if device == "cuda" else []
    for kind in options.kinds:
        make, cache_dtype = LAYERS[kind]
        for batch in options.batches:
            with torch.inference_mode():  # as in vLLM
                functions = make(torch, device, BATCHES[batch], cache_dtype)
                samples, calls = measured(functions, options.layers, synchronize, options.seconds)
            cells = [f"{statistics.median(samples[name]):.1f} ({min(samples[name]):.1f})"
                     for name in ("build", "store", "attend", "layer")]
            print(f"| {kind}, {batch} | {' | '.join(cells)} | {calls} |", flush=True)
            spreads = {f"{name}_us": records.spread(values) for name, values in samples.items()}
            lines.append(dict(kind="result", layer=kind, batch=batch, calls=calls, **spreads))
    if options.out:
        with options.out.open("a") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
