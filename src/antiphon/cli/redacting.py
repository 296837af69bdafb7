"""Words that are taken back, wherever a session holds them as text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import typer

# What the library itself writes under these names is no text of anybody's, and must stay what it is.
_STRUCTURE = frozenset(
    {
        *("role", "kind", "type", "status", "format", "name", "tracking_id", "stop_reason", "state_version"),
        *("toolUseId", "tool_use_id", "response_id", "item_id", "id", "ids", "call_id", "interruptId"),
    }
)
# Below these names stands what users and tools wrote: there, every text is.
_FREE = frozenset({"input", "json", "reason", "response", "custom"})
_FREE_PARTS = frozenset({"data.state", "app_data"})
_UNTOUCHED_PARTS = frozenset({"usage"})


@dataclass(frozen=True, slots=True)
class Redaction:
    """What to replace, and by what.

    Attributes:
        words: What to replace.
        replacement: What stands in its place.
    """

    words: re.Pattern[str]
    replacement: str

    @classmethod
    def of(cls, texts: Sequence[str], patterns: Sequence[str], replacement: str, *, ignore_case: bool) -> Redaction:
        """The redaction of these words.

        Raises:
            typer.BadParameter: If there is none, one is empty, or a pattern cannot be read.
        """
        parts = [re.escape(text) for text in texts] + [f"(?:{pattern})" for pattern in patterns]
        if not parts:
            raise typer.BadParameter("say what to redact: --text or --pattern")
        try:
            words = re.compile("|".join(parts), re.IGNORECASE if ignore_case else 0)
        except re.error as error:
            raise typer.BadParameter(f"a pattern cannot be read: {error}") from error
        if words.search("") is not None:
            raise typer.BadParameter("what is to be redacted must have at least one character")
        return cls(words, replacement)

    def message(self, message: dict[str, Any]) -> dict[str, Any] | None:
        """A message's replacement; None where it holds none of the words."""
        changed = self._within(message, free=False)
        return None if changed == message else cast("dict[str, Any]", changed)

    def part(self, name: str, value: Any) -> Any:
        """What shall stand for a part of a row."""
        return value if name in _UNTOUCHED_PARTS else self._within(value, free=name in _FREE_PARTS)

    def _within(self, value: Any, *, free: bool) -> Any:
        if isinstance(value, str):
            return self.words.sub(lambda _: self.replacement, value)
        if isinstance(value, list):
            return [self._within(item, free=free) for item in cast("Sequence[Any]", value)]
        if isinstance(value, dict):
            return {
                key: item if key in _STRUCTURE and not free else self._within(item, free=free or key in _FREE)
                for key, item in cast("dict[str, Any]", value).items()
            }
        return value
