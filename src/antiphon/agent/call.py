"""A live call under way: the events of the model are applied here, and what follows from them is set in motion.

Applying an event never waits. Hooks, saves, tools, results and restarts each go their own way, in tasks of one group that
lives inside the call's supervising task.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any

import msgspec

from antiphon.agent.alarm import Alarm
from antiphon.agent.base import BaseAgent
from antiphon.agent.commits import CommitLane
from antiphon.agent.connection import Connection, Reason, Results
from antiphon.agent.lanes import EventLanes
from antiphon.agent.live_tools import CANCELLED_TEXT, LiveToolCall, LiveTools
from antiphon.agent.supervisor import Supervisor
from antiphon.clock import Clock
from antiphon.content import BidiMessage, Block, Message, Messages, ToolResultBlock, ToolSpec, ToolUseBlock
from antiphon.conversation.effects import Commit, Effect, Emit, Insert, Remove, Replace, Truncate
from antiphon.conversation.history import Conversation
from antiphon.conversation.journal import Journal, OpenCall, call_ids, result_message
from antiphon.errors import AgentNotStartedError, AgentStateError, AudioFormatError
from antiphon.events import (
    BidiAudioDeltaEvent,
    BidiBargeInEvent,
    BidiConnectionRestartEvent,
    BidiConnectionStartEvent,
    BidiConnectionStopEvent,
    BidiConnectionWarningEvent,
    BidiResponseStartEvent,
    BidiResponseStopEvent,
    BidiToolUseBlocksEvent,
    BidiToolUseCancelEvent,
    BidiTranscriptDeltaEvent,
    BidiUsageEvent,
    OutputEvent,
    ToolResultMessageEvent,
)
from antiphon.hooks.events import (
    BidiAfterConnectionRestartEvent,
    BidiAgentStopEvent,
    BidiBargeInHookEvent,
    BidiBeforeConnectionRestartEvent,
    BidiResponseCompleteEvent,
    JournalChangedEvent,
    MessageAddedEvent,
    MessageUpdatedEvent,
)
from antiphon.hooks.registry import BaseHookEvent
from antiphon.jsonable import copy_json
from antiphon.models.bidi import BidiModel
from antiphon.results import Usage
from antiphon.tools.run import run_tool

CANCEL_GRACE_S = 2.0
"""How long a running tool has to end by itself after a cancellation."""
_RESPONSES = 16
JOURNAL_EVERY_S = 0.2
"""How often the words heard so far are written down while the agent speaks.

