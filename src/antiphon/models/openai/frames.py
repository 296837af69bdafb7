"""Reading fields of frames that somebody else sent: what is not of the right type is an error that names it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from antiphon.errors import ModelProtocolError


def entry(frame: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """An object in a frame; a missing one, or null, is empty."""
    value: object = frame.get(name)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise unreadable(name, value)
    return cast("Mapping[str, Any]", value)


def entries(frame: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """A list of objects in a frame; a missing one, or null, is empty."""
    value: object = frame.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise unreadable(name, value)
    found: list[Mapping[str, Any]] = []
    for item in cast("Sequence[object]", value):
        if not isinstance(item, Mapping):
            raise unreadable(name, [item])
        found.append(cast("Mapping[str, Any]", item))
    return found


def text(frame: Mapping[str, Any], name: str) -> str:
    """A text in a frame; a missing one, or null, is empty."""
    value: object = frame.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise unreadable(name, value)
    return value


def count(frame: Mapping[str, Any], name: str) -> int:
    """A number of things in a frame; a missing one, or null, is 0."""
    value: object = frame.get(name)
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int):
        raise unreadable(name, value)
    return value


def unreadable(name: str, value: object) -> ModelProtocolError:
    """What is said of a field that cannot be read."""
    return ModelProtocolError(f"the provider sent {name!r} as {type(value).__name__}, which cannot be read")
