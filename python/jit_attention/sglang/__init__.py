"""An attention backend for SGLang: with this package installed, ``--attention-backend jit_attention``.

SGLang calls `register` in each of its processes, through the entry point ``sglang.srt.plugins``. docs/sglang.md lists
the supported models and options.
"""

import logging

from .._engines import check_version

#: Version prefixes that the backend supports.
SERVED_VERSIONS = ("0.5.23",)

NAME = "jit_attention"
_log = logging.getLogger("jit_attention")


def register():
    """Adds the backend to SGLang's registry and command-line choices. Calling it again changes nothing.

    Never raises: it runs wherever this package is installed beside SGLang. `create` checks SGLang's version.
    """
    try:
        from sglang.srt.arg_groups import choices
        from sglang.srt.layers.attention.attention_registry import register_attention_backend
    except ImportError as error:
        _log.warning("this SGLang has no registry of attention backends (%s): pip install 'sglang==%s'", error,
                     SERVED_VERSIONS[-1])
        return
    register_attention_backend(NAME)(create)
    for names in (choices.ATTENTION_BACKEND_CHOICES, choices.DETERMINISTIC_ATTENTION_BACKEND_CHOICES,
                  choices.RADIX_SUPPORTED_DETERMINISTIC_ATTENTION_BACKEND):
        if NAME not in names:
            names.append(NAME)
    try:
        from .nvfp4 import allow

        allow()
    except (AttributeError, ImportError, KeyError, TypeError, ValueError) as error:  # of a version that create() refuses
        _log.warning("this SGLang does not let other backends have caches of nvfp4 (%s)", error)


def create(model_runner):
    """The backend for a model; raises ImportError for an unsupported version of SGLang."""
    import sglang

    check_version("SGLang", sglang.__version__, SERVED_VERSIONS)
    from sglang.srt.mem_cache.memory_pool import DSATokenToKVPool, MiniMaxSparseKVPool

    pool = type(model_runner.token_to_kv_pool)
    if pool is DSATokenToKVPool:
        from .sparse import JitAttentionSparseBackend as Backend
    elif pool is MiniMaxSparseKVPool:
        from .minimax_m3 import JitAttentionDenseBackend as Backend
        from .minimax_m3 import take_part

        take_part()
    else:
        from .backend import JitAttentionBackend as Backend
    return Backend(model_runner)


def pass_parts_of_queries():
    """Has SGLang's latent layers call this backend as those that read chosen or shared latents: by parts of queries."""
    from sglang.srt.models.deepseek_common import utils

    if NAME not in utils.FORWARD_ABSORB_CORE_ATTENTION_BACKENDS:
        utils.FORWARD_ABSORB_CORE_ATTENTION_BACKENDS.append(NAME)


def refuse(what, instead):
    """Says what is not served, and what would work."""
    raise NotImplementedError(f"jit_attention.sglang does not serve {what}: {instead}")
