"""What was settled lately and may still turn out to be otherwise: late words, late reports of the loudspeaker."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import cast

from antiphon.content import ContentBlock, Message, MessageMetadata
from antiphon.conversation.effects import Commit, Effect, Insert, Remove, Replace
from antiphon.conversation.lines import Line

_KEPT = 32
_OURS = ("kind", "response_id", "interrupted", "generated_text", "heard_ms")
"""What the conversation writes into a message's metadata; the rest is other people's."""


class _Settled:
    """A settled line, the message that stands for it, and the first message that was committed after it."""

    __slots__ = ("_as_made", "before", "line", "message")

    def __init__(self, line: Line, message: Message | None) -> None:
        self.line = line
        self.before: Message | None = None
        self.message: Message | None = None
        self._as_made: tuple[list[ContentBlock], str] = ([], "")
        self.stands(message)

    def stands(self, message: Message | None) -> None:
        """From now on `message` stands for it."""
        self.message = message
        if message is not None:
            self._as_made = copy.deepcopy(message["content"]), _generated(message)

    @property
    def untouched(self) -> bool:
        """Whether nobody else changed the message, which is shared with everybody who reads the history."""
        message = self.message
        return message is None or (message["content"], _generated(message)) == self._as_made


def _generated(message: Message) -> str:
    return message.get("metadata", {}).get("generated_text", "")


class Corrections:
    """The last few settled lines."""

    __slots__ = ("_settled",)

    def __init__(self) -> None:
        self._settled: list[_Settled] = []

    def __iter__(self) -> Iterator[Line]:
        return iter([settled.line for settled in self._settled])

    def add(self, line: Line, message: Message | None) -> None:
        """A line was settled that may still change. It was committed as `message`, or nothing was."""
        self._settled.append(_Settled(line, message))
        del self._settled[:-_KEPT]

    def committed(self, message: Message) -> None:
        """Something was committed."""
        for settled in self._settled:
            if settled.before is None and settled.message is not message:
                settled.before = message

    def find(self, wanted: Callable[[Line], bool]) -> Line | None:
        """The line that is wanted, the newest first."""
        return next((settled.line for settled in reversed(self._settled) if wanted(settled.line)), None)

    def forget(self, wanted: Callable[[Line], bool]) -> None:
        """Nothing more comes of these lines."""
        self._settled = [settled for settled in self._settled if not wanted(settled.line)]

    def revise(self, line: Line, new: Message | None) -> list[Effect]:
        """A line says something else than was thought.

        A message that somebody changed meanwhile, such as a redaction, stays as it is.
        """
        index = next((i for i, settled in enumerate(self._settled) if settled.line is line), None)
        if index is None:
            return []
        settled = self._settled[index]
        old = settled.message
        if not settled.untouched:
            del self._settled[index]
            return []
        if old is None:
            return [] if new is None else [self._put_in(settled, new, self._settled[:index])]
        if new is None:
            settled.stands(None)
            self._anchor(old, settled.before)
            return [Remove(old)]
        if new["content"] == old["content"]:
            return []
        new = _with_additions(old, new)
        settled.stands(new)
        self._anchor(old, new)
        return [Replace(old, new)]

    def _put_in(self, settled: _Settled, new: Message, earlier: list[_Settled]) -> Effect:
        before = settled.before
        settled.stands(new)
        for other in earlier:
            if other.before is before:
                other.before = new
        return Commit((new,)) if before is None else Insert(new, before)

    def _anchor(self, old: Message, new: Message | None) -> None:
        for settled in self._settled:
            if settled.before is old:
                settled.before = new


def _with_additions(old: Message, new: Message) -> Message:
    """`new`, with what others wrote beside the content of `old`."""
    merged: Message = {**old, **new}
    theirs = {key: value for key, value in old.get("metadata", {}).items() if key not in _OURS}
    metadata = cast("MessageMetadata", {**theirs, **new.get("metadata", {})})
    if metadata:
        merged["metadata"] = metadata
    return merged
