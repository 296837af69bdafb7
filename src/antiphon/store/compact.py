"""Private copies of messages whose dicts take about half the room; their words take what they take.

A list that is saved whole after each turn is compared whole with what is stored, and that waits for memory more than for
anything else: the less there is to read, the sooner it is done. A dict of one's own carries a table of keys (some 100 bytes);
dicts that began as the attributes of one class share theirs (PEP 412). To everybody they are plain dicts, and where a Python
has no such thing, they are no worse than others.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, cast

from antiphon.content import (
    ContentBlock,
    ImageContent,
    ImageSource,
    Message,
    MessageMetadata,
    ToolResult,
    ToolUse,
)

# Only these: Python may keep the names of attributes for as long as the process lives, and a message may come from anywhere.
_FIELDS = frozenset[str]().union(
    *(
        kind.__annotations__
        for kind in (Message, MessageMetadata, ContentBlock, ToolUse, ToolResult, ImageContent, ImageSource)
    )
)
_SHAPES = 256  # tables at hand
_TRIED = 32  # Python makes room for up to 30 keys at first, and learns from the first dicts how few there are


def compact(copy: Any) -> Any:
    """The same once more: a private copy (`jsonable.private_copy`) that is equal, and shares no dict or list with it."""
    if isinstance(copy, dict):
        return _compact_dict(cast("dict[str, Any]", copy))
    if isinstance(copy, list):
        return [compact(value) for value in copy]  # pyright: ignore[reportUnknownVariableType]
    return copy


def _compact_dict(copy: dict[str, Any]) -> dict[str, Any]:
    if not _FIELDS.issuperset(copy):
        return {key: compact(value) for key, value in copy.items()}
    result = _shaped(tuple(copy)).copy()
    for key, value in copy.items():
        result[key] = compact(value)
    return result


@lru_cache(_SHAPES)
def _shaped(keys: tuple[str, ...]) -> dict[str, None]:
    """A dict with these keys; copies of it share their table."""

    class Shape:
        pass

    for _ in range(_TRIED):
        one = Shape()
        for key in keys:
            setattr(one, key, None)
    shaped: dict[str, None] = one.__dict__  # pyright: ignore[reportPossiblyUnboundVariable]
    return shaped
