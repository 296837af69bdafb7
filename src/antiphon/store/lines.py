"""Lines: how a row names its messages, and which of them a save has to write.

A *line* is an append-only run of messages, and a *span* `(line, start, stop)` a part of one. A row names its messages by at
most `MOST_SPANS` spans. So a turn that adds two messages appends two to the line its conversation ends on; a branch opens
a line for its own messages and shares the rest; a trimmed window is a later start of the same span; an edit opens a line
at the first difference and finds its way back.

`match` (in `store.matching`) finds out which messages are known; `lay_out` decides where each of them stands.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from antiphon.errors import CorruptStoreError

MOST_SPANS = 16
"""Spans a row may name."""

SHORTEST_RUN = 4
"""A run of known messages that is shorter than this and stands between two new ones is written again."""

_GROWTH = 4  # how much longer runs may be that are joined, from one round to the next

NEW_LINE = 0
"""Stands in spans for the line that a commit will open, until `settle` names it. Real lines are positive."""


class Span(NamedTuple):
    """The messages `start` to `stop` (not included) of a line."""

    line: int
    start: int
    stop: int

    @property
    def length(self) -> int:
        """How many messages it names."""
        return self.stop - self.start


class Piece(NamedTuple):
    """A run of messages of a list that is to be saved.

    Attributes:
        start: Where it begins in the list.
        size: How many messages it has; at least one.
        known: Where the same run begins in the list that is known; None when it is new.
    """

    start: int
    size: int
    known: int | None


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the messages of a list go.

    Attributes:
        spans: The list, in order; spans with `NEW_LINE` lie on the line that is to be opened.
        fresh: Indexes of the messages that make up the new line, in its order. Empty: none is opened.
        grown: How many messages at the end of the list are appended to the line of the last span.
    """

    spans: tuple[Span, ...]
    fresh: tuple[int, ...] = ()
    grown: int = 0


class _Run(NamedTuple):
    """`size` messages of the list from `start` on, that stand on `line` from `at` on."""

    start: int
    size: int
    line: int
    at: int


def count_messages(spans: Iterable[Span]) -> int:
    """How many messages the spans name."""
    return sum(span.stop - span.start for span in spans)


def lay_out(pieces: Sequence[Piece], base: Sequence[Span], length: int | None) -> Layout:
    """Where each message of a list goes, given which of them are known.

    Args:
        pieces: The whole list, in order, without gaps.
        base: The spans of the known list.
        length: How long the last line of `base` is; None when nothing may be appended to it. Only a list that reaches
            its end can be: in between stand messages of others.

    >>> lay_out([Piece(0, 2, 0), Piece(2, 1, None)], [Span(7, 0, 2)], length=2)
    Layout(spans=(Span(line=7, start=0, stop=3),), fresh=(), grown=1)
    >>> lay_out([Piece(0, 2, 0), Piece(2, 1, None)], [Span(7, 0, 2)], length=5).spans
    (Span(line=7, start=0, stop=2), Span(line=0, start=0, stop=1))
    """
    runs = _runs(pieces, base)
    grown = 0
    if len(runs) > 1 and length is not None and runs[-1].line == NEW_LINE:
        last = runs[-2]
        if last.line == base[-1].line and last.at + last.size == length:
            grown = runs.pop().size
    runs, grown = _few(runs, grown)
    spans: list[Span] = []
    fresh: list[int] = []
    for run in runs:
        at = run.at
        if run.line == NEW_LINE:
            at = len(fresh)
            fresh += range(run.start, run.start + run.size)
        spans.append(Span(run.line, at, at + run.size))
    if grown:
        spans[-1] = spans[-1]._replace(stop=spans[-1].stop + grown)
    return Layout(tuple(spans), tuple(fresh), grown)


