"""One invocation of an `Agent`: from a prompt to a result.

The order of things: the prompt is committed; the model is asked; its answer is committed, alone when it ends the turn, else
together with the results of the tools it calls; and again, until an answer ends the turn. Whatever ends an invocation, the
history is one that providers accept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from antiphon.agent.answer import Answer
from antiphon.agent.base import BaseAgent, commit
from antiphon.agent.cancellation import Cancellation, Cancelled
from antiphon.agent.managers import ConversationManager
from antiphon.agent.open_turn import OpenTurn, Track
from antiphon.agent.outlet import Outlet
from antiphon.agent.recorded import UNRECORDED_TEXT, UnrecordedError, recorded
from antiphon.agent.retry import ModelRetryStrategy
from antiphon.clock import Clock
from antiphon.content import ContentBlock, Message, Messages, SystemContentBlock, ToolUse, error_result
from antiphon.conversation.journal import call_ids
from antiphon.conversation.repair import has_calls, repair
from antiphon.errors import (
    ContextWindowOverflowException,
    InvalidInputError,
    MaxTokensReachedException,
    ModelThrottledException,
)
from antiphon.hooks.events import AfterModelCallEvent, BeforeModelCallEvent, JournalChangedEvent, MessageUpdatedEvent
from antiphon.interrupts import Interrupt
from antiphon.jsonable import clean_text
from antiphon.models.base import Model, strip_metadata
from antiphon.results import AgentResult, StopReason, Usage
from antiphon.tools.base import AgentTool
from antiphon.tools.run import ToolOutcome, run_tool

CANCELLED_TEXT = "cancelled"
"""What stands in the history for a call or an answer that was cancelled before it began."""
GRACE_S = 2.0
"""How long running tools have to end by themselves when their invocation is cancelled."""
FAILED_TEXT = "interrupted by an error"
_REDUCTIONS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of one invocation, looked at before each request to the model; None is no bound.

    Attributes:
        turns: How often the model may be asked.
        output_tokens: Tokens it may have made.
        total_tokens: Tokens in all.
    """

    turns: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None

    def reached(self, turns: int, usage: Usage) -> StopReason | None:
        """Which bound is reached."""
        if self.turns is not None and turns >= self.turns:
            return "limit_turns"
        if self.output_tokens is not None and usage.output_tokens >= self.output_tokens:
            return "limit_output_tokens"
        if self.total_tokens is not None and usage.total_tokens >= self.total_tokens:
            return "limit_total_tokens"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Equipment:
    """What an agent brings into each of its invocations.

    Attributes:
        agent: The agent.
        track: Where it stands beside its history.
        model: Who answers.
        model_state: What a stateful model keeps.
        manager: Bounds the history.
        retry: When to ask again; None: never.
        redact: Brings a redaction to everything at rest.
        clock: Paces waits.
    """

    agent: BaseAgent
    track: Track
    model: Model
    model_state: dict[str, Any]
    manager: ConversationManager
    retry: ModelRetryStrategy | None
    redact: Callable[[Message], Awaitable[None]] | None
    clock: Clock


@dataclass(frozen=True, slots=True)
class _Reply:
    """An answer that is over.

    Attributes:
        message: What was said; None: nothing.
        stop_reason: Why it ended.
        answer: Where it came from.
    """

    message: Message | None
    stop_reason: StopReason
    answer: Answer = field(default_factory=Answer)