What a crash may take is 250 ms: the rest is for the writing itself.
"""


class LiveCall:
    """One call, from `start()` to `stop()`.

    Attributes:
        conversation: What was said.
        lanes: Events on their way to the application.
        connection: The connection to the model.
        tools: The calls that are not in the history yet.
        failure: Why the call cannot go on.
        loop: The event loop it runs on, and `thread_id` that loop's thread.
    """

    def __init__(
        self,
        agent: BaseAgent,
        model: BidiModel,
        clock: Clock,
        *,
        invocation_state: dict[str, Any],
        mark: int,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.thread_id = threading.get_ident()
        self.conversation = Conversation(mark)
        self.lanes = EventLanes(clock.now)
        self.failure: Exception | None = None
        self.connection = Connection(self, model, clock, self._prompt)
        self.tools = LiveTools(
            partial(
                run_tool,
                agent,
                registry=agent.tool_registry,
                invocation_state=invocation_state,
                cancel_signal=agent.cancel_signal,
                interrupt_state=agent.interrupt_state,
                clock=clock,
            ),
            spawn=self.spawn,
            journal=self._write_journal,
            emit=self.lanes.put,
            recorded=self._recorded,
            resend=self._send_result_again,
            idle=self._tools_idle,
            interrupts=agent.interrupt_state,
            known=call_ids(agent.messages),
            clock=clock,
        )
        self._agent = agent
        self._clock = clock
        self._commits = CommitLane(agent.hooks, self._hook_failed)
        self._alarm = Alarm(clock, self.spawn, self._ring)
        self._typing = asyncio.Lock()
        self._journal = _JournalTick()
        self._life = Supervisor(clock, self.fail)
        self._state = _CallState()

    # Begin and end.

    async def start(self, open_calls: Sequence[LiveToolCall], ended: Callable[[LiveCall], None]) -> None:
        """Open the connection and begin.

        Args:
            open_calls: Calls that a crash cut short: those without questions run again, the others wait again.
            ended: Called when nothing of the call is left, also after a failed start.

        Raises:
            Exception: What the model raises; nothing is left open.
        """
        await self._life.start(
            opening=self.connection.open,
            undo=self.connection.close,
            begin=partial(self._begin, open_calls),
            closing=self._close,
            ended=partial(ended, self),
        )

    def _begin(self, open_calls: Sequence[LiveToolCall]) -> None:
        self._commits.begin(self.spawn)
        self.connection.begin()
        for call in open_calls:
            if call.waits:
                self.tools.wait(call)
        self.tools.start([call for call in open_calls if not call.waits])
        self._set_alarm()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run `work` within the call; an error of it ends the call."""
        return self._life.spawn(work)

    def fail(self, error: Exception) -> None:
        """The call cannot go on: `receive()` and `send()` raise `error`."""
        if self._life.ending:
            self._life.errors.append(error)
        elif self.failure is None:
            self.failure = error
            self.connection.gate.close(error)
            self.do(self.conversation.disconnected(self._clock.now()))
            self.lanes.close(error)
            if self._life.begun:
                self.spawn(self.connection.halt())

    def told(self) -> None:
        """Somebody was told of the failure: `stop()` need not repeat it."""
        self._state.told = True

    @property
    def begun(self) -> bool:
        """Whether it was ever open."""
        return self._life.begun

    @property
    def ending(self) -> bool:
        """Whether `stop()` was called."""
        return self._life.ending

    async def stop(self) -> None:
        """Close everything, always, and report every failure once.

        Raises:
            Exception: What failed, when one thing did.
            StopError: When several things did.
        """
        self._life.finish()
        failure = None if self._state.told else self.failure
        self._state.told = True
        await self._life.stop(failure)

    async def _close(self) -> None:
        life = self._life
        try:
            self.lanes.silence()
            self.connection.gate.close(AgentNotStartedError("agent not started | call start before sending"))
            await life.attempt("the connection", self.connection.halt())
            self._agent.cancel_signal.set()
            await life.attempt("the tools", self.tools.cancel(CANCELLED_TEXT, 0, questions=False))
            await life.attempt("the conversation", self._settle())
            await life.attempt("model.stop()", self.connection.close())
            await life.attempt("a hook", self._commits.flush())
            stopped: BidiAgentStopEvent[BaseAgent] = BidiAgentStopEvent(agent=self._agent)
            for callback in self._agent.hooks.get_callbacks_for(stopped):
                # Each is called although another failed: the one that saves is among them.
                await life.attempt(f"hook {callback!r}", _called(callback, stopped))
        finally:
            self.lanes.close()
            self._commits.end()

    async def _settle(self) -> None:
        self.do(self.conversation.close(self._clock.now()))

    # What the model says.

    def take(self, event: OutputEvent) -> None:
        """Apply an event of the model. Never waits."""
        if self.failure is not None or self._state.cancelled:
            return
        if type(event) is BidiAudioDeltaEvent:
            self._take_sound(event)
            return
        if type(event) is BidiTranscriptDeltaEvent and self.conversation.goes_on(event):
            self.lanes.put(event)
            return
        now = self._clock.now()
        match event:
            case BidiBargeInEvent():
                self._barge_in(event, now)
            case BidiToolUseBlocksEvent():
                if uses := self.tools.called(event.tool_uses, self.connection.generation):
                    self.lanes.put(BidiToolUseBlocksEvent(tool_uses=uses))
            case BidiToolUseCancelEvent():
                self.lanes.put(event)
                self.tools.withdraw(event.tool_use_ids, self.connection.generation)
            case BidiConnectionWarningEvent():
                self.lanes.put(event)
                self.connection.expect_end(event.time_left_s)
            case BidiConnectionStartEvent():
                self._state.connection_id = event.connection_id
                self.lanes.put(event)
            case BidiUsageEvent():
                self._agent.usage += Usage(event.input_tokens, event.output_tokens, event.total_tokens)
                self.lanes.put(event)
            case BidiResponseStartEvent():
                self._state.note_response(event.response_id, self.connection.generation)
                self.lanes.put(event)
                self.do(self.conversation.apply(event, now))
            case BidiResponseStopEvent():
                self.lanes.put(event)
                self.do(self.conversation.apply(event, now))
                self._commits.post(BidiResponseCompleteEvent(agent=self._agent, response_id=event.response_id))
            case _:
                self.lanes.put(event)
                self.do(self.conversation.apply(event, now))

    def _take_sound(self, event: BidiAudioDeltaEvent) -> None:
        speech = self.conversation.responding
        if speech is None or (event.response_id and event.response_id != speech.response_id):
            speech = self.conversation.speech(event.response_id, self._clock.now())
            self._state.note_response(speech.response_id, self.connection.generation)
        if speech.cut:
            return
        if not event.response_id:
            event = msgspec.structs.replace(event, response_id=speech.response_id)
        if event.sample_rate <= 0 or event.channels <= 0:
            raise AudioFormatError(f"sound with sample_rate={event.sample_rate} and channels={event.channels}")
        ms = len(event.audio) * 500 / (event.sample_rate * event.channels)  # two bytes a sample
        speech.audio_ms += ms
        self.lanes.put_audio(event, speech, ms)

    def _barge_in(self, event: BidiBargeInEvent, now: float) -> None:
        if self.conversation.is_old(event.response_id, now):
            return  # it names an answer that is over, and another one speaks
        effects, ids = self.conversation.cut(now, event.response_id)
        if not event.response_id and ids:
            event = BidiBargeInEvent(response_id=ids[0])
        self.lanes.put_first(event)
        self.do(effects)
        self._commits.post(BidiBargeInHookEvent(agent=self._agent, response_id=event.response_id))

    def emit(self, event: OutputEvent) -> None:
        """Hand an event of the agent's own to the application."""
        self.lanes.put(event)

    # What the application says.

    async def say(self, blocks: list[Block]) -> None:
        """The user's complete message: into the history, saved, and to the model, in this order.

        Once begun it is carried out, although the caller may not wait for it any more.

        Raises:
            Exception: What a hook or the model raises, or why the call ended.
        """
        await self.connection.gate.opened()
        done: asyncio.Future[None] = self.loop.create_future()
        done.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # the caller may be gone
        self.spawn(self._say(blocks, done))
        await done

    async def _say(self, blocks: list[Block], done: asyncio.Future[None]) -> None:
        message: Message = {"role": "user", "content": copy_json([block.to_dict() for block in blocks], "content")}
        try:
            async with self._typing:
                waited: list[asyncio.Future[None]] = []
                self.do(self.conversation.said([message], self._clock.now()), waited)
                if not any(message is known for known in self._agent.messages[-2:]):
                    await self._write_journal()  # it waits behind something that began earlier: remember it meanwhile
                for hooks in waited:
                    await hooks
                await self.connection.send_message(BidiMessage(blocks), message)
        except Exception as error:  # noqa: BLE001 - it belongs to whoever sends
            if not done.done():
                done.set_exception(error)
        else:
            if not done.done():
                done.set_result(None)
        finally:
            done.cancel()  # has no effect on one that is settled

    def played(self, response_id: str, ms: float) -> None:
        """The loudspeaker's report."""
        self.do(self.conversation.played(response_id, ms, self._clock.now()))

    def barge_in_seen(self) -> None:
        """The application was handed a barge-in."""
        self.conversation.cut_seen(self._clock.now())
        self._set_alarm()

    def cancel(self, text: str, *, after_current_tools: bool) -> None:
        """End the talk: `receive()` ends after a connection-stop event."""
        state = self._state
        if state.cancelled or self._life.ending:
            return
        why = AgentStateError("the call was cancelled | call stop, then start")
        if not self._life.begun:
            self._life.finish(why)
            return
        if after_current_tools and self.tools.running:
            state.cancel_after_tools = text
            return
        state.cancelled = True
        self.lanes.silence()
        effects, _ = self.conversation.cut(self._clock.now())
        self.do(effects)
        self.connection.gate.close(why)
        self.spawn(self._finish_cancel(text))

    async def _finish_cancel(self, text: str) -> None:
        await self.connection.halt()
        await self.tools.cancel(text, CANCEL_GRACE_S, questions=True)
        self.lanes.put(BidiConnectionStopEvent(connection_id=self._state.connection_id))
        self.lanes.close()

    def _tools_idle(self) -> None:
        """No tool is at work any more."""
        text, self._state.cancel_after_tools = self._state.cancel_after_tools, None
        if text is not None:
            self.cancel(text, after_current_tools=False)

    # What follows.

    def do(self, effects: Iterable[Effect], waited: list[asyncio.Future[None]] | None = None) -> None:
        """Carry effects out. Futures of hooks that the caller wants to wait for are added to `waited`."""
        for effect in effects:
            match effect:
                case Commit(messages):
                    self._commit(messages, waited)
                case Replace(old, new):
                    self._replace(old, new)
                case Insert(message, before):
                    self._insert(message, before)
                case Remove(message):
                    self._remove(message)
                case Emit(event):
                    self.lanes.put(event)
                case Truncate():
                    # A connection that did not make the response was told only what was heard of it.
                    if self._state.made_by.get(effect.response_id) == self.connection.generation:
                        self.connection.post(effect)
        self._set_alarm()

    def _commit(self, messages: tuple[Message, ...], waited: list[asyncio.Future[None]] | None) -> None:
        self._agent.messages.extend(messages)
        for message in messages:
            added: MessageAddedEvent[BaseAgent] = MessageAddedEvent(agent=self._agent, message=message)
            done = self._commits.post(added, wanted=waited is not None)
            if done is not None and waited is not None:
                waited.append(done)
        if "toolResult" in messages[-1]["content"][0]:
            self.lanes.put(ToolResultMessageEvent(message=messages[-1]))

    def _replace(self, old: Message, new: Message) -> None:
        messages = self._agent.messages
        for index in range(len(messages) - 1, -1, -1):
            if messages[index] is old:
                messages[index] = new
                self._commits.post(MessageUpdatedEvent(agent=self._agent, message=new, index=index))
                return

    def _insert(self, message: Message, before: Message) -> None:
        messages = self._agent.messages
        for index in range(len(messages) - 1, -1, -1):
            if messages[index] is before:
                messages.insert(index, message)
                self._commits.post(MessageAddedEvent(agent=self._agent, message=message))
                return

    def _remove(self, message: Message) -> None:
        messages = self._agent.messages
        for index in range(len(messages) - 1, -1, -1):
            if messages[index] is message:
                del messages[index]
                self._commits.post(MessageUpdatedEvent(agent=self._agent, message=message, index=-1))
                return

    def _recorded(self, calls: list[LiveToolCall]) -> None:
        """A group of calls has its results: into the history, and to the model."""
        results = [call.result for call in calls if call.result is not None]
        asked: Message = {"role": "assistant", "content": [{"toolUse": call.tool_use} for call in calls]}
        self.do(self.conversation.said([asked, result_message(results)], self._clock.now(), by_user=False))
        state = self._state
        wanted = [call for call in calls if not call.withdrawn]
        if wanted and state.cancel_after_tools is None and not state.cancelled and not self._life.ending:
            self.connection.post(Results({call.id for call in wanted}, partial(_told_to_model, wanted)))

    def _send_result_again(self, call: LiveToolCall) -> None:
        """Another connection asks for a result that is known."""
        if not self.connection.has_results_of(call.id):
            self.connection.post(Results({call.id}, partial(_told_to_model, [call])))

    def _hook_failed(self, error: Exception) -> None:
        self.fail(error)

    # Time and the journal.

    def _set_alarm(self) -> None:
        if not self._life.begun:
            return
        now = self._clock.now()
        due = self.conversation.due(now)
        if self.conversation.open and self._agent.hooks.listens(JournalChangedEvent):
            due = self._journal.at if due is None else min(due, self._journal.at)
        if due is not None:
            self._alarm.set(due)

    def _ring(self) -> None:
        now = self._clock.now()
        if now >= self._journal.at and self._agent.hooks.listens(JournalChangedEvent):
            self._journal.at = now + JOURNAL_EVERY_S
            self._write_heard(now)
        self.do(self.conversation.tick(now))

    def _write_heard(self, now: float) -> None:
        """Write down what was heard so far, when it is more than was written, and the last writing is done."""
        if self._journal.writing is not None and not self._journal.writing.done():
            return
        lines = self.conversation.open_lines(now)
        if lines != self._journal.lines:
            self._journal.lines = lines
            self._journal.writing = self._commits.post(JournalChangedEvent(agent=self._agent), wanted=True)
            if self._journal.writing is not None:
                self._journal.writing.add_done_callback(self._journal_written)

    def _journal_written(self, done: asyncio.Future[None]) -> None:
        if not done.cancelled() and (error := done.exception()) is not None and isinstance(error, Exception):
            self.fail(error)

    async def _write_journal(self) -> Exception | None:
        """Have the journal written. Returns why it could not be, when it could not."""
        event: JournalChangedEvent[BaseAgent] = JournalChangedEvent(agent=self._agent)
        await self._commits.call(event)
        return event.unsaved

    def journal(self) -> Journal:
        """What is open now."""
        done = [OpenCall(call, result=result) for call, result in self.conversation.open_results()]
        return Journal(
            self.conversation.mark,
            self.conversation.open_lines(self._clock.now()),
            (*done, *self.tools.open_calls()),
        )

    # What the connection asks.

    @property
    def at_boundary(self) -> bool:
        """Whether no response is being made or owed."""
        return self.conversation.at_boundary

    def history(self) -> Messages:
        """The history, with what is on its way to the ear."""
        return [*self._agent.messages, *self.conversation.expected()]

    async def before_restart(self, reason: Reason, error: Exception | None) -> None:
        """The old connection is of no use any more."""
        interrupted = not self.at_boundary
        self.lanes.put(BidiConnectionRestartEvent(reason=reason, timeout_error=error, turn_interrupted=interrupted))
        self.do(self.conversation.disconnected(self._clock.now()))
        await self._commits.call(
            BidiBeforeConnectionRestartEvent(agent=self._agent, reason=reason, timeout_error=error)
        )

    async def after_restart(self, reason: Reason, error: Exception | None) -> None:
        """There is a new connection, or not."""
        await self._commits.call(BidiAfterConnectionRestartEvent(agent=self._agent, reason=reason, exception=error))

    def _prompt(self) -> tuple[str | None, list[ToolSpec]]:
        return self._agent.system_prompt, self._agent.tool_registry.specs()


