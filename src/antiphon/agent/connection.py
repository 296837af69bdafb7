"""The live connection to the model: its reader, the gate in front of it, and its restarts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Literal, Protocol

from antiphon.bounded import settle, within
from antiphon.clock import Clock
from antiphon.content import BidiMessage, Message, Messages, ToolSpec
from antiphon.conversation.history import Truncate
from antiphon.conversation.journal import tool_uses
from antiphon.errors import ConnectionEndedError, ConnectionTimeoutError
from antiphon.events import BidiConnectionWarningEvent, OutputEvent
from antiphon.models.base import strip_metadata
from antiphon.models.bidi import BidiModel, Restartable, Truncatable

RESTART_BOUND_S = 30.0
"""How long opening a new connection may take."""
BOUNDARY_WAIT_S = 10.0
"""How long a scheduled restart waits for a moment when nobody speaks."""
READER_END_S = 2.0
_LOST_SEND_S = 1.0
_BOUNDARY_POLL_S = 0.1

Reason = Literal["timeout", "scheduled"]


class Call(Protocol):
    """What a connection needs of the call it serves."""

    @property
    def at_boundary(self) -> bool:
        """Whether no response is being made or owed."""
        ...

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run `work` within the call; an error of it ends the call."""
        ...

    def take(self, event: OutputEvent) -> None:
        """An event of the model. Never waits."""
        ...

    def emit(self, event: OutputEvent) -> None:
        """An event of the agent's own, for the application."""
        ...

    def fail(self, error: Exception) -> None:
        """The call cannot go on."""
        ...

    def history(self) -> Messages:
        """What a new connection is told of the conversation."""
        ...

    async def before_restart(self, reason: Reason, error: Exception | None) -> None:
        """The old connection is of no use any more."""
        ...

    async def after_restart(self, reason: Reason, error: Exception | None) -> None:
        """There is a new connection, or `error` says why not."""
        ...


class Results:
    """Results of tools on their way to the model."""

    __slots__ = ("ids", "message_for")

    def __init__(self, ids: set[str], message_for: Callable[[int], BidiMessage]) -> None:
        self.ids = ids
        self.message_for = message_for


