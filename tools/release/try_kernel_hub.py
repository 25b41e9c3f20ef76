"""Loads kernel_hub.py's repository with Hugging Face's `kernels`, and computes on an emulated GPU.

    python3 tools/release/try_kernel_hub.py FOLDER

Needs the packages kernels and torch, and NVRTC.
"""

import os
import pathlib
import sys
import tempfile

os.environ["JIT_ATTENTION_DEVICE"] = "emulated:sm_90a"
os.environ["JIT_ATTENTION_CACHE_DIR"] = tempfile.mkdtemp()


def check(jit):
    """Compares attention and gradients with PyTorch's."""
    import torch

    generator = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(1, 33, 4, 64, generator=generator, dtype=torch.float16).requires_grad_() for _ in range(3))
    o = jit.attention(q, k, v, mask=jit.mask.causal())
    of_flash = jit.flash_attn_func(q, k, v, causal=True)
    turned = (x.transpose(1, 2).float() for x in (q, k, v))
    exact = torch.nn.functional.scaled_dot_product_attention(*turned, is_causal=True).transpose(1, 2)
    for result in (o, of_flash):
        gradients = torch.autograd.grad(result.float().sum(), (q, k, v), retain_graph=True)
        expected = torch.autograd.grad(exact.sum(), (q, k, v), retain_graph=True)
        for got, wanted in zip((result, *gradients), (exact, *expected)):
            assert (got - wanted).abs().max() < 8e-3, (got - wanted).abs().max()


def main():
    from kernels import get_kernel, get_loaded_kernels, get_local_kernel
    from kernels._rust import Digest, DigestAlgorithm

    folder = pathlib.Path(sys.argv[1]).resolve()
    jit = get_local_kernel(folder)
    check(jit)
    # Loads by the hub's name: a local folder replaces the repository.
    os.environ["LOCAL_KERNELS"] = f"jit-attention/jit-attention={folder}"
    assert get_kernel("jit-attention/jit-attention", version=0).attention is jit.attention
    (loaded,) = get_loaded_kernels()
    for variant in folder.glob("build/*"):
        hashed = Digest.hash_variant(DigestAlgorithm.SHA256, variant)
        assert hashed.files == type(loaded.metadata).read_from_file(variant / "metadata.json").digest.files, variant
    print(f"{loaded.metadata.id} of {pathlib.Path(jit.__file__).parent.name} computes; "
          f"{jit.jit_attention.__version__} from {jit.jit_attention.__path__[0]}")


if __name__ == "__main__":
    main()
