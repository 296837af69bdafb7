"""What can be configured of a turn-based OpenAI model while it is in use. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, cast

from antiphon.errors import InvalidInputError, InvalidTypeError

_KEYS = {"model_id", "params"}


def checked_config(config: Mapping[str, Any], own: Collection[str]) -> dict[str, Any]:
    """A copy of a configuration that can be used.

    Args:
        config: `model_id` and `params`.
        own: Parameters that a caller cannot set.

    Raises:
        InvalidInputError: If a key is unknown, the model has no name, or a parameter is the model's own to set.
        InvalidTypeError: If `params` is no dict.
    """
    if unknown := sorted(config.keys() - _KEYS):
        raise InvalidInputError(
            f"{unknown[0]!r} cannot be configured: known are {sorted(_KEYS)!r}; parameters go into params"
        )
    model_id: object = config.get("model_id")
    if not isinstance(model_id, str) or not model_id.strip():
        raise InvalidInputError(f"model_id={model_id!r} is not the name of a model")
    params: object = config.get("params")
    if not isinstance(params, Mapping):
        raise InvalidTypeError(f"params is {type(params).__name__}, not a dict of parameters")
    given = dict(cast("Mapping[str, Any]", params))
    if taken := sorted(set(own) & given.keys()):
        raise InvalidInputError(f"params[{taken[0]!r}] cannot be set: the model sets it for each request")
    return {"model_id": model_id, "params": given}
