"""Which messages of a list are known, and private copies of those that are not.

Nobody is trusted about what changed: known messages are compared with a private copy (`jsonable.private_copy`), at the
speed of `==`. Any answer that is correct is good; a better one only writes less.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from antiphon.jsonable import private_copy
from antiphon.store.compact import compact
from antiphon.store.lines import Piece

# A slice of work in microseconds, as estimated from what was measured on a slow core: an event loop may be kept waiting
# for 2 ms.
_SLICE = 500.0
_COMPARE = 0.4
_COPY = 12.0

_BLOCK = 1024  # messages compared by one `==`
_MOVED = 256  # messages that are copied to lie together
_SEARCHED = 512  # messages searched without a look at the time spent
_SEARCHES = 4  # passes over the known messages that may be spent on finding out how they moved

Mask = Callable[[Any], Any]
"""Gives a private copy's replacement, a private copy too, where the message was redacted; else None."""


@dataclass(frozen=True, slots=True)
class Matched:
    """What became known of a list.

    Attributes:
        pieces: The list in runs, without gaps.
        copies: A private copy of each message; of a known one, the known copy itself.
    """

    pieces: tuple[Piece, ...]
    copies: list[Any]


def match(
    messages: Sequence[Any],
    known: Sequence[Any],
    *,
    path: str = "messages",
    mask: Mask | None = None,
    is_private: bool = False,
) -> Generator[None, None, Matched]:
    """Compare a list with private copies of one that is stored.

    Works in slices of at most about 1 ms: let the event loop run at each step. The list is read once, at the first
    step. Runs are found in their order: messages that changed places are new.

    Args:
        messages: What is to be saved; anything JSON can carry, and bytes.
        known: Private copies.
        path: Where the list stands, for errors.
        mask: Asked about every message that is new.
        is_private: `messages` are private copies themselves, which need no checking and may be kept.

    Raises:
        NotJsonError: If a message cannot be stored; with its path.
    """
    current = list(messages)
    copies: list[Any] = []
    found = _Pieces()
    searches = _SEARCHES * (len(known) + _BLOCK)
    spent = 0.0
    at = 0  # the known message that the next one should be
    floor = 0  # first known message that is behind every run found so far
    while len(copies) < len(current):
        index = len(copies)
        run = _run(current, index, known, at)
        if run:
            found.add_known(index, run, at)
            copies += known[at : at + run]
            at = floor = at + run
            spent += run * _COMPARE
        else:
            place = None
            start = floor
            while place is None and searches > 0 and start < len(known):
                stop = min(start + _SEARCHED, len(known))
                place = _find(current[index], known, start, stop)
                searches -= stop - start
                spent += (stop - start) * _COMPARE
                start = stop
                if spent >= _SLICE:
                    spent = 0.0
                    yield
            if place is not None:
                at = place
                continue
            copy = current[index] if is_private else private_copy(current[index], f"{path}[{index}]")
            replaced = mask(copy) if mask is not None else None
            copy = copy if replaced is None else replaced
            spent += _COPY + _size(copy)
            if at < len(known) and known[at] == copy:  # a tuple for a list, or redacted: the same once it is stored
                found.add_known(index, 1, at)
                copies.append(known[at])
                floor = at + 1
            else:
                found.add_new(index)
                copies.append(copy)
            at = min(at + 1, len(known))  # most likely an edit: the next one stands where it stood
        if spent >= _SLICE:
            spent = 0.0
            yield
    _move_together(copies, len(known), found.pieces)
    return Matched(tuple(found.pieces), copies)


def _move_together(copies: list[Any], known: int, pieces: list[Piece]) -> None:
    """Copy a block that appending has just filled once more, in one go (`compact`).

    Copies that were made a turn at a time are scattered all over memory, and slower to walk than those that lie together.
    """
    stop = len(copies) // _MOVED * _MOVED
    is_appended = [piece.known for piece in pieces] == [0, None] and pieces[0].size == known
    if is_appended and known < stop and len(copies) - known < _MOVED:
        copies[stop - _MOVED : stop] = [compact(copy) for copy in copies[stop - _MOVED : stop]]


class _Pieces:
    """Runs, joined where they continue."""

    __slots__ = ("pieces",)

    def __init__(self) -> None:
        self.pieces: list[Piece] = []

    def add_known(self, start: int, size: int, known: int) -> None:
        last = self.pieces[-1] if self.pieces else None
        if last is not None and last.known is not None and last.known + last.size == known:
            self.pieces[-1] = last._replace(size=last.size + size)
        else:
            self.pieces.append(Piece(start, size, known))

    def add_new(self, start: int) -> None:
        last = self.pieces[-1] if self.pieces else None
        if last is not None and last.known is None:
            self.pieces[-1] = last._replace(size=last.size + 1)
        else:
            self.pieces.append(Piece(start, 1, None))


def _run(current: list[Any], index: int, known: Sequence[Any], at: int) -> int:
    """How many messages, at most a block, are as known from here on."""
    block = known[at : at + min(_BLOCK, len(current) - index)]
    if not block:
        return 0
    if _same(block, current[index : index + len(block)]):
        return len(block)
    for offset, one in enumerate(block):
        if not _same(one, current[index + offset]):
            return offset
    return len(block)


def _same(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except (TypeError, ValueError, RecursionError):  # for example an array, whose `==` is no truth: refused when copied
        return False


def _find(message: Any, known: Sequence[Any], start: int, stop: int) -> int | None:
    try:
        return known.index(message, start, stop)
    except (TypeError, ValueError, RecursionError):  # ValueError: not there; the others as in `_same`
        return None


def _size(copy: Any) -> float:
    """Roughly how long copying took beside its fixed part: by what is written large in most messages, their text."""
    content: Any = cast("dict[str, Any]", copy).get("content") if isinstance(copy, dict) else None
    spent = 0.0
    if not isinstance(content, list):
        return spent
    for block in content:  # pyright: ignore[reportUnknownVariableType]
        text: Any = cast("dict[str, Any]", block).get("text") if isinstance(block, dict) else None
        spent += 4.0 + (len(text) * 0.002 if isinstance(text, str) else 0.0)
    return spent