class Connection:
    """One call's connection; a new one takes the place of one that has reached its limit.

    Attributes:
        generation: Counts the connections of this call, from 1. What an older one still says is not heard.
    """

    __slots__ = (
        "_blocked",
        "_call",
        "_clock",
        "_outbox",
        "_prompt",
        "_reader",
        "_restarting",
        "_sender",
        "_timer",
        "_why",
        "generation",
        "model",
    )

    def __init__(
        self, call: Call, model: BidiModel, clock: Clock, prompt: Callable[[], tuple[str | None, list[ToolSpec]]]
    ) -> None:
        self._call = call
        self._clock = clock
        self._prompt = prompt
        self._outbox: list[Results | Truncate] = []
        self._sender: asyncio.Task[None] | None = None  # while something is in the outbox
        self._blocked: asyncio.Event | None = None  # the closed gate, while there is one
        self._why: Exception | None = None
        self._reader: asyncio.Task[None] | None = None
        self._timer: asyncio.Task[None] | None = None
        self._restarting = False
        self.model = model
        self.generation = 0

    async def open(self) -> None:
        """Open the first connection.

        Raises:
            Exception: What the model raises; its resources are released.
        """
        system_prompt, tools = self._prompt()
        try:
            await self.model.start(
                system_prompt=system_prompt, tools=tools, messages=strip_metadata(self._call.history())
            )
        except BaseException:
            await self.model.stop()
            raise
        self.generation = 1

    def begin(self) -> None:
        """Read and watch the time from now on."""
        self._reader = self._call.spawn(self._read(self.generation))
        limit = self.model.get_connection_config().get("restart_after_s", 0)
        if limit and limit > 0:
            self.restart_within(limit, BOUNDARY_WAIT_S)

    # ------------------------------------------------------------------ the gate

    @property
    def is_open(self) -> bool:
        """Whether input may be sent now."""
        return self._blocked is None

    async def opened(self) -> None:
        """Return when input may be sent.

        Raises:
            Exception: Why there will be no connection any more.
        """
        while self._blocked is not None:
            if self._why is not None:
                raise self._why
            await self._blocked.wait()

    def close_gate(self, why: Exception | None = None) -> None:
        """Hold back input; for good, when `why` says so."""
        if why is not None and self._why is None:
            self._why = why
        if self._blocked is None:
            self._blocked = asyncio.Event()
        if self._why is not None:
            self._blocked.set()

    def _open_gate(self) -> None:
        if self._why is None and self._blocked is not None:
            self._blocked.set()
            self._blocked = None

    # ------------------------------------------------------------------ what goes out by itself

    def post(self, item: Results | Truncate) -> None:
        """Send results, or say what was heard, when the gate is open; in order. Dropped once it is closed for good."""
        if self._why is None:
            self._outbox.append(item)
            if self._sender is None or self._sender.done():
                self._sender = self._call.spawn(self._send_outbox())

    async def _send_outbox(self) -> None:
        while self._outbox:
            try:
                await self.opened()
            except Exception:  # noqa: BLE001 - why there is no connection any more is told elsewhere
                return
            item, generation = self._outbox[0], self.generation
            try:
                if isinstance(item, Results):
                    await self.model.send(item.message_for(generation))
                elif isinstance(self.model, Truncatable):
                    await self.model.truncate(item.response_id, item.played_ms)
            except Exception as error:
                # The connection was lost under it, as the reader will find; or this is the first to see it.
                if not await self._replaced(generation):
                    raise ConnectionEndedError(f"the model refused what was sent: {error}") from error
                continue
            if self._outbox and self._outbox[0] is item:
                del self._outbox[0]

    async def _replaced(self, generation: int) -> bool:
        waited = 0.0
        while waited < _LOST_SEND_S and self.generation == generation and not self._restarting:
            await self._clock.sleep(_BOUNDARY_POLL_S)
            waited += _BOUNDARY_POLL_S
        return self.generation != generation or self._restarting

    # ------------------------------------------------------------------ what comes in

    async def _read(self, generation: int) -> None:
        take = self._call.take
        try:
            async for event in self.model.receive():
                if generation != self.generation:
                    return
                take(event)
        except ConnectionTimeoutError as error:
            if generation == self.generation:
                self._timed_out(error)
            return
        except Exception:
            if generation == self.generation:
                raise
            return
        if generation == self.generation:
            raise ConnectionEndedError(f"the model {self.model.model_id!r} ended the connection")

    def _timed_out(self, error: ConnectionTimeoutError) -> None:
        if self.model.get_connection_config().get("auto_restart", True):
            self._call.spawn(self.restart("timeout", error))
        else:
            self._call.fail(error)

    def expect_end(self, time_left_s: float) -> None:
        """The provider says that it will end the connection: restart before it does."""
        if time_left_s > 0 and self.model.get_connection_config().get("auto_restart", True):
            self.restart_within(0.0, max(0.0, time_left_s - 1.0))

    # ------------------------------------------------------------------ restarts

    def restart_within(self, after_s: float, wait_s: float) -> None:
        """Restart after a time, at the next moment when nobody speaks, or `wait_s` later at the latest."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._call.spawn(self._restart_later(after_s, wait_s))

    async def _restart_later(self, after_s: float, wait_s: float) -> None:
        if after_s > 0:
            notice = min(BOUNDARY_WAIT_S, after_s)
            await self._clock.sleep(after_s - notice)
            self._call.emit(BidiConnectionWarningEvent(time_left_s=notice))
            await self._clock.sleep(notice)
        deadline = self._clock.now() + wait_s
        while not self._call.at_boundary and self._clock.now() < deadline:
            await self._clock.sleep(_BOUNDARY_POLL_S)
        self._timer = None  # so that the restart does not cancel the task it runs in
        await self.restart("scheduled", None)

    async def restart(self, reason: Reason, error: ConnectionTimeoutError | None) -> None:
        """Replace the connection. The gate opens again, or the call ends."""
        if self._restarting or self._why is not None:
            return
        self._restarting = True
        try:
            self.close_gate()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            await self._call.before_restart(reason, error)
            self.generation += 1
            await self._end_reader()
            failure: Exception | None = None
            try:
                await within(self._clock, RESTART_BOUND_S, self._replace(error.restart_config if error else {}))
            except Exception as refused:  # noqa: BLE001 - whatever the model raises ends the call, below
                failure = refused
            await self._call.after_restart(reason, failure)
            if failure is not None:
                raise ConnectionEndedError(f"the connection could not be restarted: {failure}") from failure
            self.begin()
            self._open_gate()
        finally:
            self._restarting = False

    async def _replace(self, restart_config: dict[str, Any]) -> None:
        system_prompt, tools = self._prompt()
        waiting = {key for item in self._outbox if isinstance(item, Results) for key in item.ids}
        # Results that are still to be sent bring their calls along; told twice, no provider would take them.
        history = [message for message in self._call.history() if waiting.isdisjoint(_ids(message))]
        messages = strip_metadata(history)
        if isinstance(self.model, Restartable):
            await self.model.restart(system_prompt=system_prompt, tools=tools, messages=messages, **restart_config)
            return
        await self.model.stop()
        await self.model.start(system_prompt=system_prompt, tools=tools, messages=messages, **restart_config)

    async def _end_reader(self) -> None:
        reader = self._reader
        if reader is not None and not reader.done():
            reader.cancel()
            await settle(self._clock, READER_END_S, [reader])

    async def halt(self) -> None:
        """Hear and send nothing more. The model itself is stopped by whoever ends the call."""
        self.generation += 1
        if self._timer is not None:
            self._timer.cancel()
        await self._end_reader()


def _ids(message: Message) -> set[str]:
    ids = {tool_use["toolUseId"] for tool_use in tool_uses(message)}
    return ids | {block["toolResult"]["toolUseId"] for block in message["content"] if "toolResult" in block}
