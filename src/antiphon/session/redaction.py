"""Redaction of what is at rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from antiphon.content import Message, Messages
from antiphon.errors import NotJsonError
from antiphon.jsonable import copy_json


@dataclass(frozen=True, slots=True)
class Redaction:
    """A message that must not be anywhere any more, and the one to stand in its place.

    Attributes:
        old: The message as it was saved.
        new: The message as it is now. Of one `tracking_id`, every version is the old message.
    """

    old: Message
    new: Message

    def apply(self, value: Any) -> tuple[Any, bool]:
        """`value` (decoded JSON) with every occurrence of the old message replaced, at any depth, and whether there was one.

        Messages are compared by role and content: what is known beside their words may have changed since. `value` is
        not changed.
        """
        if isinstance(value, dict):
            entry = cast("dict[str, Any]", value)
            if self._is_old(entry):
                return copy_json(self.new), True
            items = {key: self.apply(item) for key, item in entry.items()}
            return {key: item for key, (item, _) in items.items()}, any(hit for _, hit in items.values())
        if isinstance(value, list):
            found = [self.apply(item) for item in cast("list[object]", value)]
            return [item for item, _ in found], any(hit for _, hit in found)
        return value, False

    def _is_old(self, entry: dict[str, Any]) -> bool:
        if entry.get("role") != self.old["role"] or "content" not in entry:
            return False
        tracking_id = entry.get("tracking_id")
        if tracking_id and tracking_id == self.old.get("tracking_id"):
            return bool(entry != self.new)
        return bool(entry["content"] == self.old["content"] != self.new["content"])


def redacted(value: Any, redactions: list[Redaction]) -> tuple[Any, bool]:
    """`value` after all of `redactions`, and whether any of them changed it."""
    changed = False
    for redaction in redactions:
        value, hit = redaction.apply(value)
        changed = changed or hit
    return value, changed


class LatestSeen:
    """The versions in which an agent's latest message was told or saved: what a redaction of it must find.

    Copies, because users change messages in place.
    """

    __slots__ = ("_index", "_versions")

    def __init__(self) -> None:
        self._index = -1
        self._versions: list[Message] = []

    def note(self, messages: Messages) -> None:
        """Look at the latest message as it is now."""
        index = len(messages) - 1
        if index < 0:
            return
        try:
            latest: Message = copy_json(messages[index])
        except NotJsonError:
            return  # it can be in no blob
        if index != self._index:
            self._index, self._versions = index, []
        if latest not in self._versions:
            self._versions = [*self._versions[-_VERSIONS:], latest]

    def redactions(self, messages: Messages) -> list[Redaction]:
        """What is to be replaced now that the latest of `messages` was redacted."""
        if not messages:
            return []
        new: Message = copy_json(messages[-1])
        # A history that was trimmed meanwhile counts differently; a message that is still there was not redacted.
        moved = self._index != len(messages) - 1
        return [
            Redaction(old, new)
            for old in self._versions
            if old != new and old["role"] == new["role"] and not (moved and old in messages)
        ]

    def forget(self, messages: Messages) -> None:
        """Know the latest message as it is now only."""
        self._index, self._versions = -1, []
        self.note(messages)


_VERSIONS = 31
