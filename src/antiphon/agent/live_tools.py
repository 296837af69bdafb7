"""Tools of a live call: they run while the talk goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from antiphon.bounded import settle
from antiphon.clock import Clock
from antiphon.content import ToolResult, ToolUse, error_result
from antiphon.conversation.journal import OpenCall
from antiphon.events import BidiInterruptEvent, OutputEvent, ToolCancelEvent, ToolResultEvent, ToolStreamEvent
from antiphon.interrupts import Interrupt
from antiphon.tools.base import AgentTool
from antiphon.tools.run import ToolOutcome

CANCELLED_TEXT = "cancelled"


@dataclass(slots=True)
class LiveToolCall:
    """One call.

    Attributes:
        tool_use: The call as the model made it.
        generation: The connection on which it was made; 0 for one from before this live call.
        started: Whether the tool may have begun to work.
        repeatable: Whether it may run again after a crash.
        questions: What it waits for, when it waits for a person.
        result: What it came to.
    """

    tool_use: ToolUse
    generation: int
    started: bool = False
    repeatable: bool = False
    questions: tuple[Interrupt, ...] = ()
    result: ToolResult | None = None
    task: asyncio.Task[None] | None = field(default=None, repr=False)

    @classmethod
    def reopened(cls, call: OpenCall) -> LiveToolCall:
        """A call that the journal of another process (or an earlier call) tells of."""
        questions = (call.question,) if call.question is not None else ()
        return cls(call.tool_use, 0, repeatable=call.repeatable, questions=questions)

    @property
    def id(self) -> str:
        """The model's id of it."""
        return self.tool_use["toolUseId"]

    @property
    def waits(self) -> bool:
        """Whether it waits for a person."""
        return bool(self.questions) and self.result is None

    def open_call(self) -> OpenCall:
        """The call as the journal keeps it."""
        question = self.questions[0] if self.waits else None
        return OpenCall(self.tool_use, self.started, self.repeatable, question, self.result)


class RunTool(Protocol):
    """Runs one call; the live agent binds everything else."""

    def __call__(
        self,
        tool_use: ToolUse,
        *,
        before_start: Callable[[AgentTool, ToolUse], Awaitable[None]],
        on_progress: Callable[[ToolUse, Any], None],
        on_refused: Callable[[ToolUse, str], None],
    ) -> Awaitable[ToolOutcome]: ...


class LiveTools:
    """The calls of a live call that are not in the history yet.

    Calls of one group are recorded and answered together, but for those that wait for a person: each of these goes its
    own way.
    """

    __slots__ = ("_clock", "_emit", "_groups", "_journal", "_recorded", "_run", "_spawn", "calls")

    def __init__(
        self,
        run: RunTool,
        *,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        journal: Callable[[], Awaitable[None]],
        emit: Callable[[OutputEvent], None],
        recorded: Callable[[list[LiveToolCall]], None],
        clock: Clock,
    ) -> None:
        self._run = run
        self._spawn = spawn
        self._journal = journal
        self._emit = emit
        self._recorded = recorded
        self._clock = clock
        self._groups: list[list[LiveToolCall]] = []
        self.calls: dict[str, LiveToolCall] = {}

    @property
    def running(self) -> list[LiveToolCall]:
        """The calls at work now."""
        return [call for call in self.calls.values() if call.result is None and not call.waits]

    def start(self, calls: Sequence[LiveToolCall]) -> None:
        """Run a group of calls, all at the same time. An id that is open already is not run again."""
        group = [call for call in calls if call.id not in self.calls]
        if not group:
            return
        self._groups.append(group)
        for call in group:
            self.calls[call.id] = call
        for call in group:
            call.task = self._spawn(self._work(call))

    def wait(self, call: LiveToolCall) -> None:
        """Keep a call that already waits for a person."""
        self.calls[call.id] = call
        self._emit(BidiInterruptEvent(interrupts=[question.to_dict() for question in call.questions]))

    def answered(self, interrupt_ids: set[str]) -> None:
        """Go on with the calls whose questions have an answer now."""
        for call in list(self.calls.values()):
            if call.waits and interrupt_ids.intersection(question.id for question in call.questions):
                call.questions = ()
                self._groups.append([call])
                call.task = self._spawn(self._work(call))

    async def _work(self, call: LiveToolCall) -> None:
        async def starting(tool: AgentTool, _: ToolUse) -> None:
            call.started, call.repeatable = True, tool.repeatable
            await self._journal()

        outcome = await self._run(
            call.tool_use,
            before_start=starting,
            on_progress=lambda tool_use, data: self._emit(
                ToolStreamEvent(tool_stream_event={"tool_use": tool_use, "data": data})
            ),
            on_refused=lambda tool_use, text: self._emit(ToolCancelEvent(tool_use=tool_use, message=text)),
        )
        if outcome.result is not None:
            self._finish(call, outcome.result)
            return
        call.questions, call.started = outcome.interrupts, False
        for group in self._groups:
            if call in group:
                group.remove(call)
        self._record_complete()
        await self._journal()
        self._emit(BidiInterruptEvent(interrupts=[question.to_dict() for question in outcome.interrupts]))

    def _finish(self, call: LiveToolCall, result: ToolResult) -> None:
        if call.result is not None or call.id not in self.calls:
            return
        call.result = result
        self._emit(ToolResultEvent(tool_result=result))
        self._record_complete()

    def _record_complete(self) -> None:
        complete = [group for group in self._groups if all(call.result is not None for call in group)]
        self._groups = [group for group in self._groups if group not in complete]
        for group in complete:
            if group:
                for call in group:
                    del self.calls[call.id]
                self._recorded(group)

    async def cancel(self, text: str, grace_s: float) -> None:
        """End the calls at work: they have `grace_s` to end by themselves, then their result is an error saying `text`.

        The caller has set their cancel signal before.
        """
        tasks = [call.task for call in self.running if call.task is not None]
        await settle(self._clock, grace_s, tasks)
        for call in self.running:
            if call.task is not None:
                call.task.cancel()
            self._finish(call, error_result(call.id, text or CANCELLED_TEXT))
