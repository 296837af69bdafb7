"""Where a live call's sound and text come from, and where its events go: the contracts behind `BidiAgent.run`.

A stream is an object with `start`, `stop` and `__call__`. Where there is nothing to start, a plain async function will do, and
for input also an asynchronous generator.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable
from typing import Any, Protocol, runtime_checkable

from antiphon.content import BidiAgentInput
from antiphon.events import OutputEvent
from antiphon.local_agent import LocalAgent
from antiphon.models.bidi import BidiModel


class LiveAgent(LocalAgent, Protocol):
    """What a stream may know of the live agent it serves."""

    @property
    def model(self) -> BidiModel:
        """The model: see `antiphon.models.bidi.AudioCapable` for its formats."""
        ...

    def played(self, response_id: str, ms: float) -> None:
        """The loudspeaker has played the first `ms` milliseconds of a response. May be called from any thread."""
        ...


@runtime_checkable
class InputStream(Protocol):
    """A source of input: a microphone, a keyboard, a file."""

    async def start(self, agent: LiveAgent) -> None:
        """Open it. The call has begun."""
        ...

    async def stop(self) -> None:
        """Close it. Called always, also after a failed `start`."""
        ...

    async def __call__(self) -> BidiAgentInput:
        """The next input, when there is one.

        Raises:
            StopAsyncIteration: When there will be no more. The talk goes on.
        """
        ...


@runtime_checkable
class OutputStream(Protocol):
    """A taker of events: a loudspeaker, a screen, a file.

    A loudspeaker drops its queue on `BidiBargeInEvent`, and says what it plays: `agent.played(response_id, ms)`, last of
    all right after a barge-in.
    """

    async def start(self, agent: LiveAgent) -> None:
        """Open it. The call has begun."""
        ...

    async def stop(self) -> None:
        """Close it. Called always, also after a failed `start`."""
        ...

    async def __call__(self, event: OutputEvent) -> None:
        """Take an event. The next one comes when this returns, save that a barge-in overtakes queued sound."""
        ...


InputSource = InputStream | Callable[[], Awaitable[BidiAgentInput]] | AsyncIterable[BidiAgentInput]
OutputTarget = OutputStream | Callable[[OutputEvent], Awaitable[Any]]
