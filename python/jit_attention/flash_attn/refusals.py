"""Refuses flash-attention features that this package lacks, with errors under its parameter names."""

import contextlib

from ..errors import InvalidArgumentError, InvalidSpecError

_INSTEAD = {
    "qv": "give q and qv side by side as q, and k and v side by side as k, up to a head dim of 512 together",
    "gather_kv_indices": "keys are not picked for each query: say which ones it sees by a mask of your own, "
    "jit_attention.mask.text, and call jit_attention.torch.attention",
    "score_mod": "functions of CuTe are not read: write it as jit_attention.score.text, and call "
    "jit_attention.torch.attention",
    "score_mod_bwd": "scores are differentiated as they are: leave it out",
    "mask_mod": "functions of CuTe are not read: write it as jit_attention.mask.text, and call "
    "jit_attention.torch.attention",
    "aux_tensors": "only score_mod and mask_mod read them: name them in jit_attention.score.text or mask.text",
    "aux_scalars": "only score_mod and mask_mod read them: make them constants of jit_attention.score.text or "
    "mask.text",
    "block_sparse_tensors": "which tiles are skipped follows from the mask: write it as jit_attention.mask.text, and "
    "call jit_attention.torch.attention",
    "block_sparse_tensors_bwd": "which tiles are skipped follows from the mask: leave it out",
    "seqlen_k_per_split": "for bits that do not depend on the batch call jit_attention.torch.attention with split_keys",
    "virtual_batch_idx": "states are merged in the order they have: leave it out",
}


def refuse(argument, message):
    raise InvalidArgumentError(f"{argument}: {message}", "arguments", argument)


def refuse_given(**arguments):
    """Raises for the first argument that is not None."""
    for name, value in arguments.items():
        if value is not None:
            refuse(name, f"is given, and not served; {_INSTEAD[name]}")


@contextlib.contextmanager
def known_as(**names):
    """Renames arguments in this package's errors for the caller: ``known_as(k="k_cache")``."""
    try:
        yield
    except (InvalidArgumentError, InvalidSpecError) as error:
        name = names.get(error.field)
        if name is None:
            raise
        message = f"{name}{error.message.removeprefix(error.field)}"
        raise type(error)(message, error.stage, name) from None
