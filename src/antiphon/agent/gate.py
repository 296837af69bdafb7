"""The gate in front of a connection: input waits while there is none."""

from __future__ import annotations

import asyncio


class Gate:
    """Open, closed for a while, or closed for good.

    Attributes:
        why: Why it is closed for good.
    """

    __slots__ = ("_closed", "why")

    def __init__(self) -> None:
        self._closed: asyncio.Event | None = None  # set when it opens, or is closed for good
        self.why: Exception | None = None

    @property
    def is_open(self) -> bool:
        """Whether input may be sent now."""
        return self._closed is None

    def check(self) -> None:
        """Nothing, while there may be a connection again.

        Raises:
            Exception: Why there will be none any more.
        """
        if self.why is not None:
            raise self.why

    async def opened(self) -> None:
        """Return when input may be sent.

        Raises:
            Exception: Why there will be no connection any more.
        """
        while self._closed is not None:
            self.check()
            await self._closed.wait()

    def close(self, why: Exception | None = None) -> None:
        """Hold back input; for good, when `why` says so. The first reason stays."""
        if self._closed is None:
            self._closed = asyncio.Event()
        if why is not None and self.why is None:
            self.why = why
            self._closed.set()

    def open(self) -> None:
        """Let input pass, unless it is closed for good."""
        if self.why is None and self._closed is not None:
            self._closed.set()
            self._closed = None
