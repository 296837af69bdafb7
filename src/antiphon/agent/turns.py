"""The agent that works in turns: a prompt goes in, a result comes out."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from typing import Any, ClassVar, cast

from typing_extensions import TypeVar

from antiphon.agent.base import BaseAgent
from antiphon.agent.blocking import run_blocking
from antiphon.agent.cancellation import Cancellation
from antiphon.agent.invocation import CANCELLED_TEXT, Equipment, Invocation, Limits
from antiphon.agent.managers import ConversationManager, NullConversationManager, SlidingWindowConversationManager
from antiphon.agent.open_turn import OpenTurn, Track
from antiphon.agent.outlet import Deaf, EventQueue, Outlet
from antiphon.agent.prompts import AgentInput, prompt_messages
from antiphon.agent.retry import ModelRetryStrategy
from antiphon.clock import SYSTEM_CLOCK, Clock
from antiphon.content import Message, Messages, SystemContentBlock
from antiphon.conversation.journal import Journal, call_ids, recover, tool_uses
from antiphon.conversation.repair import has_calls
from antiphon.errors import (
    ConcurrencyException,
    InvalidInputError,
    InvalidTypeError,
    SnapshotException,
)
from antiphon.hooks.events import AfterInvocationEvent, BeforeInvocationEvent
from antiphon.hooks.registry import EventFor, EventTypes, HookCallback, HookProvider
from antiphon.interrupts import InterruptState, is_interrupt_response
from antiphon.models.base import Model
from antiphon.models.names import turn_model
from antiphon.results import AgentResult
from antiphon.session.base import SessionManager
from antiphon.snapshot.envelope import Snapshot
from antiphon.snapshot.fields import TURNS, AgentKind, SnapshotField
from antiphon.state import AgentState
from antiphon.storage.base import Storage
from antiphon.tools.registry import ToolSource

AgentEventT = TypeVar("AgentEventT", bound="EventFor[Agent]")

_DEFAULT_RETRY = ModelRetryStrategy()


class Agent(BaseAgent):
    """An agent that answers prompts, calling tools as its model asks for them.

    One invocation at a time. `agent(prompt)` blocks, `await agent.invoke_async(prompt)` does not, and
    `agent.stream_async(prompt)` tells what happens while it happens.

    The history, `messages`, is at all times one that providers accept. A call enters it together with its result; until
    then the turn is in `take_journal()`, and, while a person is asked, in `interrupt_state`.

    A model that keeps the history on its side (`model.stateful`) is sent new messages only; what it has already is dropped
    from `messages` when the next invocation begins, and `model_state` finds it again.

    Attributes:
        conversation_manager: Bounds the history.
        model_state: What a stateful model keeps; saved with the session.
    """

    kind: ClassVar[AgentKind] = TURNS

    def __init__(
        self,
        model: Model | str | None = None,
        messages: Messages | None = None,
        tools: ToolSource | None = None,
        system_prompt: str | list[SystemContentBlock] | None = None,
        *,
        conversation_manager: ConversationManager | None = None,
        record_direct_tool_call: bool = True,
        agent_id: str | None = None,
        name: str | None = None,
        description: str | None = None,
        hooks: list[HookProvider] | None = None,
        state: AgentState | dict[str, Any] | None = None,
        session_manager: SessionManager[Agent] | None = None,
        storage: Storage | None = None,
        retry_strategy: ModelRetryStrategy | None = _DEFAULT_RETRY,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Construct, and restore the session.

        Args:
            model: Who answers: a model, a name such as `openai:gpt-5` or `embedded` (see `antiphon.models.names`), the id of a
                model of Amazon Bedrock, or None: Bedrock's default.
            messages: A history to begin with; the list itself is used, and appended to.
            tools: Tools, in any of the forms that `ToolRegistry.register` takes.
            system_prompt: A text, or structured blocks, which stay as they are.
            conversation_manager: Bounds the history (default: a sliding window of 40 messages). A stateful model's history
                is the provider's, and takes none.
            record_direct_tool_call: Whether `agent.tool.name(...)` is written into the history.
            agent_id: Names the agent within its session (default `default`).
            name: For people (default `Antiphon Agent`).
            description: For people, and for agents that use this one.
            hooks: Objects that bring callbacks.
            state: Application state; an `AgentState` is used as it is.
            session_manager: Restores the agent now, and saves it.
            storage: For subsystems that were given no storage of their own.
            retry_strategy: How to wait for a model that asks to slow down; None: its error is raised at once.
            clock: Paces waits.

        Raises:
            InvalidTypeError: If `model` is neither a `Model` nor a string, or another argument is not of its type.
            InvalidInputError: If an argument cannot be used, or `model` names a provider that is unknown.
            MissingExtraError: If the package of the provider that `model` names is not installed.
            SnapshotException: If the session cannot be restored.
        """
        self._model = _model_from(model)
        if self._model.stateful and conversation_manager is not None:
            raise InvalidInputError(
                "conversation_manager cannot be used with a stateful model: its provider keeps the history"
            )
        if conversation_manager is not None and not isinstance(conversation_manager, ConversationManager):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidTypeError(f"conversation_manager={conversation_manager!r} is not a ConversationManager")
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
        default = NullConversationManager() if self._model.stateful else SlidingWindowConversationManager()
        self.conversation_manager: ConversationManager = conversation_manager or default
        self.model_state: dict[str, Any] = {}
        self._retry = retry_strategy
        self._clock = clock
        self._track = Track()
        self._busy = threading.Lock()
        self._cancellation: Cancellation | None = None
        self._finish_construction()

    @property
    def model(self) -> Model:
        """Who answers."""
        return self._model

    def add_hook(
        self,
        callback: HookCallback[AgentEventT],
        event_type: EventTypes[AgentEventT] = None,
        *,
        order: float = 0,
    ) -> None:
        self.hooks.add_callback(event_type, callback, order=order)

    def __call__(
        self, prompt: AgentInput = None, *, invocation_state: dict[str, Any] | None = None, limits: Limits | None = None
    ) -> AgentResult:
        """Like `invoke_async`, for code that is not asynchronous: blocks, also inside a running event loop."""
        return run_blocking(lambda: self.invoke_async(prompt, invocation_state=invocation_state, limits=limits))

    async def invoke_async(
        self, prompt: AgentInput = None, *, invocation_state: dict[str, Any] | None = None, limits: Limits | None = None
    ) -> AgentResult:
        """Answer a prompt.

        Args:
            prompt: A text, content blocks, whole messages, or None: go on with the history as it is. While questions are
                open: `[{"interruptResponse": {"interruptId": ..., "response": ...}}, ...]`.
            invocation_state: Shared by reference with tools and hooks.
            limits: Bounds of this invocation.

        Returns:
            What it came to. `stop_reason` is `interrupt` when a person is asked, `cancelled` after `cancel()`.

        Raises:
            ConcurrencyException: If another invocation is under way.
            InvalidInputError: If the prompt is nothing that an agent may be asked with.
            InvalidTypeError: If questions are open, and the prompt does not answer them.
            InterruptError: If it answers a question that is not open.
            MaxTokensReachedException: If the answer was cut off by the model's limit.
            Exception: Whatever the model or a hook raises, unchanged. The history is one that providers accept.
        """
        return await self._invoke(prompt, invocation_state, limits, Deaf())

    async def stream_async(
        self, prompt: AgentInput = None, *, invocation_state: dict[str, Any] | None = None, limits: Limits | None = None
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Answer a prompt, telling what happens. Arguments and errors are those of `invoke_async`.

        Whoever stops iterating (and closes the generator) ends the invocation. A model waits for a listener that is 64
        events behind.

        Yields:
            Dicts with one key: `data` (a piece of the answer's text), `reasoning` (a piece of its reasoning),
            `current_tool_use` (a call as far as it is known, its `input` being JSON text so far), `message` (an answer, or
            the results of tools, when it is complete), `tool_stream_event` (`{"tool_use": ..., "data": ...}`: what a tool
            reports), `tool_result`, `redact` (`{"role": ..., "text": ...}`: what was said is replaced), `retry`
            (`{"reason": ...}`: the model is asked again, forget the pieces since the last message), and last `result`, the
            `AgentResult`.
        """
        queue = EventQueue()

        async def work() -> None:
            queue.put({"result": await self._invoke(prompt, invocation_state, limits, queue)})

        # The other supervised task: it ends before this generator does, whoever ends it.
        task = asyncio.create_task(work())  # noqa: TID251
        task.add_done_callback(lambda _: queue.close())
        try:
            while (event := await queue.take()) is not None:
                yield event
            await task
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait([task])
                if not task.cancelled():
                    task.exception()  # seen: whoever would get it has gone

    def cancel(self, *, message: str | None = None, after_current_tools: bool = False) -> None:
        """End the invocation that is under way, from any thread; without one, nothing happens.

        What was said so far stays, marked `interrupted`. Running tools see `cancel_signal` and have 2 s; calls without a
        result then get the error result "cancelled". The result's `stop_reason` is `cancelled`.

        Args:
            message: What is added to the answer that is cut.
            after_current_tools: Let the tools that run, or that this answer calls, end first.
        """
        if (cancellation := self._cancellation) is not None:
            cancellation.request(message, after_current_tools=after_current_tools)

    async def _invoke(
        self, prompt: object, invocation_state: dict[str, Any] | None, limits: Limits | None, outlet: Outlet
    ) -> AgentResult:
        if not self._busy.acquire(blocking=False):
            raise ConcurrencyException(
                f"agent {self.agent_id!r} is answering already: wait for it, cancel it, or use one agent per conversation"
            )
        try:
            state = {} if invocation_state is None else invocation_state
            self._cancellation = Cancellation(self._cancel_signal)
            while True:
                invocation = Invocation(
                    self._equipment(), cancellation=self._cancellation, state=state, limits=limits, outlet=outlet
                )
                result, resume = await self._invoke_once(invocation, self._accepted(prompt))
                if resume is None or self._cancellation.now:
                    return result
                prompt = resume
        finally:
            self._cancellation = None
            self._busy.release()

    def _equipment(self) -> Equipment:
        async def redact(message: Message) -> None:
            if self._session_manager is not None:
                await self._session_manager.redact_latest_message_async(message, self)

        return Equipment(
            agent=self,
            track=self._track,
            model=self._model,
            model_state=self.model_state,
            manager=self.conversation_manager,
            retry=self._retry,
            redact=redact,
            clock=self._clock,
        )

    def _accepted(self, prompt: object) -> Messages:
        """The new messages of a prompt; answers to questions are taken, and are no messages."""
        state = self.interrupt_state
        if state.activated and (state.open() or is_interrupt_response(prompt)):
            self.interrupt_state.resume(prompt)
            return []
        return prompt_messages(prompt)

    async def _invoke_once(self, invocation: Invocation, prompt: Messages) -> tuple[AgentResult, Any]:
        """One invocation between its hooks.

        Returns:
            What it came to, and what a hook wants to go on with.
        """
        try:
            result = await self._answer(invocation, prompt)
        except BaseException:
            await self._tell_end(invocation, None)
            raise
        return result, await self._tell_end(invocation, result)

    async def _answer(self, invocation: Invocation, prompt: Messages) -> AgentResult:
        before: BeforeInvocationEvent[Agent] = BeforeInvocationEvent(
            agent=self, invocation_state=invocation.state, messages=prompt
        )
        await self.hooks.invoke_callbacks_async(before)
        if before.cancel:
            text = before.cancel if isinstance(before.cancel, str) else CANCELLED_TEXT
            return invocation.result("cancelled", {"role": "assistant", "content": [{"text": text}]})
        return await invocation.run(before.messages)

    async def _tell_end(self, invocation: Invocation, result: AgentResult | None) -> Any:
        """Call the hooks at the end; what they want to go on with."""
        after: AfterInvocationEvent[Agent] = AfterInvocationEvent(
            agent=self, invocation_state=invocation.state, result=result
        )
        await self.hooks.invoke_callbacks_async(after)
        return after.resume

    def load_snapshot(self, snapshot: Snapshot) -> None:
        super().load_snapshot(snapshot)
        track = self._track
        track.checked = False
        # What a stateful provider has already: all of it, and the open turn's message, which is not in the history yet.
        track.sent = len(self.messages) + (track.turn is not None) if self.model_state else 0

    def take_journal(self) -> Journal:
        """The turn that is under way, if any: the model's message as a line, and what became of its calls so far."""
        track = self._track
        return Journal(track.mark) if track.turn is None else track.turn.journal(track.mark, self.interrupt_state)

    def load_journal(self, journal: Journal) -> None:
        """Take over what was open when another process ended.

        Calls that had begun to work get the error result "interrupted by a restart", unless their tool is repeatable.
        Those that may run (again) do so first in the next invocation, before its prompt is committed. Questions wait again.
        """
        self._refuse_while_active("loading a journal")
        self._track.checked = False
        known = self._track.turn
        recovery = recover(journal, self.messages)
        pending = [*recovery.again, *recovery.waiting]
        ids = {call.tool_use["toolUseId"] for call in pending}
        settled: Messages = []
        turn: OpenTurn | None = None
        for message in recovery.messages:
            if turn is None and any(call["toolUseId"] in ids for call in tool_uses(message)):
                turn = OpenTurn(message, {result["toolUseId"]: result for result in recovery.done})
            elif turn is not None:
                turn.prompt.append(message)
            else:
                settled.append(message)
        if turn is None and pending:  # a journal without the line: the calls are known all the same
            turn = OpenTurn({"role": "assistant", "content": [{"toolUse": call.tool_use} for call in pending]})
        self._track.mark = recovery.mark - (0 if turn is None else len(journal.turn))
        self.messages.extend(settled)
        if turn is None and known is not None and not call_ids([known.message]) & call_ids(settled):
            return  # the snapshot's open turn is not the journal's: it stays as it was loaded
        if turn is not None and known is not None:
            turn.prompt = max(turn.prompt, known.prompt, key=len)  # what came while it was open was added at the end
        elif known is not None:
            self.messages.extend(known.prompt[max(0, len(journal.turn) - 1) :])
        self._track.turn = turn
        if turn is None or not recovery.waiting:
            self.interrupt_state.deactivate()
            return
        for call in recovery.waiting:
            if call.question is not None:
                self.interrupt_state.interrupts.setdefault(call.question.id, call.question)
        self.interrupt_state.activate(turn.context())

    def _refuse_while_active(self, what: str) -> None:
        if self._busy.locked():
            raise ConcurrencyException(
                f"{what} has to wait until agent {self.agent_id!r} has answered, or cancel it first"
            )

    def _prepare_fields(self, fields: dict[SnapshotField, Any]) -> dict[SnapshotField, Any]:
        if "interrupt_state" in fields:
            state = InterruptState.from_dict(fields["interrupt_state"])
            turn = OpenTurn.from_context(state.context) if state.activated else None
            messages = cast("Messages", fields.get("messages", []))
            # Strands leaves the open turn's message in the history.
            if state.activated and messages and has_calls(messages[-1]):
                open_ids = call_ids(messages[-1:])
                if turn is None or call_ids([turn.message]) == open_ids:
                    last = messages.pop()
                    turn = turn or OpenTurn(last)
            fields["interrupt_state"] = (state, turn)
        if "conversation_manager_state" in fields:
            # Before anything else is changed: only the manager knows whether it can use its state.
            try:
                self.conversation_manager.restore_from_session(fields["conversation_manager_state"])
            except (ValueError, TypeError, KeyError) as error:
                raise SnapshotException(f"data.conversation_manager_state cannot be used: {error}") from error
        return fields

    def _capture_field(self, name: SnapshotField) -> Any:
        match name:
            case "conversation_manager_state":
                return self.conversation_manager.get_state()
            case "interrupt_state":
                state = self.interrupt_state
                if state.activated and self._track.turn is not None:
                    state.context = self._track.turn.context()
                return state.to_dict()
            case "model_state":
                return self.model_state
            case _:
                return super()._capture_field(name)

    def _apply_field(self, name: SnapshotField, value: Any) -> None:
        match name:
            case "conversation_manager_state":
                pass  # done in `_prepare_fields`
            case "interrupt_state":
                self.interrupt_state, self._track.turn = value
            case "model_state":
                self.model_state.clear()
                self.model_state.update(value)
            case _:
                super()._apply_field(name, value)


def _model_from(model: object) -> Model:
    if isinstance(model, Model):
        return model
    if model is None or isinstance(model, str):
        return turn_model(model)
    raise InvalidTypeError(f"model={model!r} must be a Model, a string that names one, or None")