def _runs(pieces: Sequence[Piece], base: Sequence[Span]) -> list[_Run]:
    """The list as runs on lines, each as long as can be."""
    runs: list[_Run] = []
    for index, piece in enumerate(pieces):
        between_new = 0 < index < len(pieces) - 1 and pieces[index - 1].known is None is pieces[index + 1].known
        if piece.known is None or (piece.size < SHORTEST_RUN and between_new):
            _add(runs, _Run(piece.start, piece.size, NEW_LINE, 0))
            continue
        passed = 0
        for span in base:
            first = max(piece.known, passed)
            stop = min(piece.known + piece.size, passed + span.length)
            if first < stop:
                start = piece.start + first - piece.known
                _add(runs, _Run(start, stop - first, span.line, span.start + first - passed))
            passed += span.length
    return runs


def _add(runs: list[_Run], run: _Run) -> None:
    if runs and runs[-1].line == run.line and (run.line == NEW_LINE or runs[-1].at + runs[-1].size == run.at):
        runs[-1] = runs[-1]._replace(size=runs[-1].size + run.size)
    else:
        runs.append(run)


def _few(runs: list[_Run], grown: int) -> tuple[list[_Run], int]:
    """At most `MOST_SPANS` runs: neighbours that are all short are written again as one.

    The shortest go first, and so many that half of the room is free again. Where edits are made near the end, as they
    are in conversations, a message is therefore copied once for each time that its run has grown by `_GROWTH`.
    """
    short, most = _GROWTH, MOST_SPANS
    while len(runs) > most:
        joined: list[_Run] = []
        longest = 0  # of the runs that make up the last one joined
        for run in runs:
            if joined and run.size < short and longest < short:
                joined[-1] = _Run(joined[-1].start, joined[-1].size + run.size, NEW_LINE, 0)
                longest = max(longest, run.size)
            else:
                joined.append(run)
                longest = run.size
        runs, short, most = joined, short * _GROWTH, MOST_SPANS // 2
        if grown and runs[-1].line == NEW_LINE:  # the end of the line that would have grown is written again
            runs[-1] = runs[-1]._replace(size=runs[-1].size + grown)
            grown = 0
    return runs, grown


def settle(spans: Iterable[Span], line: int) -> tuple[Span, ...]:
    """The spans, with the new line's number in place of `NEW_LINE`."""
    return tuple(span._replace(line=line) if span.line == NEW_LINE else span for span in spans)


def covered(rows: Iterable[Iterable[Span]]) -> dict[int, list[tuple[int, int]]]:
    """What the spans of all these rows hold: for each line, intervals `(start, stop)`, ascending and apart.

    Everything else on a line may be forgotten, and so may lines that are not named.

    >>> covered([[Span(1, 0, 2)], [Span(1, 5, 7), Span(1, 1, 4)]])
    {1: [(0, 4), (5, 7)]}
    """
    held: dict[int, list[tuple[int, int]]] = {}
    for line, start, stop in sorted(span for spans in rows for span in spans if span.start < span.stop):
        intervals = held.setdefault(line, [])
        if intervals and start <= intervals[-1][1]:
            intervals[-1] = (intervals[-1][0], max(stop, intervals[-1][1]))
        else:
            intervals.append((start, stop))
    return held


def lost(session_id: str, line: int, positions: Iterable[int], why: str = "") -> CorruptStoreError:
    """The error that names messages of a line that are not there.

    Args:
        session_id: The session.
        line: The line.
        positions: Where they should be; ascending.
        why: What is known about it.
    """
    runs: list[tuple[int, int]] = []
    for at in positions:
        if runs and runs[-1][1] + 1 == at:
            runs[-1] = runs[-1][0], at
        else:
            runs.append((at, at))
    named = ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in runs)
    is_one = len(runs) == 1 and runs[0][0] == runs[0][1]
    told = f"message {named}" if is_one else f"messages {named}"
    are = "is" if is_one else "are"
    return CorruptStoreError(f"{told} of line {line} in session {session_id!r} {are} lost{f': {why}' if why else ''}")
