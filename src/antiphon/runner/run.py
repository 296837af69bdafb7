"""One run: a loop of turns, apart from who drives it and who listens."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from antiphon.agent.turns import Agent
from antiphon.artifacts import Artifacts
from antiphon.bounded import within
from antiphon.clock import Clock, iso_utc
from antiphon.content import Message, Messages
from antiphon.conversation.repair import without_dangling_tail
from antiphon.errors import (
    InvalidInputError,
    MaxTokensReachedException,
    SessionConflictError,
    SessionStoreError,
    StaleEpochError,
    StateValidationError,
    TerminalStatusError,
)
from antiphon.hooks.events import JournalChangedEvent, MessageAddedEvent
from antiphon.hooks.registry import HookOrder
from antiphon.interrupts import Interrupt
from antiphon.results import AgentResult
from antiphon.runner.client_state import client_view
from antiphon.runner.feed import Feed, StateChanged, TurnBegins
from antiphon.runner.ground import Ground
from antiphon.runner.inputs import ReadInput, read_input
from antiphon.runner.loading import load_ground
from antiphon.runner.outputs import (
    ArtifactChunk,
    ModelChunk,
    RunError,
    RunOutput,
    TurnEnd,
    finish_of,
)
from antiphon.runner.plan import Plan
from antiphon.runner.resuming import resumed
from antiphon.runner.rows import Content, Ending, RunRows
from antiphon.runner.spending import Spending
from antiphon.runner.state_type import StateType
from antiphon.runner.waiting import told_to_end
from antiphon.snapshot.envelope import SCHEMA_VERSION, Snapshot
from antiphon.state import TypedState
from antiphon.store.base import SessionSnapshot
from antiphon.turn import Turn

_SAVE_S = 5.0
"""How long a run that is cancelled may take to save what it has done."""

_QUICK_S = 0.25
"""A turn whose tools take less is not watched for aborts: most are over before anybody could want one."""

_LOST = (SessionConflictError, StaleEpochError, TerminalStatusError)
"""The session, or the run itself, is somebody else's by now: nothing of this run may be written any more."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSetup:
    """What stays the same for all runs of a runner.

    Attributes:
        clock: Dates and paces.
        strict: Whether a turn whose row cannot be written has failed.
        heartbeat: Seconds between signs of life.
        state_type: The type of the session's state.
    """

    clock: Clock
    strict: bool = True
    heartbeat: float = 30.0
    state_type: StateType[Any] | None = None


@dataclass(slots=True)
class _Standing:
    """What a run has come to so far.

    Attributes:
        output: What it would return now.
        view: Where the client keeps the session: that, as of the last good turn.
        index: The number of the next turn.
        worked: Whether the turn under way has committed anything.
        aborted: Whether the run is to end.
    """

    output: RunOutput
    view: dict[str, Any] | None = None
    index: int = 0
    worked: bool = False
    aborted: bool = False