class Invocation:
    """One invocation. Make it in the event loop that runs it.

    Attributes:
        cancellation: How it is cancelled.
        state: The caller's `invocation_state`.
        usage: Tokens so far.
        model_calls: How often the model was asked so far.
    """

    def __init__(
        self,
        equipment: Equipment,
        *,
        cancellation: Cancellation,
        state: dict[str, Any],
        limits: Limits | None,
        outlet: Outlet,
    ) -> None:
        self.cancellation = cancellation
        self.state = state
        self.usage = Usage()
        self.model_calls = 0
        self._with = equipment
        self._limits = limits or Limits()
        self._outlet = outlet

    async def run(self, prompt: Messages) -> AgentResult:
        """Go on with the conversation until it is the user's turn again.

        Args:
            prompt: New messages.

        Raises:
            InvalidInputError: If there is nothing to go on with.
            MaxTokensReachedException: If the answer was cut off; what there is of it is committed.
            Exception: Whatever the model or a hook raises, unchanged.
        """
        try:
            return await self._converse(prompt)
        finally:
            self._with.manager.apply_management(self._with.agent)

    def result(
        self, stop_reason: StopReason, message: Message | None, interrupts: tuple[Interrupt, ...] = ()
    ) -> AgentResult:
        """What the invocation comes to, if it ends now. An answer without words is a message without content."""
        said: Message = {"role": "assistant", "content": []} if message is None else message
        return AgentResult(stop_reason, said, self.usage, self.state, interrupts, self.model_calls)

    async def _converse(self, prompt: Messages) -> AgentResult:
        agent, track = self._with.agent, self._with.track
        self._mend()
        latest: Message | None = None
        if (turn := track.turn) is not None:
            turn.prompt += prompt
            latest = turn.message
            if (ended := await self._finish(turn)) is not None:
                return ended
        else:
            agent.interrupt_state.deactivate()
            if not prompt and not agent.messages:
                raise InvalidInputError("there is nothing to go on with: no prompt, and no history")
            for message in prompt:
                await commit(agent, message)
        while True:
            if (reached := self._limits.reached(self.model_calls, self.usage)) is not None:
                return self.result(reached, latest)
            reply = await self._ask()
            latest = reply.message
            if latest is not None:
                self._outlet.put({"message": latest})
            if reply.stop_reason == "tool_use" and latest is not None and has_calls(latest):
                turn = track.turn = OpenTurn(latest, dict(reply.answer.refused))
                if (ended := await self._finish(turn)) is not None:
                    return ended
                continue
            if latest is not None:
                await commit(agent, latest)
            if reply.stop_reason == "max_tokens":
                raise MaxTokensReachedException(
                    "the answer reached the model's token limit; its beginning is in the history"
                )
            return self.result("end_turn" if reply.stop_reason == "tool_use" else reply.stop_reason, latest)

    def _mend(self) -> None:
        """Make the history acceptable, when somebody else has touched it: as a rule, there is nothing to do."""
        messages, track = self._with.agent.messages, self._with.track
        if not track.checked or (messages and has_calls(messages[-1])):
            mended = repair(messages)
            if len(mended) != len(messages) or any(one is not two for one, two in zip(mended, messages, strict=True)):
                messages[:] = mended
            track.checked = True
        if self._with.model.stateful:  # the provider has these
            dropped = min(track.sent, len(messages))
            del messages[:dropped]
            track.sent -= dropped

    async def _ask(self) -> _Reply:
        """Ask the model until it answers, fails for good, or is cancelled."""
        agent, failures, reductions = self._with.agent, 0, 0
        while True:
            before: BeforeModelCallEvent = BeforeModelCallEvent(agent=agent, invocation_state=self.state)
            await agent.hooks.invoke_callbacks_async(before)
            if before.cancel:
                text = before.cancel if isinstance(before.cancel, str) and before.cancel.strip() else CANCELLED_TEXT
                return _Reply({"role": "assistant", "content": [{"text": clean_text(text)}]}, "end_turn")
            answer, reply, error = Answer(), None, None
            self.model_calls += 1
            try:
                await self._listen(answer)
                taken = call_ids(agent.messages) if answer.calls_tools else ()
                reply = _Reply(answer.message(taken), answer.stop_reason, answer)
            except Cancelled:
                reply = self._cut(answer)
            except Exception as failure:  # noqa: BLE001 - a model is somebody else's code: hooks are told, then it is raised
                error = failure
            finally:
                self.usage += answer.usage
                agent.usage += answer.usage
            after: AfterModelCallEvent = AfterModelCallEvent(
                agent=agent,
                invocation_state=self.state,
                message=reply.message if reply else None,
                stop_reason=reply.stop_reason if reply else None,
                exception=error,
            )
            await agent.hooks.invoke_callbacks_async(after)
            if after.retry and not self.cancellation.now:
                self._outlet.put({"retry": {"reason": str(error) if error else "a hook asked for it"}})
            elif error is None and reply is not None:
                if reply.stop_reason != "cancelled":  # the provider has the answer too, which is committed next
                    self._with.track.sent = len(agent.messages) + (reply.message is not None)
                return reply
            elif isinstance(error, ContextWindowOverflowException) and reductions < _REDUCTIONS:
                reductions += 1
                self._with.manager.reduce_context(agent, error)
                self._outlet.put({"retry": {"reason": str(error)}})
            elif isinstance(error, ModelThrottledException):
                failures += 1
                delay = self._with.retry.delay(failures) if self._with.retry else None
                if delay is None:
                    raise error
                self._outlet.put({"retry": {"reason": str(error), "delay": delay}})
                try:
                    await self.cancellation.run(self._with.clock.sleep(delay))
                except Cancelled:
                    return self._cut(Answer())
            elif error is not None:
                raise error

    async def _listen(self, answer: Answer) -> None:
        """Take in an answer as it comes.

        Raises:
            Cancelled: If the invocation was cancelled.
            Exception: Whatever the model raises.
        """
        agent, model = self._with.agent, self._with.model
        stream = model.stream(
            self._request(),
            agent.tool_registry.specs() or None,
            _prompt_of(agent),
            model_state=self._with.model_state if model.stateful else None,
        )
        redacted: str | None = None
        try:
            self.cancellation.check()
            while True:
                try:
                    event = await self.cancellation.run(anext(stream))
                except StopAsyncIteration:
                    return
                for told in answer.apply(event):
                    self._outlet.put(told)
                if answer.user_redaction is not None and answer.user_redaction != redacted:
                    redacted = answer.user_redaction
                    await self._redact(redacted)
                if self._outlet.full:
                    await self.cancellation.run(self._outlet.room())
        finally:
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()

    def _request(self) -> Messages:
        messages = self._with.agent.messages
        return strip_metadata(messages[self._with.track.sent :] if self._with.model.stateful else messages)

    def _cut(self, answer: Answer) -> _Reply:
        return _Reply(answer.cut(self.cancellation.message, CANCELLED_TEXT), "cancelled", answer)

    async def _redact(self, text: str) -> None:
        """Replace what the user's latest message says, here and in everything at rest."""
        agent = self._with.agent
        index = next((at for at in reversed(range(len(agent.messages))) if agent.messages[at]["role"] == "user"), None)
        if index is None:
            return
        message = agent.messages[index]
        results: list[ContentBlock] = [
            {"toolResult": {**block["toolResult"], "content": [{"text": text}]}}
            for block in message["content"]
            if "toolResult" in block
        ]
        # In place: whoever else holds this message must not keep the words either.
        message["content"] = results or [{"text": text}]
        message.pop("metadata", None)
        if agent.hooks.listens(MessageUpdatedEvent):
            await agent.hooks.invoke_callbacks_async(MessageUpdatedEvent(agent=agent, message=message, index=index))
        if self._with.redact is not None:
            await self._with.redact(message)

    async def _finish(self, turn: OpenTurn) -> AgentResult | None:
        """Bring an open turn to its end.

        Returns:
            What the invocation comes to if it ends here: a person is asked, or it was cancelled. Else None.
        """
        agent = self._with.agent
        try:
            if turn.left() and not self.cancellation.now:
                await self._run_calls(turn)
        except Exception:
            turn.settle(FAILED_TEXT)
            await self._close(turn)
            raise
        except BaseException:  # the task was cancelled: nothing is awaited any more
            turn.settle(CANCELLED_TEXT)
            agent.messages.extend(self._settled(turn))
            raise
        if turn.left() and not self.cancellation.now:
            agent.interrupt_state.activate(turn.context())
            await self._tell_journal()
            return self.result("interrupt", turn.message, tuple(agent.interrupt_state.open()))
        turn.settle(CANCELLED_TEXT)
        await self._close(turn)
        if self.cancellation.now or self.cancellation.deferred:
            return self.result("cancelled", turn.message)
        return None

    async def _run_calls(self, turn: OpenTurn) -> None:
        """Run the calls that have no result yet, all at once.

        Raises:
            Exception: What a hook raised; the other calls are cancelled then.
        """
        failure: BaseException | None = None
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._run_call(turn, call)) for call in turn.left()]
                watch = group.create_task(self._end_in_time(tasks))
                await asyncio.wait(tasks)
                watch.cancel()
        except BaseExceptionGroup as errors:
            failure = _first(errors)
        if failure is not None:
            raise failure

    async def _end_in_time(self, tasks: Iterable[asyncio.Task[None]]) -> None:
        await self.cancellation.wait()
        await self._with.clock.sleep(GRACE_S)
        for task in tasks:
            task.cancel()

    async def _run_call(self, turn: OpenTurn, call: ToolUse) -> None:
        key = call["toolUseId"]

        async def starts(tool: AgentTool, _call: ToolUse) -> None:
            self.cancellation.check()
            turn.started[key] = tool.repeatable
            await recorded(self._tell_journal, self._with.clock, repeatable=tool.repeatable)
            self.cancellation.check()

        agent = self._with.agent
        try:
            outcome: ToolOutcome = await run_tool(
                agent,
                call,
                registry=agent.tool_registry,
                invocation_state=self.state,
                cancel_signal=self.cancellation.signal,
                interrupt_state=agent.interrupt_state,
                before_start=starts,
                on_progress=lambda use, data: self._outlet.put({"tool_stream_event": {"tool_use": use, "data": data}}),
                clock=self._with.clock,
            )
        except Cancelled:
            turn.results[key] = error_result(key, CANCELLED_TEXT)
            return
        except UnrecordedError:
            turn.results[key] = error_result(key, UNRECORDED_TEXT)
            self._outlet.put({"tool_result": turn.results[key]})
            return
        if outcome.result is None:
            turn.started.pop(key, None)  # it runs again from its top when the answer is there
            for question in outcome.interrupts:
                agent.interrupt_state.interrupts.setdefault(question.id, question)
            return
        turn.results[key] = outcome.result
        self._outlet.put({"tool_result": outcome.result})
        if turn.left():  # known by now, should the process end before the others are done
            await self._tell_journal()

    def _settled(self, turn: OpenTurn) -> Messages:
        """The turn is over: the messages that it comes to, with those that waited for it."""
        self._with.track.turn = None
        self._with.track.mark += 1 + len(turn.prompt)
        self._with.agent.interrupt_state.deactivate()
        return [*turn.messages(), *turn.prompt]

    async def _close(self, turn: OpenTurn) -> None:
        messages = self._settled(turn)
        self._outlet.put({"message": messages[1]})
        await commit(self._with.agent, *messages)

    async def _tell_journal(self) -> Exception | None:
        """Have the journal written. Returns why it could not be, when it could not."""
        agent = self._with.agent
        event: JournalChangedEvent[BaseAgent] = JournalChangedEvent(agent=agent)
        if agent.hooks.listens(JournalChangedEvent):
            await agent.hooks.invoke_callbacks_async(event)
        return event.unsaved


def _prompt_of(agent: BaseAgent) -> str | list[SystemContentBlock] | None:
    """The system prompt as simply as it can be told."""
    blocks = agent.system_prompt_content
    return agent.system_prompt if blocks is None or all(set(block) == {"text"} for block in blocks) else blocks


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    error = errors.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error  # pyright: ignore[reportUnknownArgumentType]
