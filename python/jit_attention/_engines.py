"""Code shared by the attention backends for engines."""

#: Keys per split when bits must not depend on the batch: docs/batch-invariance.md.
SPLIT_KEYS = 512


def check_version(engine, version, served):
    """Raises ImportError, which engines show as the reason why there is no backend, for a version that is not served.

    Args:
        engine: "vLLM".
        version: the one that is installed.
        served: numbers that versions begin with: "0.33" for 0.33.0 and 0.33.1, not for 0.3.3.
    """
    if not any(f"{version}.".startswith(f"{start}.") for start in served):
        raise ImportError(f"jit_attention serves {engine} {', '.join(served)}, and this is {version}: install one that "
                          "it serves, or choose another --attention-backend")
