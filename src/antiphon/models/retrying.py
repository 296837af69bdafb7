"""Asking a provider again, as long as nothing of the answer has been seen."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field

from antiphon.clock import Clock
from antiphon.errors import InvalidInputError, ModelError
from antiphon.ids import chance
from antiphon.models.base import StreamEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """When a model asks its provider again by itself, after an error that is `passing`.

    These are the short waits for a moment's crowd; an agent's `retry_strategy` adds the long ones, after them. How long
    one is, up to its bound, is left to chance ("full jitter"), so that many who were refused together do not come back
    together. A wait that the provider asks for is kept as it is.

    Attributes:
        max_attempts: How often a request is sent in all; 1 is never again.
        initial_delay: The bound of the first wait, in seconds; each further one doubles.
        max_delay: The longest bound that doubling comes to.
        longest_wait: The longest wait that a provider may ask for. When it asks for more, the error is raised at once.
        chance: Gives the part of the bound that is waited, from 0 to 1, whenever it is called. A test gives its own:
            `lambda: 1.0` always waits for the whole of it.
    """

    max_attempts: int = 3
    initial_delay: float = 0.5
    max_delay: float = 8.0
    longest_wait: float = 60.0
    chance: Callable[[], float] = field(default=chance, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.max_attempts < 1:
            raise InvalidInputError(f"max_attempts={self.max_attempts!r}: at least 1, the first one")

    def delay(self, failures: int, error: ModelError) -> float | None:
        """How long to wait after so many failures in a row (from 1), the last of them `error`; None: not again.

        >>> busy = ModelError("busy", passing=True)
        >>> whole = Retries(max_attempts=4, chance=lambda: 1.0)
        >>> [whole.delay(failures, busy) for failures in (1, 2, 3, 4)]
        [0.5, 1.0, 2.0, None]
        >>> [Retries(chance=lambda: 0.25).delay(failures, busy) for failures in (1, 2)]
        [0.125, 0.25]
        >>> Retries().delay(1, ModelError("busy", passing=True, retry_after_s=7)), Retries().delay(1, ModelError("no"))
        (7, None)
        """
        if not error.passing or failures >= self.max_attempts:
            return None
        if error.retry_after_s is not None:
            return None if error.retry_after_s > self.longest_wait else max(0.0, error.retry_after_s)
        return self.chance() * float(min(self.initial_delay * 2.0 ** (failures - 1), self.max_delay))


async def with_retries(
    ask: Callable[[], AsyncGenerator[StreamEvent, None]], *, retries: Retries, clock: Clock
) -> AsyncGenerator[StreamEvent, None]:
    """The events of an answer; when the provider fails before any of them was given on, it is asked again.

    A `messageStart` is held back until something follows it: some providers open a stream and only then say that they
    are overloaded.

    Args:
        ask: Sends the request and gives its events. It raises errors whose `passing` and `retry_after_s` are right.
        retries: How often, and how long between.
        clock: Paces the waits.

    Raises:
        ModelError: What the last attempt raised, or the first one that something was seen of.
    """
    failures = 0
    while True:
        start: StreamEvent | None = None
        seen = False
        try:
            async with aclosing(ask()) as events:
                async for event in events:
                    if not seen and start is None and "messageStart" in event:
                        start = event
                        continue
                    if not seen and start is not None:
                        seen = True
                        yield start
                    seen = True
                    yield event
            if start is not None and not seen:
                yield start
            return
        except ModelError as error:
            failures += 1
            delay = None if seen else retries.delay(failures, error)
            if delay is None:
                raise
        await clock.sleep(delay)
