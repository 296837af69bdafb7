"""What a wire is to a codec."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

Frame = str | bytes


class Transport(Protocol):
    """An open wire to one provider: whole frames go out and come in, in order.

    One task receives, and any may send: a `send` that waits does not let another overtake it. Whoever opened the wire
    closes it.
    """

    async def send(self, frames: Sequence[Frame], /) -> None:
        """Send frames, in this order, with nothing between them.

        Raises:
            TransportError: If the wire is closed.
        """
        ...

    async def receive(self) -> Frame | None:
        """The next frame; None when the other side has closed the wire in good order.

        Cancelling loses no frame.

        Raises:
            TransportError: If the wire failed, or was closed with a code that says why.
        """
        ...

    async def close(self) -> None:
        """Close the wire within a bound, in good order where the other side takes part. Safe to call twice."""
        ...
