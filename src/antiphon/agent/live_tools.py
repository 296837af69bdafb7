"""Tools of a live call: they run while the talk goes on."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from antiphon.agent.recorded import UNRECORDED_TEXT, UnrecordedError, recorded
from antiphon.bounded import settle
from antiphon.clock import Clock
from antiphon.content import ToolResult, ToolUse, error_result
from antiphon.conversation.calls import normalised
from antiphon.conversation.journal import OpenCall
from antiphon.events import BidiInterruptEvent, OutputEvent, ToolCancelEvent, ToolResultEvent, ToolStreamEvent
from antiphon.interrupts import Interrupt, InterruptState
from antiphon.tools.base import AgentTool
from antiphon.tools.run import ToolOutcome

CANCELLED_TEXT = "cancelled"
WITHDRAWN_TEXT = "cancelled: the user spoke before it was done"
_REMEMBERED = 32
"""How many finished calls are known again when another connection tells of them."""


@dataclass(slots=True)
class LiveToolCall:
    """One call.

    Attributes:
        tool_use: The call, as the history keeps it.
        generation: The connection that knows of it; 0 for one from before this live call.
        wire_id: The id by which the provider knows it; empty: the same.
        refusal: Why it does not run at all.
        started: Whether the tool may have begun to work.
        repeatable: Whether it may run again after a crash.
        questions: What it waits for, when it waits for a person.
        result: What it came to.
        withdrawn: Whether the model took it back, and wants no result.
    """

    tool_use: ToolUse
    generation: int
    wire_id: str = ""
    refusal: str | None = None
    started: bool = False
    repeatable: bool = False
    questions: tuple[Interrupt, ...] = ()
    result: ToolResult | None = None
    withdrawn: bool = False
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

    def is_told_again(self, original_id: str, tool_use: ToolUse, generation: int) -> bool:
        """Whether a newer connection (or the same one, while the call is open) tells of this very call once more."""
        same = (self.wire_id or self.id) == original_id and self.tool_use["name"] == tool_use["name"]
        return (
            same
            and not self.withdrawn
            and self.tool_use["input"] == tool_use["input"]
            and (self.generation < generation or (self.generation == generation and self.result is None))
        )


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

    __slots__ = (
        "_clock",
        "_emit",
        "_finished",
        "_groups",
        "_idle",
        "_interrupts",
        "_journal",
        "_known",
        "_over",
        "_recorded",
        "_resend",
        "_run",
        "_spawn",
        "calls",
    )

    def __init__(
        self,
        run: RunTool,
        *,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        journal: Callable[[], Awaitable[Exception | None]],
        emit: Callable[[OutputEvent], None],
        recorded: Callable[[list[LiveToolCall]], None],
        resend: Callable[[LiveToolCall], None],
        idle: Callable[[], None],
        interrupts: InterruptState,
        known: set[str],
        clock: Clock,
    ) -> None:
        self._run = run
        self._spawn = spawn
        self._journal = journal
        self._emit = emit
        self._recorded = recorded
        self._resend = resend
        self._idle = idle
        self._interrupts = interrupts
        self._known = known
        self._over = False
        self._clock = clock
        self._finished: deque[LiveToolCall] = deque(maxlen=_REMEMBERED)
        self._groups: list[list[LiveToolCall]] = []
        self.calls: dict[str, LiveToolCall] = {}

    @property
    def running(self) -> list[LiveToolCall]:
        """The calls at work now."""
        return [call for call in self.calls.values() if call.result is None and not call.waits]

    def open_calls(self) -> Iterator[OpenCall]:
        """The calls as the journal keeps them."""
        for call in self.calls.values():
            question = call.questions[0] if call.waits else None
            answered = tuple(entry for entry in self._interrupts.of_call(call.id) if entry.response is not None)
            yield OpenCall(call.tool_use, call.started, call.repeatable, question, call.result, answered)

    def called(self, tool_uses: Sequence[object], generation: int) -> list[ToolUse]:
        """The model calls tools: run what is new.

        A call that another connection tells once more is not run again; it gets the result it has, or will have.

        Returns:
            The calls as the history will have them.
        """
        group: list[LiveToolCall] = []
        for entry in normalised(tool_uses, self._known):
            tool_use, original = entry.tool_use, entry.original_id or ""
            before = next(
                (
                    call
                    for call in [*self.calls.values(), *self._finished]
                    if original and call.is_told_again(original, tool_use, generation)
                ),
                None,
            )
            if before is None:
                self._known.add(tool_use["toolUseId"])
                group.append(LiveToolCall(tool_use, generation, wire_id=original, refusal=entry.refusal))
                continue
            moved, before.generation = before.generation < generation, generation
            if before.result is not None and moved:
                self._resend(before)
        self.start(group)
        return [call.tool_use for call in group]

    def start(self, calls: Sequence[LiveToolCall]) -> None:
        """Run a group of calls, all at the same time."""
        group = list(calls)
        if not group:
            return
        self._groups.append(group)
        for call in group:
            self.calls[call.id] = call
        for call in group:
            if call.refusal is None:
                call.task = self._spawn(self._work(call))
        for call in group:
            if call.refusal is not None:
                self._finish(call, error_result(call.id, call.refusal))

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

    def withdraw(self, tool_use_ids: Collection[str], generation: int) -> None:
        """The model takes calls back: their results are not sent, and those without one end now.

        A tool that is a coroutine is cancelled; one in a thread runs to its end, and nobody waits for it. The history keeps
        each call, with the result it had, or with an error that says why there is none.

        Args:
            tool_use_ids: The model's ids of them. Unknown ones are of calls that are over.
            generation: The connection that says so: an id may mean another call on another one.
        """
        taken = [
            call
            for call in [*self.calls.values(), *self._finished]
            if call.generation == generation and (call.wire_id or call.id) in tool_use_ids
        ]
        for call in taken:
            call.withdrawn = True
        for call in taken:
            if call.result is not None:
                continue
            if call.waits:
                self._groups.append([call])
            elif call.task is not None:
                call.task.cancel()
            self._finish(call, error_result(call.id, WITHDRAWN_TEXT))

    async def _work(self, call: LiveToolCall) -> None:
        async def starting(tool: AgentTool, _: ToolUse) -> None:
            call.started, call.repeatable = True, tool.repeatable
            await recorded(self._journal, self._clock, repeatable=tool.repeatable)
            if self._over:
                raise UnrecordedError

        try:
            outcome = await self._run(
                call.tool_use,
                before_start=starting,
                on_progress=lambda tool_use, data: self._emit(
                    ToolStreamEvent(tool_stream_event={"tool_use": tool_use, "data": data})
                ),
                on_refused=lambda tool_use, text: self._emit(ToolCancelEvent(tool_use=tool_use, message=text)),
            )
        except UnrecordedError:
            self._finish(call, error_result(call.id, CANCELLED_TEXT if self._over else UNRECORDED_TEXT))
            return
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
        self._interrupts.forget_call(call.id)
        self._emit(ToolResultEvent(tool_result=result))
        self._record_complete()

    def _record_complete(self) -> None:
        complete = [group for group in self._groups if all(call.result is not None for call in group)]
        self._groups = [group for group in self._groups if group not in complete]
        for group in complete:
            if group:
                for call in group:
                    del self.calls[call.id]
                self._finished.extend(group)
                self._recorded(group)
        if not self.running:
            self._idle()

    async def cancel(self, text: str, grace_s: float, *, questions: bool) -> None:
        """End the calls at work: they have `grace_s` to end by themselves, then their result is an error saying `text`.

        The caller has set their cancel signal before.

        Args:
            text: What the result says.
            grace_s: Seconds to end by themselves.
            questions: Whether calls that wait for a person end, too.
        """
        self._over = True
        if questions:
            for call in [call for call in self.calls.values() if call.waits]:
                self._groups.append([call])
                self._finish(call, error_result(call.id, text or CANCELLED_TEXT))
        tasks = [call.task for call in self.running if call.task is not None]
        await settle(self._clock, grace_s, tasks)
        for call in self.running:
            if call.task is not None:
                call.task.cancel()
            self._finish(call, error_result(call.id, text or CANCELLED_TEXT))
