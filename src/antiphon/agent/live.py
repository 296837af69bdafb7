"""The agent that talks: one live connection, in both directions at once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from typing import Any, ClassVar, Self, cast

from typing_extensions import TypeVar

from antiphon.agent.base import BaseAgent
from antiphon.agent.call import LiveCall
from antiphon.agent.duplex import run_streams
from antiphon.agent.live_tools import LiveToolCall
from antiphon.agent.streams import InputSource, OutputTarget
from antiphon.clock import SYSTEM_CLOCK, Clock
from antiphon.content import (
    AudioDelta,
    BidiAgentInput,
    Block,
    ImageBlock,
    Messages,
    SystemContentBlock,
    TextBlock,
    block_from,
)
from antiphon.conversation.journal import Journal, OpenCall, recover
from antiphon.conversation.repair import repair
from antiphon.errors import (
    AgentNotStartedError,
    AgentStartedError,
    InvalidInputError,
    InvalidTypeError,
)
from antiphon.events import BidiBargeInEvent, OutputEvent
from antiphon.hooks.registry import EventFor, EventTypes, HookCallback, HookProvider
from antiphon.interrupts import interrupt_responses, is_interrupt_response
from antiphon.jsonable import copy_json
from antiphon.models.bidi import BidiModel
from antiphon.models.names import live_model
from antiphon.session.base import SessionManager
from antiphon.snapshot.envelope import Snapshot
from antiphon.snapshot.fields import LIVE, AgentKind
from antiphon.state import AgentState
from antiphon.storage.base import Storage
from antiphon.tools.registry import ToolSource

_FAIR = 64
"""After so many events in a row an application that never waits lets others have a turn."""

BidiAgentEventT = TypeVar("BidiAgentEventT", bound="EventFor[BidiAgent]")


class BidiAgent(BaseAgent):
    """An agent for real-time conversations: sound and text both ways, barge-in, tools that run while it talks.

    Its history is what happened: what the user said, and what the user *heard* of the answers, in order.

    Example:
        ```
        async with BidiAgent(EmbeddedBidiModel(), tools=[lights]) as agent:
            await agent.send("turn on the kitchen lights")
            async for event in agent.receive():
                ...
        ```
    """

    kind: ClassVar[AgentKind] = LIVE

    def __init__(  # noqa: PLR0917 - the public signature
        self,
        model: BidiModel | str | None = None,
        tools: ToolSource | None = None,
        system_prompt: str | list[SystemContentBlock] | None = None,
        messages: Messages | None = None,
        record_direct_tool_call: bool = True,  # noqa: FBT001, FBT002 - as above
        agent_id: str | None = None,
        name: str | None = None,
        description: str | None = None,
        hooks: list[HookProvider] | None = None,
        state: AgentState | dict[str, Any] | None = None,
        session_manager: SessionManager[BidiAgent] | None = None,
        storage: Storage | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Make an agent; nothing is connected before `start()`.

        Args:
            model: The model to talk through, or its name: `openai:gpt-realtime-2`, `embedded`, the id of a model of Amazon
                Bedrock (see `antiphon.models.names`). None is Amazon Nova 2 Sonic.
            tools: Functions decorated with `@tool`, tool objects, providers, modules, or strings that name them.
            system_prompt: A text, or structured blocks, which stay as they are.
            messages: A history to begin with; the list itself is used, and appended to.
            record_direct_tool_call: Whether `agent.tool.name(...)` is written into the history.
            agent_id: Names the agent within its session.
            name: For people.
            description: For people.
            hooks: Objects that bring callbacks.
            state: Application state.
            session_manager: Restores the agent now, and saves it from then on.
            storage: For subsystems that were given no storage of their own.
            clock: Measures all waiting.

        Raises:
            InvalidInputError: If `state` is not JSON, an argument cannot be used, or `model` names an unknown provider.
            InvalidTypeError: If `model` is none of the types above.
            MissingExtraError: If the package of the provider that `model` names is not installed.
        """
        if model is None or isinstance(model, str):
            model = live_model(model)
        if not isinstance(cast("object", model), BidiModel):
            raise InvalidTypeError(f"model={model!r} | model must be a BidiModel, string, or None")
        self._model = model
        self._clock = clock
        self._call: LiveCall | None = None
        self._streaming = False
        self._mark = 0
        self._open_calls: tuple[OpenCall, ...] = ()
        super().__init__(
            tools=tools,
            system_prompt=system_prompt,
            messages=messages,
            record_direct_tool_call=record_direct_tool_call,
            agent_id=agent_id,
            name=name,
            description=description,
            hooks=hooks,
            state=state,
            session_manager=session_manager,
            storage=storage,
        )
        self._finish_construction()

    @property
    def model(self) -> BidiModel:
        """The model this agent talks through."""
        return self._model

    def add_hook(
        self,
        callback: HookCallback[BidiAgentEventT],
        event_type: EventTypes[BidiAgentEventT] = None,
        *,
        order: float = 0,
    ) -> None:
        """Call `callback` with each event of these classes.

        Args:
            callback: A function or object, synchronous or asynchronous.
            event_type: An event class, a list of them, or None to read them from the first parameter's annotation.
            order: Lower runs first; see `HookOrder`.

        Raises:
            HookRegistrationError: If no event class can be told.
        """
        self.hooks.add_callback(event_type, callback, order=order)

    # The call.

    async def start(self, invocation_state: dict[str, Any] | None = None) -> None:
        """Open the connection and hand over the history.

        Args:
            invocation_state: Shared by reference with tools and hooks until `stop()`, restarts included.

        Raises:
            AgentStartedError: If it is started already.
            Exception: What the model raises; the agent stays stopped.
        """
        if self._call is not None:
            raise AgentStartedError("agent already started | call stop before starting again")
        self.cancel_signal.clear()
        mended = repair(self.messages)
        if len(mended) != len(self.messages) or any(
            one is not other for one, other in zip(mended, self.messages, strict=True)
        ):
            self.messages[:] = mended
        waiting = {entry.tool_use["toolUseId"] for entry in self._open_calls if entry.question is not None}
        self.interrupt_state.keep_calls(waiting)
        call = LiveCall(
            self,
            self._model,
            self._clock,
            invocation_state={} if invocation_state is None else invocation_state,
            mark=self._mark,
        )
        self._call = call
        await call.start([LiveToolCall.reopened(entry) for entry in self._open_calls], self._ended)

    def _ended(self, call: LiveCall) -> None:
        journal = call.journal()
        if call.begun:  # else what waits for a call goes on waiting
            self._mark, self._open_calls = journal.mark, journal.calls
        self._call = None

    async def stop(self) -> None:
        """End the call and release everything. Does nothing when it is not started.

        Raises:
            Exception: What failed while closing, or ended the call and was not told yet.
            StopError: When several things failed.
        """
        if self._call is not None:
            await self._call.stop()

    def _running(self, doing: str) -> LiveCall:
        if self._call is None or self._call.ending:
            raise AgentNotStartedError(f"agent not started | call start before {doing}")
        return self._call

    async def send(self, input_data: BidiAgentInput) -> None:
        """Send sound or content to the model.

        A string, a block, a dict with one `text` or `image` key, or a list of these is one user message: it enters the
        history, is saved, and goes to the model. An `AudioDelta` (or its dict form) goes to the model only. A list of
        `{"interruptResponse": {"interruptId": ..., "response": ...}}` answers tools that wait for a person.

        Returns when the input is on its way; while the connection restarts, that is when it is back. Sound that waits for it
        keeps its order; beyond ten seconds the oldest of it is dropped.

        Raises:
            AgentNotStartedError: If the agent is not started.
            InvalidTypeError: If the input, or a part of it, has an unsupported type.
            InvalidInputError: If a list is empty, or a dict has not exactly one supported key.
            InterruptError: If an answer belongs to no open question.
            Exception: Why the call ended, or what a hook or the model raises.
        """
        call = self._call
        if call is None or call.ending:
            raise AgentNotStartedError("agent not started | call start before sending")
        try:
            await self._send(call, input_data)
        except Exception as error:
            if error is call.failure:
                call.told()
            raise

    async def _send(self, call: LiveCall, input_data: BidiAgentInput) -> None:
        if type(input_data) is AudioDelta:  # fifty times a second
            call.conversation.sound_in = True
            await call.connection.send_sound(input_data)
            return
        if is_interrupt_response(input_data):
            call.connection.gate.check()
            self.interrupt_state.resume(input_data)
            call.tools.answered(set(interrupt_responses(input_data)))
            return
        blocks = _user_blocks(input_data)
        if isinstance(blocks, AudioDelta):
            await self._send_sound(call, blocks)
        else:
            await call.say(blocks)

    async def _send_sound(self, call: LiveCall, sound: AudioDelta) -> None:
        call.conversation.sound_in = True
        await call.connection.send_sound(sound)

    async def receive(self) -> AsyncGenerator[OutputEvent, None]:
        """The events of the call, until it ends. Sound of a response that the user spoke over never comes.

        Yields:
            What the model sends; a block event after each text, reasoning and transcript stop event; tool events;
            connection events.

        Raises:
            AgentNotStartedError: If the agent is not started.
            ConnectionTimeoutError: If the connection timed out and automatic restart is off.
            Exception: Why the call ended, when nobody asked for it.
        """
        call = self._running("receiving")
        lanes = call.lanes
        lanes.attach()
        taken = 0
        while True:
            event = lanes.pop()
            if event is not None:
                if type(event) is BidiBargeInEvent:
                    call.barge_in_seen()
                yield event
                taken += 1
                if taken % _FAIR == 0:
                    await asyncio.sleep(0)
            elif lanes.closed:
                break
            else:
                await lanes.wait()
        if lanes.error is not None:
            call.told()
            raise lanes.error

    def played(self, response_id: str, ms: float) -> None:
        """The loudspeaker has played the first `ms` milliseconds of a response.

        Report it every 100 ms or so while playing, and once more right after a barge-in silenced it. Without reports the
        agent takes the smaller of the time since the sound was handed out and the sound handed out. May be called from
        any thread.

        Args:
            response_id: From the sound's events.
            ms: From the response's first sample.
        """
        self._in_loop(lambda call: call.played(response_id, ms))

    def cancel(self, *, message: str | None = None, after_current_tools: bool = False) -> None:
        """End the talk now, from any thread: sound stops, tools have 2 s, `receive()` ends. Idempotent.

        Calls without a result by then get the error result `message` (default "cancelled"). `stop()` is still to be
        called.

        Args:
            message: What the model is told of the calls that were cut short.
            after_current_tools: Let the tools that are running finish first.
        """
        if self._call is None or self._call.ending:
            return
        if not after_current_tools:
            self.cancel_signal.set()
            self._call.lanes.muted = True
        self._in_loop(lambda call: call.cancel(message or "cancelled", after_current_tools=after_current_tools))

    def _in_loop(self, act: Callable[[LiveCall], None]) -> None:
        call = self._call
        if call is None:
            return
        if threading.get_ident() == call.thread_id:
            act(call)
        elif not call.loop.is_closed():
            call.loop.call_soon_threadsafe(act, call)

    async def run(
        self,
        inputs: list[InputSource],
        outputs: list[OutputTarget],
        invocation_state: dict[str, Any] | None = None,
    ) -> None:
        """Start, connect streams, and return when the talk has ended; everything is stopped then.

        An agent that was started already, as `Runner.connect` gives it, goes on with its talk.

        Args:
            inputs: Streams, async functions or async generators that give input. One that ends, or raises
                `StopAsyncIteration`, has no more; the talk goes on.
            outputs: Streams (or async functions) that take events.
            invocation_state: Shared by reference with tools and hooks.

        Raises:
            AgentStartedError: If streams are connected already; or if it was started, and an `invocation_state` is given.
            Exception: The first failure of a stream, or why the call ended.
            StopError: When several things failed while stopping.
        """
        call = self._call
        if self._streaming or (call is not None and (invocation_state is not None or not call.begun)):
            raise AgentStartedError("agent already started | call stop before running again")
        self._streaming = True
        try:
            if call is None:
                await self.start(invocation_state)
            await run_streams(self, inputs, outputs)
        finally:
            self._streaming = False

    async def __aenter__(self, invocation_state: dict[str, Any] | None = None) -> Self:
        await self.start(invocation_state)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # What is saved.

    def _refuse_while_active(self, what: str) -> None:
        if self._call is not None:
            raise AgentStartedError(f"agent started | call stop before {what}")

    def load_snapshot(self, snapshot: Snapshot) -> None:
        """Take over a snapshot. Everything is checked before anything is changed.

        With another history, calls and questions that were open beside the old one are forgotten.

        Raises:
            SnapshotException: If the snapshot is malformed, of another scope, or of a newer schema.
            AgentStartedError: If the agent is started.
        """
        super().load_snapshot(snapshot)
        if "messages" in snapshot.data:
            self._open_calls = ()
            self.interrupt_state.keep_calls(())

    def take_journal(self) -> Journal:
        """What is open beside the committed history, now."""
        if self._call is not None:
            return self._call.journal()
        return Journal(self._mark, (), self._open_calls)

    def load_journal(self, journal: Journal) -> None:
        """Take over what was open when another process ended.

        What was said and heard enters the history now; calls that may run again do so on `start()`, and questions wait
        again from then on.

        Raises:
            AgentStartedError: If the agent is started.
        """
        self._refuse_while_active("loading a journal")
        recovery = recover(journal, self.messages)
        self.messages.extend(recovery.messages)
        self._mark = max(self._mark, recovery.mark)
        self._open_calls = (*recovery.again, *recovery.waiting)
        for entry in recovery.waiting:
            for question in (*entry.answered, *((entry.question,) if entry.question is not None else ())):
                self.interrupt_state.interrupts[question.id] = question


