"""What a manager knows of one agent, and how it saves it."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace

from antiphon.clock import Clock, iso_utc
from antiphon.conversation.repair import without_dangling_tail
from antiphon.local_agent import LocalAgent
from antiphon.session.redaction import LatestSeen, Redaction
from antiphon.session.restoring import restore_checkpoint, restore_latest
from antiphon.session.retry import Retrier
from antiphon.session.stored import journal_data
from antiphon.session.target import Draft, Found, Moment, Target


class _Tickets:
    """Requests that one capture answers together: all that were made before it."""

    __slots__ = ("issued", "served")

    def __init__(self) -> None:
        self.issued = self.served = 0

    def take(self, wanted: bool) -> int:  # noqa: FBT001 - read at the call as `take(latest)`
        self.issued += wanted
        return self.issued if wanted else 0


class _Turns:
    """One at a time, on the loop that is running. Of loops that follow one another each has its own lock."""

    __slots__ = ("_lock", "_loop")

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def lock(self) -> asyncio.Lock:
        """The running loop's lock."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._lock = loop, asyncio.Lock()
        return self._lock


class Keeper:
    """Saves one agent: one capture at a time, the newest state, and only what is new of it encoded.

    Args:
        target: Where to.
        clock: Dates the snapshots.

    Attributes:
        target: As given.
        seen: What a redaction must find.
        retrier: Tries again where saves may fail for a while.
        failures: Saves that failed in a row.
        checkpoint_owed: Whether a trigger fired and its checkpoint could not be written yet.
        warned: Whether somebody was told that another agent has the same id.
        asked: How often a save was wanted while another was tried again.
    """

    def __init__(self, target: Target, clock: Clock) -> None:
        self.target = target
        self.seen = LatestSeen()
        self.retrier = Retrier(clock)
        self.failures = 0
        self.checkpoint_owed = False
        self.warned = False
        self.asked = 0
        self._clock = clock
        self._numbers = itertools.count(1)
        self._turns = _Turns()
        self._latest, self._journal = _Tickets(), _Tickets()
        self._redactions: list[Redaction] = []

    async def save(
        self,
        agent: LocalAgent,
        *,
        latest: bool = False,
        journal: bool = False,
        checkpoint: bool = False,
        owe: bool = False,
    ) -> str | None:
        """Save the agent as it is now or, when others wait to do so too, a moment later, once for all of them.

        A checkpoint is written first, then latest, then the journal. Latest takes an open journal with it.

        Args:
            agent: The agent.
            latest: Save what the next process goes on from.
            journal: Save what is open, if it has changed.
            checkpoint: Add a snapshot that is never overwritten. One that is owed is added in any case.
            owe: Whether a checkpoint that fails is owed by the next save.

        Returns:
            The id of the checkpoint.

        Raises:
            SnapshotException: If a value in the agent cannot be stored.
            AntiphonError: What the storage or store raised.
        """
        latest_ticket, journal_ticket = self._latest.take(latest), self._journal.take(journal)
        async with self.turn():
            checkpoint = checkpoint or self.checkpoint_owed
            if not checkpoint and latest_ticket <= self._latest.served and journal_ticket <= self._journal.served:
                return None
            journal = journal or (latest and self.target.journal_open)
            self.checkpoint_owed = self.checkpoint_owed or (checkpoint and owe)
            moment = self._capture(agent)
            latest_covers, journal_covers = self._latest.issued, self._journal.issued
            draft = await self._drafted(moment)
            snapshot_id: str | None = None
            if checkpoint:
                snapshot_id = await self.target.run(draft.checkpoint)
                self.checkpoint_owed = False
            if latest:
                await self.target.run(draft.latest)
                self._latest.served = latest_covers
            if journal:
                await self.target.run(draft.journal)
                self._journal.served = journal_covers
            self.failures = 0
            return snapshot_id

    def save_blocking(self, agent: LocalAgent, *, journal: bool) -> None:
        """Save the agent as it is now, and return when it is saved: also inside a running event loop."""
        draft = self._drafted_at_once(self._capture(agent))
        self.target.call(draft.latest)
        if journal or self.target.journal_open:
            self.target.call(draft.journal)
        self.failures = 0

    def redact_blocking(self, agent: LocalAgent) -> None:
        """Save the agent, whose latest message was redacted, and redact every other copy of that message."""
        redactions = self._due(agent)
        self.target.call(self._drafted_at_once(self._capture(agent)).redact, redactions)
        self._redacted(agent, redactions)

    async def redact(self, agent: LocalAgent) -> None:
        """Like `redact_blocking`, without holding up the event loop."""
        redactions = self._due(agent)
        async with self.turn():
            draft = await self._drafted(self._capture(agent))
            await self.target.run(draft.redact, redactions)
        self._redacted(agent, redactions)

    def restore(self, agent: LocalAgent, found: Found, *, checkpoint: bool) -> None:
        """Put the agent back to what was found. What is saved next descends from it.

        Raises:
            SnapshotException: If it cannot be loaded.
            AgentStateError: If the agent is active.
        """
        if checkpoint:
            restore_checkpoint(agent, found)
        else:
            restore_latest(agent, found)
        self.failures, self.checkpoint_owed = 0, False
        self.seen.note(agent.messages)

    def begin_anew(self) -> None:
        """Know that nothing is at rest any more."""
        self.target.begin_anew()
        self.failures, self.checkpoint_owed = 0, False

    def turn(self) -> asyncio.Lock:
        """One capture at a time, and none while the agent is restored."""
        return self._turns.lock()

    def _due(self, agent: LocalAgent) -> list[Redaction]:
        # Kept until it is done, so that a second call ends what a failed first one began.
        self._redactions += self.seen.redactions(agent.messages)
        return list(self._redactions)

    def _redacted(self, agent: LocalAgent, redactions: list[Redaction]) -> None:
        self._redactions = [entry for entry in self._redactions if entry not in redactions]
        self.seen.forget(agent.messages)
        self.failures = 0

    def _capture(self, agent: LocalAgent) -> Moment:
        """The agent, now: all of it in one synchronous moment."""
        journal = agent.take_journal()
        self.seen.note(agent.messages)
        rest = agent.take_snapshot(preset="session", include=["system_prompt"], exclude=["messages"])
        return Moment(
            next(self._numbers),
            without_dangling_tail(agent.messages),
            replace(rest, created_at=iso_utc(self._clock.utc())),
            journal_data(journal),
            journal.mark,
            journal.empty,
        )

    async def _drafted(self, moment: Moment) -> Draft:
        steps = self.target.draft(moment)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                draft: Draft = end.value
                return draft
            await asyncio.sleep(0)

    def _drafted_at_once(self, moment: Moment) -> Draft:
        steps = self.target.draft(moment)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                draft: Draft = end.value
                return draft
