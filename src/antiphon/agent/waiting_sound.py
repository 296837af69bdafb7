"""Sound that the application sends while there is no connection: it waits in order, the newest of it."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

from antiphon.content import AudioDelta

WAITING_SOUND_S = 10.0
"""How much sound waits for a connection at most. Beyond that the oldest is dropped: it is the least worth hearing."""


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """A piece of sound.

    Attributes:
        sound: It.
        seconds: How long it lasts.
        done: Done when it was sent, or dropped for newer ones.
    """

    sound: AudioDelta
    seconds: float
    done: asyncio.Future[None]


class WaitingSound:
    """A queue of sound, each piece with whoever waits for it to be sent."""

    __slots__ = ("_pieces", "_seconds")

    def __init__(self) -> None:
        self._pieces: deque[Piece] = deque()
        self._seconds = 0.0

    def __len__(self) -> int:
        return len(self._pieces)

    def put(self, sound: AudioDelta, seconds: float) -> asyncio.Future[None]:
        """Add a piece that lasts so long. The future is done when it was sent, or dropped for newer ones."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pieces.append(Piece(sound, seconds, done))
        self._seconds += seconds
        while self._seconds > WAITING_SOUND_S + 1e-6 and len(self._pieces) > 1:
            self.drop()
        return done

    def first(self) -> Piece:
        """The oldest piece. It stays until `drop`."""
        return self._pieces[0]

    def drop(self, error: Exception | None = None) -> None:
        """Take out the oldest piece, and tell whoever waits for it."""
        piece = self._pieces.popleft()
        self._seconds -= piece.seconds
        if piece.done.done():
            return
        if error is None:
            piece.done.set_result(None)
        else:
            piece.done.set_exception(error)
