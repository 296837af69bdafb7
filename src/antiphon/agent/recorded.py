"""A tool starts when it is written down that it does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from antiphon.clock import Clock

RECORD_BOUND_S = 5.0
"""How long a call waits for a journal that cannot be written."""
_PAUSE_S = 0.25

UNRECORDED_TEXT = "not started: it could not be written down that it would be"
"""What the model is told of a call that did not start."""


class UnrecordedError(Exception):
    """The journal cannot be written, and the tool may not run twice. Stays within this package."""


async def recorded(write: Callable[[], Awaitable[Exception | None]], clock: Clock, *, repeatable: bool) -> None:
    """Return when a call may start.

    A process that dies must not leave a call behind that nobody knows of. So one that may not run twice waits until the
    journal is at rest; one that may run again need not.

    Args:
        write: Has the journal written; returns why that was not possible.
        clock: Measures the bound.
        repeatable: Whether the call may run twice.

    Raises:
        UnrecordedError: If the journal could not be written within `RECORD_BOUND_S`.
    """
    deadline = clock.now() + RECORD_BOUND_S
    while (failure := await write()) is not None and not repeatable:
        if clock.now() >= deadline:
            raise UnrecordedError from failure
        await clock.sleep(_PAUSE_S)