class Run:
    """One run of an agent. Make it in the event loop that runs it.

    Args:
        agent: Made for this run; its state is loaded here.
        ground: What it goes on from.
        setup: What all runs share.
        rows: Writes its rows; None where the client keeps the session.
        feed: Who listens; None: nobody.
        plan: Of a detached run: its one row is rewritten after each turn, and settled after the last.

    Raises:
        SnapshotException: If the state cannot be loaded.
        StateValidationError: If the session's state does not fit its type.
    """

    def __init__(
        self,
        agent: Agent,
        ground: Ground,
        setup: RunSetup,
        *,
        rows: RunRows | None,
        feed: Feed | None = None,
        plan: Plan | None = None,
        initial_state: Callable[[], dict[str, Any]] | None = None,
    ) -> None:
        self._agent, self._setup, self._rows, self._feed = agent, setup, rows, feed
        self._plan = plan
        self._session_id = ground.session_id
        self._heart: asyncio.Task[None] | None = None
        self._watch: asyncio.Task[None] | None = None
        artifacts = load_ground(agent, ground, setup.state_type, initial_state)
        self._artifacts = Artifacts(artifacts, on_add=lambda added: self._tell(ArtifactChunk(added)))
        resumed_from = None if ground.row is None else ground.row.snapshot_id
        self._spending = Spending(agent, ground.usage)
        self._now = _Standing(RunOutput(session_id=ground.session_id, snapshot_id=resumed_from, usage=ground.usage))
        if rows is None:
            self._now.view = client_view(ground.session_id, self._content().snapshot, ground.usage)
        agent.hooks.add_callback(MessageAddedEvent, self._on_message, order=HookOrder.SDK_FIRST)
        if rows is not None:
            agent.hooks.add_callback(JournalChangedEvent, self._on_journal, order=HookOrder.SDK_LAST)
        agent.turn = self._turn_of()

    @property
    def session_id(self) -> str:
        """The conversation."""
        return self._session_id

    def abort(self, message: str | None = None) -> None:
        """End the run: the turn under way is cancelled, and no other begins. From any thread."""
        self._now.aborted = True
        self._agent.cancel(message=message)

    async def reserve(self) -> None:
        """Write the row of the turn that is under way, or comes next, as it is now: others see that it is worked on.

        Raises:
            SessionConflictError: If another run has moved the session on.
            IdempotencyKeyError: If another row has the run's key.
            SessionStoreError: What else the store raised.
        """
        if self._rows is None:
            return
        await self._rows.pend(self._content(self._plan))
        if self._heart is None:
            # Ended by `go`; it only lets others know that this process is alive.
            self._heart = asyncio.create_task(self._beat(), name="heartbeat")  # noqa: TID251
        if self._watch is None and self._plan is None:  # a detached run is watched by whoever works on it
            self._watch = asyncio.create_task(self._obey(self._rows), name="watch")  # noqa: TID251 - as above

    async def go(self, inputs: AsyncIterator[object]) -> RunOutput:
        """Take one turn for each input, until one fails or is aborted.

        Raises:
            SessionConflictError: If another run has moved the session on, and nothing of this one was saved.
            StaleEpochError: If another worker has adopted the run.
        """
        end_watch = self._agent.state.watch(lambda state: self._tell(StateChanged(state)))
        try:
            async for given in inputs:
                await self._turn(given)
                if self._now.output.finish_reason in {"failed", "aborted"}:
                    break
            if self._now.index == 0:
                raise InvalidInputError("there is no input: give at least one")
            return self._now.output
        finally:
            end_watch()
            await self.rest()
            if self._feed is not None:
                self._feed.close()

    async def rest(self) -> None:
        """Give no more signs of life."""
        helpers = {helper for helper in (self._heart, self._watch) if helper is not None}
        for helper in helpers:
            helper.cancel()
        if helpers:
            await asyncio.wait(helpers)

    async def _turn(self, given: object) -> None:
        """One turn, from its input to its row."""
        agent, now = self._agent, self._now
        turn = agent.turn = self._turn_of()
        now.worked = False
        before = agent.state.get()
        self._tell(TurnBegins(turn.snapshot_id))
        result: AgentResult | None = None
        try:
            read = given if isinstance(given, ReadInput) else read_input(given)
            result = await self._invoke(read)
            status = "aborted" if finish_of(result.stop_reason) == "aborted" else "completed"
            ending = Ending("aborted" if status == "aborted" else "completed", finish_of(result.stop_reason))
        except asyncio.CancelledError:
            await self._save_at_once()
            raise
        except _LOST as error:
            if now.index == 0:
                raise
            self._end(Ending.failure(error), None, None)
            return
        except MaxTokensReachedException:
            ending = Ending("completed", "length")
        except Exception as error:  # noqa: BLE001 - models, hooks and tools are others' code: what they raise is an outcome
            ending = Ending.failure(error)
        ending = self._checked(ending, before)
        await self._save(ending, result)

    def _turn_of(self) -> Turn:
        agent, rows, state_type = self._agent, self._rows, self._setup.state_type
        return Turn(
            session_id=self._session_id,
            snapshot_id=None if rows is None else rows.snapshot_id,
            parent_id=None if rows is None else rows.parent_id,
            index=self._now.index,
            state=TypedState.plain(agent.state)
            if state_type is None
            else TypedState(agent.state, state_type.read, state_type.write),
            artifacts=self._artifacts,
        )

    async def _invoke(self, given: ReadInput) -> AgentResult:
        """Ask the agent."""
        agent = self._agent
        prompt: Messages | list[dict[str, Any]] | None = given.messages or None
        if given.resume:
            answered = resumed(given.resume, agent.interrupt_state, agent.messages, has_messages=bool(given.messages))
            agent.load_snapshot(Snapshot("agent", SCHEMA_VERSION, {"interrupt_state": answered.state}, {}))
            if answered.waits:
                self._now.worked = True
                said: Message = answered.state["context"]["tool_use_message"]
                return AgentResult("interrupt", said, interrupts=tuple(agent.interrupt_state.open()))
            prompt = answered.answers or prompt
        elif agent.interrupt_state.activated and (questions := agent.interrupt_state.open()):
            more = f", and {len(questions) - 1} more" if len(questions) > 1 else ""
            raise InvalidInputError(
                f"the question {questions[0].name!r}{more} waits for an answer: give it with resume="
            )
        elif prompt is None and self._plan is not None and self._plan.begun and not self._goes_on():
            return AgentResult("end_turn", agent.messages[-1])  # its worker died between the answer and the row
        elif prompt is None and not self._goes_on():
            raise InvalidInputError(
                "there is nothing to answer: the input is empty, and the model has had the last word"
            )
        if self._now.aborted:
            return AgentResult("cancelled", {"role": "assistant", "content": []})
        if self._feed is None:
            return await agent.invoke_async(prompt)
        return await self._listen(prompt, self._feed)

    def _goes_on(self) -> bool:
        """Whether the conversation waits for the model without anybody saying something."""
        agent = self._agent
        return not agent.take_journal().empty or bool(agent.messages and agent.messages[-1]["role"] == "user")

    async def _listen(self, prompt: Messages | list[dict[str, Any]] | None, feed: Feed) -> AgentResult:
        index, result = 0, None
        async with aclosing(self._agent.stream_async(prompt)) as events:
            async for event in events:
                if "result" in event:
                    result = event["result"]
                elif "data" in event:
                    feed.put(ModelChunk("assistant", [{"text": event["data"]}], index))
                elif "reasoning" in event:
                    block = {"reasoningText": {"text": event["reasoning"]}}
                    feed.put(ModelChunk("assistant", [{"reasoningContent": block}], index))
                elif "message" in event and event["message"]["role"] == "assistant":
                    if calls := [block for block in event["message"]["content"] if "toolUse" in block]:
                        feed.put(ModelChunk("assistant", calls, index))
                    index += 1
                elif "tool_result" in event:
                    feed.put(ModelChunk("user", [{"toolResult": event["tool_result"]}], index))
                elif "redact" in event:
                    told = event["redact"]
                    feed.put(ModelChunk(told["role"], [{"text": told["text"]}], index, replaces=True))
                elif "retry" in event:
                    feed.put(ModelChunk("assistant", [], index, replaces=True))
                await feed.room()
        assert isinstance(result, AgentResult)  # noqa: S101 - `stream_async` ends with it, or raises
        return result

    def _checked(self, ending: Ending, before: dict[str, Any]) -> Ending:
        """The ending, once the session's state was found to fit its type; what does not fit is not kept."""
        state_type = self._setup.state_type
        if state_type is None:
            return ending
        try:
            if state := self._agent.state.get():
                state_type.read(state)
        except StateValidationError as error:
            self._agent.state.replace(before)
            return Ending.failure(error)
        return ending

    async def _save(self, ending: Ending, result: AgentResult | None) -> None:
        rows, now = self._rows, self._now
        unsaved: RunError | None = None
        keeps = ending.status != "failed" or now.worked
        snapshot_id: str | None = None
        if rows is not None and (keeps or rows.pending):
            try:
                row = await self._write(rows, ending)
                snapshot_id = row.snapshot_id
                if row.status == "aborted" and ending.status != "aborted":
                    ending = replace(ending, status="aborted", finish_reason="aborted")
            except _LOST as error:
                if now.index == 0:
                    raise
                ending = Ending.failure(error)
            except SessionStoreError as error:
                if self._setup.strict:
                    ending = Ending.failure(error)
                else:
                    unsaved = RunError.of(error)
            except Exception as error:  # noqa: BLE001 - what users put into the agent cannot be stored
                ending = Ending.failure(error)
        elif rows is None and keeps:
            now.view = client_view(self._session_id, self._content().snapshot, self._spending.total())
        elif now.view is not None:
            now.view = {**now.view, "usage": self._spending.total()}
        self._end(ending, result, snapshot_id, unsaved)

    async def _write(self, rows: RunRows, ending: Ending) -> SessionSnapshot:
        """Write the row of a turn that has ended; of a detached run, for the turns that follow, or for good."""
        plan = self._plan
        if plan is not None:
            plan.end_turn()
            if plan.unfinished and ending.status == "completed":
                if not self._now.aborted:
                    row = await rows.pend(self._content(plan))
                    if row.status != "aborting":
                        return row
                    self._now.aborted = True
                ending = Ending("aborted", "aborted")
        return await rows.settle(self._content(), ending)

    def _end(
        self, ending: Ending, result: AgentResult | None, snapshot_id: str | None, unsaved: RunError | None = None
    ) -> None:
        """Say how a turn ended."""
        agent, now = self._agent, self._now
        failed = ending.status == "failed"
        waiting = agent.interrupt_state
        questions: tuple[Interrupt, ...] = tuple(waiting.open()) if waiting.activated else ()
        message = None if failed else _said(agent, result)
        now.output = RunOutput(
            session_id=self._session_id,
            snapshot_id=snapshot_id or now.output.snapshot_id,
            message=message,
            artifacts=() if failed else tuple(self._artifacts),
            finish_reason=ending.finish_reason,
            error=ending.error,
            usage=self._spending.total(),
            interrupts=questions,
            state=now.view,
            forked=self._rows is not None and self._rows.forked,
            unsaved=unsaved,
        )
        now.index += 1
        self._tell(TurnEnd(snapshot_id, ending.finish_reason))

    async def _save_at_once(self) -> None:
        """The run's task was cancelled: keep what the turn has done, in a bounded time."""
        rows = self._rows
        if rows is None or not (rows.pending or self._now.worked):
            return
        if self._plan is not None and not self._now.aborted:
            return  # this process ends, and the run does not: another one may adopt it as its row stands
        ending = Ending("aborted", "aborted", RunError("ABORTED", "the run was cancelled"))
        try:
            await within(self._setup.clock, _SAVE_S, rows.settle(self._content(), ending))
        except (SessionStoreError, TimeoutError) as error:
            _log.warning("the cancelled turn %r could not be saved: %s", rows.snapshot_id, error)

    def _content(self, plan: Plan | None = None) -> Content:
        """The agent, now: all of it in one synchronous moment. Its messages are shared with it, the list is not.

        Args:
            plan: What is still to be done, while the row is in flight.
        """
        agent, state_type = self._agent, self._setup.state_type
        rest = agent.take_snapshot(preset="session", exclude=["messages"])
        data: dict[str, Any] = {"messages": without_dangling_tail(agent.messages), **rest.data}
        if len(self._artifacts):
            data["artifacts"] = self._artifacts.to_list()
        if state_type is not None and state_type.version > 1:
            data["state_version"] = state_type.version
        if plan is not None:
            data |= plan.to_data()
        journal = agent.take_journal()
        snapshot = replace(rest, data=data, created_at=iso_utc(self._setup.clock.utc()))
        # What waits for a person is in the snapshot already.
        kept = None if journal.empty or agent.interrupt_state.activated else journal.to_dict()
        return Content(snapshot, kept, self._spending.total())

    def _on_message(self, event: MessageAddedEvent[Agent]) -> None:
        if event.message["role"] == "assistant":
            self._now.worked = True
        if self._plan is not None:
            self._plan.begun = True

    async def _on_journal(self, event: JournalChangedEvent[Agent]) -> None:
        """A tool is about to start, or to have ended: before it does, a row says so."""
        rows = self._rows
        assert rows is not None  # noqa: S101 - registered only where there are rows
        if self._plan is not None:
            self._plan.begun = True
        try:
            await self.reserve()
        except _LOST:
            raise
        except SessionStoreError as error:
            if self._setup.strict:
                raise
            _log.warning("what turn %r has begun could not be saved: %s", rows.snapshot_id, error)

    async def _obey(self, rows: RunRows) -> None:
        """End the run when somebody wants the row of the turn under way to be aborted."""
        while not self._now.aborted:
            await self._setup.clock.sleep(_QUICK_S)
            if rows.pending and await told_to_end(rows.store, rows.snapshot_id, clock=self._setup.clock) == "aborting":
                self.abort()

    async def _beat(self) -> None:
        while self._rows is not None:
            await self._setup.clock.sleep(self._setup.heartbeat)
            try:
                status = await self._rows.beat()
            except SessionStoreError as error:
                _log.warning("no sign of life could be given for run of session %r: %s", self._session_id, error)
                continue
            if status == "aborting" and not self._now.aborted:
                self.abort()

    def _tell(self, item: Any) -> None:
        if self._feed is not None:
            self._feed.put(item)


def _said(agent: Agent, result: AgentResult | None) -> Message | None:
    """The turn's message; of an answer that was cut off, what is in the history of it."""
    if result is not None:
        return result.message if result.message["content"] else None
    last = agent.messages[-1] if agent.messages else None
    return last if last is not None and last["role"] == "assistant" else None
