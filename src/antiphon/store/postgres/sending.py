"""How many bytes go to the server at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from antiphon.errors import SessionRowError


@dataclass(frozen=True, slots=True)
class Bounds:
    """What goes to the server in one piece.

    Attributes:
        body: Bytes that a body may have. PostgreSQL takes no value, row or statement from 2**30 - 1 bytes on.
        together: Bytes of bodies that a statement brings along, unless a single one has more.
    """

    body: int = 1_000_000_000
    together: int = 2**26


SERVER = Bounds()
"""What a server takes."""


def check_sizes(bodies: Sequence[bytes], session_id: str, bounds: Bounds) -> None:
    """Look whether the server can hold them.

    Raises:
        SessionRowError: If a body is too large; names the session.
    """
    most = max(map(len, bodies), default=0)
    if most > bounds.body:
        raise SessionRowError(
            f"a message or part of session {session_id!r} has {most} bytes of JSON, and PostgreSQL holds {bounds.body}:"
            " keep what is so large elsewhere, and save where that is"
        )


def parts(bodies: Sequence[bytes], session_id: str, bounds: Bounds) -> Iterator[slice]:
    """Bodies in parts, each for one statement; all are looked at before the first part is given.

    Raises:
        SessionRowError: If a body is too large; names the session.

    >>> list(parts([b"abc", b"d", b"efghijk", b"l"], "s", Bounds(body=10, together=4)))
    [slice(0, 2, None), slice(2, 3, None), slice(3, 4, None)]
    """
    check_sizes(bodies, session_id, bounds)
    start = size = 0
    for at, body in enumerate(bodies):
        size += len(body)
        if size > bounds.together and at > start:
            yield slice(start, at)
            start, size = at, len(body)
    if start < len(bodies):
        yield slice(start, len(bodies))
