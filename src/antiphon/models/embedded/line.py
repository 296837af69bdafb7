"""The line of one live connection: events on their way to `receive()`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from antiphon.events import OutputEvent


class Line:
    """A queue that never makes the sender wait, and that ends once.

    What is posted after the end is dropped: the connection is over.
    """

    def __init__(self) -> None:
        self._queue: asyncio.Queue[OutputEvent | Exception | None] = asyncio.Queue()
        self._over = False

    @property
    def over(self) -> bool:
        """Whether the end, or an error, was posted."""
        return self._over

    def post(self, *events: OutputEvent) -> None:
        """Send events."""
        if not self._over:
            for event in events:
                self._queue.put_nowait(event)

    def end(self, error: Exception | None = None) -> None:
        """End the line after what was posted, by an error where one is given."""
        if not self._over:
            self._over = True
            self._queue.put_nowait(error)

    async def events(self) -> AsyncIterator[OutputEvent]:
        """What was posted, until the end.

        Raises:
            Exception: The error that the line ended with.
        """
        while True:
            item = await self._queue.get()
            if isinstance(item, OutputEvent):
                yield item
                continue
            self._queue.put_nowait(None)  # whoever listens after the end learns of it, too
            if item is not None:
                raise item
            return