async def _called(callback: Callable[[Any], Any], event: BaseHookEvent) -> None:
    result = callback(event)
    if inspect.isawaitable(result):
        await result


class _CallState:
    """Where a call stands between its beginning and its end."""

    __slots__ = ("cancel_after_tools", "cancelled", "connection_id", "made_by", "told")

    def __init__(self) -> None:
        self.told = False
        self.cancelled = False
        self.cancel_after_tools: str | None = None
        self.connection_id = ""
        self.made_by: dict[str, int] = {}  # the connections of the latest responses

    def note_response(self, response_id: str, generation: int) -> None:
        """A response begins."""
        self.made_by.setdefault(response_id, generation)
        while len(self.made_by) > _RESPONSES:
            del self.made_by[next(iter(self.made_by))]


class _JournalTick:
    """When the words heard so far are written down next, and what was written last."""

    __slots__ = ("at", "lines", "writing")

    def __init__(self) -> None:
        self.at = 0.0
        self.lines: tuple[Message, ...] = ()
        self.writing: asyncio.Future[None] | None = None


def _told_to_model(calls: list[LiveToolCall], generation: int) -> BidiMessage:
    """Results for the model; a connection that did not make a call is told the call first.

    What the model has taken back meanwhile is left out, so that there may be nothing to tell.
    """
    blocks: list[Block] = []
    for call in calls:
        if call.withdrawn:
            continue
        if call.generation != generation:
            blocks.append(ToolUseBlock(call.wire_id or call.id, call.tool_use["name"], call.tool_use["input"]))
        if call.result is not None:
            blocks.append(ToolResultBlock(call.wire_id or call.id, call.result["status"], call.result["content"]))
    return BidiMessage(blocks)
