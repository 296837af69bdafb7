"""A live talk whose turns become rows: of the same tree as typed turns, by the same writer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from antiphon.agent.live import BidiAgent
from antiphon.artifacts import Artifacts
from antiphon.clock import iso_utc
from antiphon.content import Message, Messages
from antiphon.conversation.repair import without_dangling_tail
from antiphon.errors import (
    InvalidInputError,
    SessionConflictError,
    SessionStoreError,
    StaleEpochError,
    StateValidationError,
    TerminalStatusError,
)
from antiphon.hooks.events import JournalChangedEvent, MessageAddedEvent, MessageUpdatedEvent
from antiphon.hooks.registry import HookOrder
from antiphon.runner.ground import Ground
from antiphon.runner.loading import load_ground
from antiphon.runner.rows import Content, Ending, RunRows
from antiphon.runner.run import RunSetup
from antiphon.runner.spending import Spending
from antiphon.runner.waiting import told_to_end
from antiphon.state import TypedState
from antiphon.store.base import SessionStore
from antiphon.turn import Turn

_CARRIED = ("conversation_manager_state", "model_state")
"""What a typed agent needs when it goes on, and a live one does not know."""

_LOST = (SessionConflictError, StaleEpochError, TerminalStatusError)

_log = logging.getLogger(__name__)


class LiveTurns:
    """The turns of one talk. A turn is what the user said, and all that was answered until the user speaks again.

    The row of the turn under way is rewritten as the talk goes on, and settled when the next turn begins, or the talk
    ends. Make it in the event loop that the talk is in.

    Args:
        agent: Made for this talk; its state is loaded here.
        ground: What it goes on from.
        setup: What all runs share.
        rows: Writes the rows.
        store: Tells when somebody wants the talk to end.
        initial_state: The state of a new session.

    Raises:
        InvalidInputError: If questions of a typed turn wait for an answer.
        SnapshotException: If the state cannot be loaded.
        StateValidationError: If the session's state does not fit its type.
    """

    def __init__(
        self,
        agent: BidiAgent,
        ground: Ground,
        setup: RunSetup,
        *,
        rows: RunRows,
        store: SessionStore,
        initial_state: Callable[[], dict[str, Any]] | None = None,
    ) -> None:
        kept: dict[str, Any] = {} if ground.snapshot is None else ground.snapshot.data
        waiting: dict[str, Any] = kept.get("interrupt_state") or {}
        if waiting.get("activated"):
            raise InvalidInputError("a typed turn waits for a person: answer it with run(resume=) before talking on")
        self._agent, self._ground, self._setup, self._rows, self._store = agent, ground, setup, rows, store
        self._spending = Spending(agent, ground.usage)
        self._carried = {name: kept[name] for name in _CARRIED if name in kept}
        self._artifacts = Artifacts(load_ground(agent, ground, setup.state_type, initial_state))
        self._settled = len(kept.get("messages") or ())
        self._state = agent.state.get()
        self._index = 0
        self._lock, self._begun = asyncio.Lock(), asyncio.Event()
        self._helpers: set[asyncio.Task[None]] = set()
        agent.turn = self._turn()
        agent.hooks.add_callback(MessageAddedEvent, self._on_message, order=HookOrder.SDK_LAST)
        agent.hooks.add_callback(MessageUpdatedEvent, self._on_message, order=HookOrder.SDK_LAST)
        agent.hooks.add_callback(JournalChangedEvent, self._on_journal, order=HookOrder.SDK_LAST)

    def begin(self) -> None:
        """Give signs of life from now on, and end the talk when somebody wants that."""
        for work in (self._beat(), self._watch()):
            self._helpers.add(asyncio.create_task(work))  # noqa: TID251 - ended by `end`

    async def end(self, failure: BaseException | None = None) -> None:
        """The talk is over: settle the row of its last turn, if there is one.

        Args:
            failure: Why the talk ended, when it failed.

        Raises:
            SessionStoreError: If it could not be written.
        """
        for helper in self._helpers:
            helper.cancel()
        if self._helpers:
            await asyncio.wait(self._helpers)
        async with self._lock:
            await self._settle_before()
            if not self._rows.pending and len(self._agent.messages) <= self._settled:
                return
            waits = any(call.question is not None for call in self._agent.take_journal().calls)
            ending = Ending("completed", "interrupted" if waits else "stop")
            if failure is not None:
                ending = Ending.failure(failure)
            await self._settle(self._agent.messages, ending, whole=True)

    async def _on_message(self, event: MessageAddedEvent[BidiAgent] | MessageUpdatedEvent[BidiAgent]) -> None:
        await self._save()

    async def _on_journal(self, event: JournalChangedEvent[BidiAgent]) -> None:
        event.unsaved = await self._save() or event.unsaved

    async def _save(self) -> Exception | None:
        """Write what is new. Returns why it could not be done for now: the next save, or the end, makes up for it.

        Raises:
            SessionStoreError: If the session is somebody else's by now.
        """
        async with self._lock:
            try:
                await self._settle_before()
                row = await self._rows.pend(self._content(self._agent.messages, whole=True))
            except _LOST:
                raise
            except SessionStoreError as error:
                _log.warning("the talk of session %r could not be saved for now: %s", self._ground.session_id, error)
                return error
            self._begun.set()
            if row.status == "aborting":
                self._agent.cancel()
            return None

    async def _settle_before(self) -> None:
        """Settle the turns that others follow."""
        while (stop := _turn_end(self._agent.messages, self._settled)) is not None:
            await self._settle(self._agent.messages[:stop], Ending("completed", "stop"))

    async def _settle(self, messages: Messages, ending: Ending, *, whole: bool = False) -> None:
        count = len(messages)
        await self._rows.settle(self._content(messages, whole=whole), ending)
        self._settled, self._index = count, self._index + 1
        self._agent.turn = self._turn()

    def _content(self, messages: Messages, *, whole: bool) -> Content:
        """The agent with these messages; `whole`: and what is open beside them."""
        agent, state_type = self._agent, self._setup.state_type
        rest = agent.take_snapshot(preset="session", exclude=["messages"])
        state = agent.state.get()
        try:
            if state_type is not None and state:
                state_type.read(state)
            self._state = state
        except StateValidationError as error:
            _log.warning("session %r: its state is kept as it was: %s", self._ground.session_id, error)
            agent.state.replace(self._state)
        data: dict[str, Any] = {
            **self._carried,
            "messages": without_dangling_tail(messages),
            **rest.data,
            "state": self._state,
        }
        if len(self._artifacts):
            data["artifacts"] = self._artifacts.to_list()
        if state_type is not None and state_type.version > 1:
            data["state_version"] = state_type.version
        journal = agent.take_journal()
        return Content(
            replace(rest, data=data, created_at=iso_utc(self._setup.clock.utc())),
            journal.to_dict() if whole and not journal.empty else None,
            self._spending.total(),
        )

    def _turn(self) -> Turn:
        state_type = self._setup.state_type
        state = self._agent.state
        return Turn(
            session_id=self._ground.session_id,
            snapshot_id=self._rows.snapshot_id,
            parent_id=self._rows.parent_id,
            index=self._index,
            state=TypedState.plain(state)
            if state_type is None
            else TypedState(state, state_type.read, state_type.write),
            artifacts=self._artifacts,
        )

    async def _beat(self) -> None:
        while True:
            await self._setup.clock.sleep(self._setup.heartbeat)
            try:
                await self._rows.beat()
            except SessionStoreError as error:
                _log.warning("the talk of session %r could give no sign of life: %s", self._ground.session_id, error)

    async def _watch(self) -> None:
        """End the talk when the row of the turn under way is to be aborted."""
        while True:
            await self._begun.wait()
            self._begun.clear()
            snapshot_id = self._rows.snapshot_id
            if not self._rows.pending:
                continue
            status = await told_to_end(self._store, snapshot_id, clock=self._setup.clock)
            if status == "aborting":
                self._agent.cancel()
                return


def _turn_end(messages: Messages, start: int) -> int | None:
    """Where the turn that begins at `start` ends, if another one follows: at words of the user after an answer."""
    answered = False
    for at in range(start, len(messages)):
        message = messages[at]
        if message["role"] == "assistant":
            answered = answered or not _calls(message)
        elif answered and not any("toolResult" in block for block in message["content"]):
            return at
    return None


def _calls(message: Message) -> bool:
    return all("toolUse" in block for block in message["content"])