def _user_blocks(data: object) -> list[Block] | AudioDelta:
    """The content of one user message, or a piece of sound."""
    if not isinstance(data, list):
        block = _block(data)
        return block if isinstance(block, AudioDelta) else [_from_user(block)]
    if not data:
        raise InvalidInputError("invalid input | input list cannot be empty")
    return [_from_user(_block(item)) for item in cast("list[object]", data)]


def _block(data: object) -> Block | AudioDelta:
    if isinstance(data, dict):
        keys: list[object] = list(data)  # pyright: ignore[reportUnknownArgumentType]
        if len(keys) != 1 or keys[0] not in {"text", "image", "audio_delta"}:
            raise InvalidInputError(f"invalid input | expected one of the keys text, image, audio_delta, got {keys!r}")
    return block_from(data)  # pyright: ignore[reportUnknownArgumentType]


def _from_user(block: Block | AudioDelta) -> Block:
    if isinstance(block, TextBlock):
        if not block.text.strip():
            raise InvalidInputError(f"invalid input | text={block.text!r} says nothing")
        return TextBlock(copy_json(block.text, "text"))
    if not isinstance(block, (TextBlock, ImageBlock)):
        raise InvalidTypeError(
            f"invalid input | expected a string, TextBlock, or ImageBlock in a message, got {type(block).__name__}"
        )
    return block
