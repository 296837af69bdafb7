"""Streams on both ends of a live call: `BidiAgent.run`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Protocol, cast, runtime_checkable

from antiphon.agent.streams import InputSource, LiveAgent, OutputTarget
from antiphon.content import BidiAgentInput
from antiphon.errors import AgentStateError, InvalidTypeError, StopError
from antiphon.events import OutputEvent


class StartedAgent(LiveAgent, Protocol):
    """A live agent whose call has begun."""

    async def send(self, input_data: BidiAgentInput) -> None:
        """Send input."""
        ...

    def receive(self) -> AsyncGenerator[OutputEvent, None]:
        """The call's events."""
        ...

    async def stop(self) -> None:
        """End the call."""
        ...


@runtime_checkable
class _Stream(Protocol):
    """What is started and stopped; a plain function is not."""

    async def start(self, agent: LiveAgent) -> None: ...

    async def stop(self) -> None: ...


async def run_streams(agent: StartedAgent, inputs: Sequence[InputSource], outputs: Sequence[OutputTarget]) -> None:
    """Connect streams to a started agent until its talk ends, then stop them and the agent, whatever happened.

    Raises:
        InvalidTypeError: If one of them is no stream; nothing is started then.
        Exception: The first failure of a stream or of the call.
        StopError: When several things failed while stopping, or one did after another failure.
    """
    failure: BaseException | None = None
    streams = [stream for stream in [*inputs, *outputs] if isinstance(stream, _Stream)]
    try:
        _check(inputs, outputs)
        for stream in streams:
            await stream.start(agent)
        await _talk(agent, inputs, outputs)
    except BaseException as error:  # noqa: BLE001 - everything is stopped first, then it is raised again
        failure = error
    errors = [failure] if isinstance(failure, Exception) else []
    stops: list[Callable[[], Awaitable[Any]]] = [stream.stop for stream in streams]
    for stop in [*stops, agent.stop]:
        try:
            await stop()
        except Exception as error:  # noqa: BLE001 - the others are stopped all the same
            if error is not failure:
                errors.append(error)
    if failure is not None and not isinstance(failure, Exception):
        raise failure
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise StopError(errors)


def _check(inputs: Sequence[object], outputs: Sequence[object]) -> None:
    for source in inputs:
        if not callable(source) and not isinstance(source, AsyncIterable):
            raise InvalidTypeError(
                f"an input is {source!r}: give an asynchronous generator, an async function, or an object with start, stop "
                "and __call__, such as WavIO(...).input()"
            )
    for target in outputs:
        if not callable(target):
            raise InvalidTypeError(
                f"an output is {target!r}: give an async function, or an object with start, stop and __call__, such as "
                "WavIO(...).output()"
            )


async def _talk(agent: StartedAgent, inputs: Sequence[InputSource], outputs: Sequence[OutputTarget]) -> None:
    first: list[BaseException] = []
    try:
        async with asyncio.TaskGroup() as group:
            feeding = [group.create_task(_feed(agent, source)) for source in inputs]
            group.create_task(_play(agent, outputs, feeding))
    except BaseExceptionGroup as failed:
        first = _leaves(failed)
    if first:
        # A task group cancels the rest at the first failure; that one is what the caller wants to know.
        raise first[0]


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    found: list[BaseException] = []
    for error in group.exceptions:
        found += (
            _leaves(cast("BaseExceptionGroup[BaseException]", error))
            if isinstance(error, BaseExceptionGroup)
            else [error]
        )
    return found


async def _feed(agent: StartedAgent, source: InputSource) -> None:
    if callable(source):
        await _send_all(agent, source)
        return
    iterator = aiter(source)
    try:
        await _send_all(agent, partial(anext, iterator))
    finally:
        # A generator's own `finally` runs now, and not when somebody collects it.
        close = getattr(iterator, "aclose", None)
        if close is not None:
            await close()


async def _send_all(agent: StartedAgent, take: Callable[[], Awaitable[BidiAgentInput]]) -> None:
    while True:
        try:
            data = await take()
        except StopAsyncIteration:
            return
        try:
            await agent.send(data)
        except AgentStateError:
            return  # the call was ended meanwhile: `receive` says why, if there is more to say


async def _play(agent: StartedAgent, outputs: Sequence[OutputTarget], feeding: list[asyncio.Task[None]]) -> None:
    async for event in agent.receive():
        if len(outputs) == 1:
            await outputs[0](event)
        else:
            async with asyncio.TaskGroup() as group:
                for output in outputs:
                    group.create_task(_hand(output, event))
    for task in feeding:
        task.cancel()


async def _hand(output: OutputTarget, event: OutputEvent) -> None:
    await output(event)
