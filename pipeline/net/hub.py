"""The Hugging Face Hub, as far as it serves models."""

from __future__ import annotations

from pathlib import Path

_ANSWER_S = 10.0
"""Seconds to wait for the Hub's answer."""


def only_cached(model: str) -> bool:
    """Return whether a model can be read only from the cache of the Hub, because the Hub does not answer.

    The libraries that load a model find this out for themselves, but ask again for each file: without a network, that
    takes more than a minute, also for a model that is in the cache. False for a folder. Needs `huggingface_hub`.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    if Path(model).exists():
        return False
    try:
        HfApi().model_info(model, timeout=_ANSWER_S)
    except (HfHubHTTPError, ValueError):  # an answer, or no name that the Hub can have
        return False
    except Exception:  # noqa: BLE001 - the client passes on the exceptions of its HTTP library
        return True
    return False
