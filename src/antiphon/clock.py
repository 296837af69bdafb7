"""Time, as an argument.

Whatever waits or measures takes a `Clock`, so that tests run at any speed. `SystemClock` is the real one;
`antiphon.testing.VirtualClock` jumps from one due moment to the next.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """A source of time and of waiting."""

    def now(self) -> float:
        """Seconds on a steady clock. Only differences mean anything."""
        ...

    def utc(self) -> datetime:
        """The date and time in UTC, for stamps that people read."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds` of this clock; at once (but not before others had a turn) when it is not positive."""
        ...


class SystemClock:
    """The machine's clock."""

    now = staticmethod(time.monotonic)

    def utc(self) -> datetime:
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))


SYSTEM_CLOCK: Clock = SystemClock()


def iso_utc(moment: datetime) -> str:
    """`moment` as UTC ISO-8601 with microseconds and a `Z`, the form stamps have on disk.

    >>> iso_utc(datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC))
    '2026-01-02T03:04:05.000006Z'
    """
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
