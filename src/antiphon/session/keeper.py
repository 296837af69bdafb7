"""What a manager knows of one agent, and how it saves it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from antiphon.clock import Clock, iso_utc
from antiphon.content import Messages
from antiphon.conversation.repair import without_dangling_tail
from antiphon.ids import new_uuid7
from antiphon.local_agent import LocalAgent
from antiphon.session.redaction import LatestSeen, Redaction
from antiphon.session.retry import Retrier
from antiphon.session.stored import Lineage, journal_bytes, snapshot_parts
from antiphon.session.writer import Blob, Writer
from antiphon.snapshot.envelope import Snapshot
from antiphon.snapshot.ledger import MessageLedger


@dataclass(frozen=True, slots=True)
class _Moment:
    """An agent at one moment. The messages are shared with it, the list is not."""

    number: int
    messages: Messages
    rest: Snapshot
    lineage: Lineage
    mark: int
    journal: bytes
    journal_empty: bool


class _Tickets:
    """Requests that one capture answers together: all that were made before it."""

    __slots__ = ("issued", "served")

    def __init__(self) -> None:
        self.issued = self.served = 0

    def take(self, wanted: bool) -> int:  # noqa: FBT001 - read at the call as `take(latest)`
        self.issued += wanted
        return self.issued if wanted else 0


class _Desk:
    """Where captures are encoded, one at a time: a lock and a ledger for the loop that is running."""

    __slots__ = ("_lock", "_loop", "ledger")

    def __init__(self) -> None:
        self.ledger = MessageLedger()
        self._lock = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def lock(self) -> asyncio.Lock:
        """The running loop's lock. Loops that follow one another share the ledger."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            if self._lock.locked():
                self.ledger = MessageLedger()
            self._loop, self._lock = loop, asyncio.Lock()
        return self._lock


class _AtRest:
    """What the storage holds of an agent, as far as its keeper knows.

    Attributes:
        messages: The history in the latest snapshot; None when it is not the one that the agent's descends from.
        journal: The journal's bytes; empty when they are not known.
        journal_open: Whether something is open in it.
    """

    __slots__ = ("_number", "journal", "journal_open", "messages")

    def __init__(self) -> None:
        self._number = 0
        self.messages: Messages | None = []
        self.journal = b""
        self.journal_open = False

    def note(self, moment: _Moment, *, latest: bool = False, journal: bool = False) -> None:
        """Something of `moment` is at rest now, or something newer is."""
        if moment.number < self._number:
            return  # a synchronous save overtook it
        self._number = moment.number
        if latest:
            self.messages = moment.messages
        if journal:
            self.journal, self.journal_open = moment.journal, not moment.journal_empty

    def needs(self, moment: _Moment) -> bool:
        """Whether the journal of `moment` says anything new."""
        return moment.journal != self.journal and (self.journal_open or not moment.journal_empty)


