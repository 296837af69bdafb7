"""The live connection to the model: its reader, what is sent over it, and its restarts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Literal, Protocol

from antiphon.agent.gate import Gate
from antiphon.agent.waiting_sound import WaitingSound
from antiphon.bounded import settle, within
from antiphon.clock import Clock
from antiphon.content import AudioDelta, BidiMessage, Message, Messages, ToolSpec
from antiphon.conversation.history import Truncate
from antiphon.conversation.journal import tool_uses
from antiphon.errors import ConnectionEndedError, ConnectionTimeoutError, InvalidInputError
from antiphon.events import BidiConnectionWarningEvent, OutputEvent
from antiphon.models.base import strip_metadata
from antiphon.models.bidi import AudioCapable, AudioStreamConfig, BidiModel, Restartable, Truncatable

RESTART_BOUND_S = 30.0
"""How long opening a new connection may take."""
BOUNDARY_WAIT_S = 10.0
"""How long a scheduled restart waits for a moment when nobody speaks."""
READER_END_S = 2.0
BEFORE_RESTART_S = 10.0
"""How long the hooks before a restart may hold it up."""
SHORT_LIFE_S = 5.0
"""A connection that ends sooner makes the next one wait, ever longer."""
SHORT_LIVES = 6
"""So many short-lived connections in a row end the call."""
_FIRST_PAUSE_S = 0.5
_LOST_SEND_S = 1.0
_BOUNDARY_POLL_S = 0.1
_USUAL_RATE = 16000

Reason = Literal["timeout", "scheduled"]

_log = logging.getLogger(__name__)


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
        gate: Closed while there is no connection.
        generation: Counts the connections of this call, from 1. What an older one still says is not heard.
    """

    __slots__ = (
        "_call",
        "_clock",
        "_life",
        "_outbox",
        "_prompt",
        "_reader",
        "_restart",
        "_sender",
        "_timer",
        "_undelivered",
        "_waiting",
        "gate",
        "generation",
        "model",
    )

    def __init__(
        self, call: Call, model: BidiModel, clock: Clock, prompt: Callable[[], tuple[str | None, list[ToolSpec]]]
    ) -> None:
        self._call = call
        self._clock = clock
        self._prompt = prompt
        self._outbox: list[Results | tuple[int, Truncate]] = []
        self._undelivered: list[Message] = []
        self._waiting: WaitingSound | None = None  # while sound waits
        self._sender: asyncio.Task[None] | None = None  # while something is in the outbox
        self._reader: asyncio.Task[None] | None = None
        self._timer: asyncio.Task[None] | None = None
        self._restart: asyncio.Task[Any] | None = None  # the task that restarts, while one does
        self._life = _Life()
        self.gate = Gate()
        self.model = model
        self.generation = 0

    async def open(self) -> None:
        """Open the first connection.

        Raises:
            Exception: What the model raises; its resources are released.
        """
        system_prompt, tools = self._prompt()
        self.model.held_by = self
        try:
            await self.model.start(
                system_prompt=system_prompt, tools=tools, messages=strip_metadata(self._call.history())
            )
        except BaseException:
            with suppress(Exception):  # why it could not be opened is what the caller wants to know
                await self.close()
            raise
        self.generation = 1

    def begin(self) -> None:
        """Read and watch the time from now on."""
        self._life.began_at, self._life.warned = self._clock.now(), False
        self._reader = self._call.spawn(self._read(self.generation))
        limit = self.model.get_connection_config().get("restart_after_s", 0)
        if limit and limit > 0:
            self.restart_within(limit, BOUNDARY_WAIT_S)

    # What goes out.

    async def send_sound(self, sound: AudioDelta) -> None:
        """Send sound, in order; what a dying connection swallows is gone.

        Where there is no connection it waits for one, `WAITING_SOUND_S` of it at most: beyond that the oldest is dropped.

        Raises:
            Exception: What the model raises, or why there is no connection any more.
        """
        if self._waiting is None and self.gate.is_open:
            await self._send_sound(sound)
            return
        self.gate.check()
        if self._waiting is None:
            self._waiting = WaitingSound()
            done = self._waiting.put(sound, self._seconds(sound))
            self._call.spawn(self._send_waiting(self._waiting))
        else:
            done = self._waiting.put(sound, self._seconds(sound))
        await done

    async def _send_sound(self, sound: AudioDelta) -> None:
        if self.model.held_by is not self:
            self._check_held()
        generation = self.generation
        try:
            await self.model.send(sound)
        except InvalidInputError:
            raise  # no connection would take it
        except Exception:
            if not await self._replaced(generation):
                self.gate.check()
                raise

    async def _send_waiting(self, waiting: WaitingSound) -> None:
        """Send the sound that waits, and what comes meanwhile, so that nothing is overtaken."""
        try:
            while waiting:
                with suppress(Exception):  # told below
                    await self.gate.opened()
                if self.gate.why is not None:
                    return
                piece, failure = waiting.first(), None
                if not piece.done.done():  # else whoever sent it does not want it any more
                    try:
                        await self._send_sound(piece.sound)
                    except Exception as error:  # noqa: BLE001 - it belongs to whoever sent the sound
                        failure = error
                if waiting.first() is piece:  # else newer ones have pushed it out meanwhile
                    waiting.drop(failure)
        finally:
            self._waiting = None
            while waiting:
                waiting.drop(self.gate.why)

    def _seconds(self, sound: AudioDelta) -> float:
        """How long a piece of sound lasts."""
        hears: AudioStreamConfig = {}
        if isinstance(self.model, AudioCapable):
            hears = self.model.get_audio_config().get("input", {})
        return len(sound.audio) / 2 / (hears.get("channels") or 1) / (hears.get("sample_rate") or _USUAL_RATE)

    async def send_message(self, content: BidiMessage, message: Message) -> None:
        """Send a message of the user; one that a dying connection swallows is sent to the next.

        Args:
            content: What is sent.
            message: The same in the history: a new connection is not told it twice.

        Raises:
            Exception: What the model raises, or why there is no connection any more.
        """
        self._undelivered.append(message)
        try:
            while True:
                await self.gate.opened()
                self._check_held()
                generation = self.generation
                try:
                    await self.model.send(content)
                except InvalidInputError:
                    raise  # no connection would take it
                except Exception:
                    if not await self._replaced(generation):
                        self.gate.check()
                        raise
                else:
                    if self._alive(generation):
                        return
        finally:
            self._undelivered = [other for other in self._undelivered if other is not message]

    def has_results_of(self, call_id: str) -> bool:
        """Whether the result of a call is still to be sent."""
        return any(isinstance(item, Results) and call_id in item.ids for item in self._outbox)

    def post(self, item: Results | Truncate) -> None:
        """Send results, or say what was heard, when the gate is open; in order. Dropped once it is closed for good."""
        if self.gate.why is None:
            self._outbox.append(item if isinstance(item, Results) else (self.generation, item))
            if self._sender is None or self._sender.done():
                self._sender = self._call.spawn(self._send_outbox())

    async def _send_outbox(self) -> None:
        while self._outbox:
            try:
                await self.gate.opened()
            except Exception:  # noqa: BLE001 - why there is no connection any more is told elsewhere
                return
            if self.model.held_by is not self:
                return
            item, generation = self._outbox[0], self.generation
            if isinstance(item, Results):
                try:
                    if (message := item.message_for(generation)).content:
                        await self.model.send(message)
                except Exception as error:
                    # The connection was lost under it, as the reader will find; or this is the first to see it.
                    if not await self._replaced(generation):
                        raise ConnectionEndedError(f"the model refused what was sent: {error}") from error
                if not self._alive(generation):
                    continue  # the next connection was not told of the calls: it is now, together with the results
            elif item[0] == generation:
                await self._truncate(item[1])
            if self._outbox and self._outbox[0] is item:
                del self._outbox[0]

    async def _truncate(self, heard: Truncate) -> None:
        if not isinstance(self.model, Truncatable):
            return
        try:
            await self.model.truncate(heard.response_id, heard.played_ms)
        except Exception:  # noqa: BLE001 - a provider that does not want to know must not end the call
            # The history is right all the same, and the next connection is told it.
            _log.warning("the model was not told how much of %r was heard", heard.response_id, exc_info=True)

    def _alive(self, generation: int) -> bool:
        return generation == self.generation and self._restart is None

    async def _replaced(self, generation: int) -> bool:
        """Whether a connection that refused something is being replaced; it may take a moment to become known."""
        waited = 0.0
        while waited < _LOST_SEND_S and self._alive(generation) and self.gate.why is None:
            await self._clock.sleep(_BOUNDARY_POLL_S)
            waited += _BOUNDARY_POLL_S
        return not self._alive(generation) and self.gate.why is None

    # What comes in.

    async def _read(self, generation: int) -> None:
        take = self._call.take
        try:
            async for event in self.model.receive():
                if generation != self.generation:
                    return
                take(event)
        except ConnectionTimeoutError as error:
            if self._alive(generation):
                self._timed_out(error)
            return
        except Exception:
            if self._alive(generation):
                raise
            return
        if self._alive(generation):
            if self._life.warned:
                self._timed_out(ConnectionTimeoutError("the provider ended the connection, as it had said it would"))
                return
            self._check_held()
            raise ConnectionEndedError(f"the model {self.model.model_id!r} ended the connection")

    def _check_held(self) -> None:
        """Nothing, while the model's connection is this one.

        Raises:
            ConnectionEndedError: If another call has taken the model over.
        """
        if self.model.held_by is not self:
            raise ConnectionEndedError(
                f"the model {self.model.model_id!r} was started by another agent, and has one connection: "
                "give each agent a model of its own"
            )

    def _timed_out(self, error: ConnectionTimeoutError) -> None:
        if self.model.get_connection_config().get("auto_restart", True):
            self.gate.close()
            self._restart = self._call.spawn(self.restart("timeout", error))
        else:
            self._call.fail(error)

    def expect_end(self, time_left_s: float) -> None:
        """The provider says that it will end the connection: restart before it does."""
        self._life.warned = True
        if time_left_s > 0 and self.model.get_connection_config().get("auto_restart", True):
            self.restart_within(0.0, max(0.0, time_left_s - 1.0))

    # Restarts.

    def restart_within(self, after_s: float, wait_s: float) -> None:
        """Restart after a time, at the next moment when nobody speaks, or `wait_s` later at the latest."""
        if self._restart is not None:
            return
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
        if self._restart is None and self.gate.why is None:
            self._timer = None  # so that the restart does not cancel the task it runs in
            self._restart = asyncio.current_task()
            await self.restart("scheduled", None)

    async def restart(self, reason: Reason, error: ConnectionTimeoutError | None) -> None:
        """Replace the connection. The gate opens again, or the call ends."""
        try:
            self.gate.close()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            with suppress(TimeoutError):  # they go on beside the restart
                await within(self._clock, BEFORE_RESTART_S, self._call.before_restart(reason, error))
            self.generation += 1
            await self._end_reader()
            failure: Exception | None = None
            try:
                await self._pause_after_short_lives(error)
                await within(self._clock, RESTART_BOUND_S, self._replace(error.restart_config if error else {}))
            except Exception as refused:  # noqa: BLE001 - whatever the model raises ends the call, below
                failure = refused
            if failure is None and self.gate.why is None:
                self.begin()
        finally:
            self._restart = None
        if failure is None:
            self.gate.open()
        with suppress(TimeoutError):  # a slow hook does not keep the new connection shut
            await within(self._clock, BEFORE_RESTART_S, self._call.after_restart(reason, failure))
        if failure is not None:
            raise ConnectionEndedError(f"the connection could not be restarted: {failure}") from failure

    async def _pause_after_short_lives(self, error: Exception | None) -> None:
        """Do not hammer a provider whose connections end as soon as they are open.

        Raises:
            ConnectionEndedError: After `SHORT_LIVES` in a row.
        """
        lived = self._clock.now() - self._life.began_at
        self._life.short_lives = self._life.short_lives + 1 if error is not None and lived < SHORT_LIFE_S else 0
        if self._life.short_lives >= SHORT_LIVES:
            raise ConnectionEndedError(f"{SHORT_LIVES} connections in a row ended within {SHORT_LIFE_S:g} s: {error}")
        if self._life.short_lives > 1:
            await self._clock.sleep(_FIRST_PAUSE_S * 2.0 ** (self._life.short_lives - 2))

    async def _replace(self, restart_config: dict[str, Any]) -> None:
        self._check_held()
        system_prompt, tools = self._prompt()
        waiting = {key for item in self._outbox if isinstance(item, Results) for key in item.ids}
        # What is still to be sent (results bring their calls along) is not told twice: no provider would take that.
        history = [
            message
            for message in self._call.history()
            if waiting.isdisjoint(_ids(message)) and not any(message is other for other in self._undelivered)
        ]
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

    async def close(self) -> None:
        """Stop the model, unless another call has taken it over."""
        if self.model.held_by is self:
            try:
                await self.model.stop()
            finally:
                if self.model.held_by is self:
                    self.model.held_by = None

    async def halt(self) -> None:
        """Hear, send and restart nothing more. The model itself is stopped by whoever ends the call."""
        self.generation += 1
        if self._timer is not None:
            self._timer.cancel()
        restart = self._restart
        if restart is not None and restart is not asyncio.current_task():
            restart.cancel()
            await settle(self._clock, READER_END_S, [restart])
        await self._end_reader()


class _Life:
    """The life of the latest connection.

    Attributes:
        began_at: When it was opened.
        warned: Whether the provider has said that it will end it.
        short_lives: How many before it were short, in a row.
    """

    __slots__ = ("began_at", "short_lives", "warned")

    def __init__(self) -> None:
        self.began_at = 0.0
        self.warned = False
        self.short_lives = 0


def _ids(message: Message) -> set[str]:
    ids = {tool_use["toolUseId"] for tool_use in tool_uses(message)}
    return ids | {block["toolResult"]["toolUseId"] for block in message["content"] if "toolResult" in block}