class Keeper:
    """Saves one agent: one capture at a time, the newest state, and only what is new of it encoded.

    Args:
        writer: Writes the agent's blobs.
        clock: Dates the snapshots.

    Attributes:
        writer: As given.
        lineage: Where the agent's present state comes from.
        seen: What a redaction must find.
        retrier: Tries again where saves may fail for a while.
        failures: Saves that failed in a row.
        checkpoint_owed: Whether a trigger fired and its checkpoint could not be written yet.
        warned: Whether somebody was told that another agent has the same id.
    """

    def __init__(self, writer: Writer, clock: Clock) -> None:
        self.writer = writer
        self.lineage = Lineage()
        self.seen = LatestSeen()
        self.retrier = Retrier(clock)
        self.failures = 0
        self.checkpoint_owed = False
        self.warned = False
        self._clock = clock
        self._numbers = itertools.count(1)
        self._desk = _Desk()
        self._at_rest = _AtRest()
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

        A checkpoint is written first, then latest, then the journal. The journal takes latest with it when the history has
        changed, since it has let go of the lines that are in there; and latest takes an open journal with it.

        Args:
            agent: The agent.
            latest: Overwrite the latest snapshot.
            journal: Rewrite the journal, if it has changed.
            checkpoint: Append an immutable snapshot. One that is owed is appended in any case.
            owe: Whether a checkpoint that fails is owed by the next save.

        Returns:
            The id of the checkpoint.

        Raises:
            SnapshotException: If a value in the agent cannot be stored.
            StorageError: What the storage raised.
        """
        latest_ticket, journal_ticket = self._latest.take(latest), self._journal.take(journal)
        async with self.turn():
            checkpoint = checkpoint or self.checkpoint_owed
            if not checkpoint and latest_ticket <= self._latest.served and journal_ticket <= self._journal.served:
                return None
            journal = journal or (latest and self._at_rest.journal_open)
            self.checkpoint_owed = self.checkpoint_owed or (checkpoint and owe)
            moment = self._capture(agent)
            latest_covers, journal_covers = self._latest.issued, self._journal.issued
            for _ in self._desk.ledger.update(moment.messages):
                await asyncio.sleep(0)
            encoded, lineage = self._desk.ledger.encoded, moment.lineage
            snapshot_id: str | None = None
            if checkpoint:
                snapshot_id = new_uuid7()
                parts = snapshot_parts(moment.rest, encoded, lineage, moment.mark)
                key = self.writer.keys.immutable(snapshot_id)
                await self.writer.write(moment.number, [Blob(key, parts, rewritten=False)])
                self.lineage = lineage = replace(lineage, parent_id=snapshot_id)
                self.checkpoint_owed = False
            if latest or (journal and self._at_rest.messages != moment.messages):
                parts = snapshot_parts(moment.rest, encoded, lineage, moment.mark)
                await self.writer.write(moment.number, [Blob(self.writer.keys.latest, parts)])
                self._at_rest.note(moment, latest=True)
                self._latest.served = latest_covers
            if journal:
                await self.writer.write(moment.number, self._journal_blob(moment))
                self._at_rest.note(moment, journal=True)
                self._journal.served = journal_covers
            self.failures = 0
            return snapshot_id

    def save_blocking(self, agent: LocalAgent, *, journal: bool) -> None:
        """Save the agent as it is now, and return when it is saved: also inside a running event loop."""
        with self._blobs_at_once(agent, journal=journal) as (number, blobs):
            self.writer.write_blocking(number, blobs)

    def redact_blocking(self, agent: LocalAgent) -> None:
        """Save the agent, whose latest message was redacted, and redact every other copy of that message."""
        redactions = self._due(agent)
        with self._blobs_at_once(agent, journal=False) as (number, blobs):
            self.writer.redact_blocking(number, blobs, redactions)
        self._redactions = []
        self.seen.forget(agent.messages)

    async def redact(self, agent: LocalAgent) -> None:
        """Like `redact_blocking`, without holding up the event loop."""
        redactions = self._due(agent)
        async with self.turn():
            moment = self._capture(agent)
            for _ in self._desk.ledger.update(moment.messages):
                await asyncio.sleep(0)
            with self._saving(moment, self._desk.ledger.encoded, journal=self._at_rest.journal_open) as (number, blobs):
                await self.writer.redact(number, blobs, redactions)
        self._redactions = [entry for entry in self._redactions if entry not in redactions]
        self.seen.forget(agent.messages)

    def restored(
        self, lineage: Lineage, saved: Messages | None, journal: bytes | None, *, is_open: bool | None = None
    ) -> None:
        """Note what the agent was restored from.

        Args:
            lineage: Where its state comes from.
            saved: The history of the latest snapshot at rest; None when it is another one than the agent's.
            journal: The journal at rest, when it is about this history and whole.
            is_open: Whether something is open in it; None: as before.
        """
        self.lineage = lineage
        self.failures, self.checkpoint_owed = 0, False
        self._at_rest.messages, self._at_rest.journal = saved, journal or b""
        if is_open is not None:
            self._at_rest.journal_open = is_open

    def _due(self, agent: LocalAgent) -> list[Redaction]:
        # Kept until it is done, so that a second call ends what a failed first one began.
        self._redactions += self.seen.redactions(agent.messages)
        return list(self._redactions)

    @contextmanager
    def _blobs_at_once(self, agent: LocalAgent, *, journal: bool) -> Generator[tuple[int, list[Blob]]]:
        journal = journal or self._at_rest.journal_open
        # A ledger of its own: the other may be in the middle of an update on the loop that this call holds up.
        ledger = MessageLedger()
        moment = self._capture(agent)
        ledger.update_at_once(moment.messages)
        with self._saving(moment, ledger.encoded, journal=journal) as blobs:
            yield blobs

    @contextmanager
    def _saving(self, moment: _Moment, encoded: list[bytes], *, journal: bool) -> Generator[tuple[int, list[Blob]]]:
        """The blobs of latest and of the journal; once they are written, what that means."""
        parts = snapshot_parts(moment.rest, encoded, moment.lineage, moment.mark)
        blobs = [Blob(self.writer.keys.latest, parts), *(self._journal_blob(moment) if journal else [])]
        yield moment.number, blobs
        self._at_rest.note(moment, latest=True, journal=journal)
        self.failures = 0

    def _capture(self, agent: LocalAgent) -> _Moment:
        """The agent, now: all of it in one synchronous moment."""
        journal = agent.take_journal()
        self.seen.note(agent.messages)
        rest = agent.take_snapshot(preset="session", include=["system_prompt"], exclude=["messages"])
        return _Moment(
            next(self._numbers),
            without_dangling_tail(agent.messages),
            replace(rest, created_at=iso_utc(self._clock.utc())),
            self.lineage,
            journal.mark,
            journal_bytes(journal, self.lineage.line),
            journal.empty,
        )

    def _journal_blob(self, moment: _Moment) -> list[Blob]:
        return [Blob(self.writer.keys.journal, [moment.journal])] if self._at_rest.needs(moment) else []

    def turn(self) -> asyncio.Lock:
        """One capture at a time, and none while the agent is restored."""
        return self._desk.lock()
