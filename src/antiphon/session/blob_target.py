"""An agent in a storage: one blob that is overwritten, one for the journal, and a history of blobs that are not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ParamSpec, TypeVar

from antiphon.content import Messages
from antiphon.conversation.journal import Journal
from antiphon.errors import SnapshotException
from antiphon.ids import new_uuid7
from antiphon.session.layout import AgentKeys, checked_snapshot_id, session_prefix
from antiphon.session.redaction import Redaction
from antiphon.session.stored import Lineage, journal_bytes, read_journal, read_snapshot, snapshot_parts
from antiphon.session.target import Found, Moment
from antiphon.session.writer import Blob, Writer
from antiphon.snapshot.ledger import MessageLedger
from antiphon.storage.base import Storage, blocking, on_helper_loop

P = ParamSpec("P")
T = TypeVar("T")

_DELETES = 16  # at once

_log = logging.getLogger(__name__)


class _AtRest:
    """What the storage holds of an agent, as far as its target knows.

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

    def note_latest(self, moment: Moment) -> None:
        """The snapshot of `moment` is at rest now, or a newer one is."""
        if moment.number >= self._number:
            self._number, self.messages = moment.number, moment.messages

    def note_journal(self, moment: Moment, journal: bytes) -> None:
        """The journal of `moment` is at rest now, or a newer one is."""
        if moment.number >= self._number:
            self._number = moment.number
            self.journal, self.journal_open = journal, not moment.journal_empty

    def needs(self, moment: Moment, journal: bytes) -> bool:
        """Whether the journal of `moment` says anything new."""
        return journal != self.journal and (self.journal_open or not moment.journal_empty)


class BlobTarget:
    """One agent of a session in a storage; see `session.layout` for the keys.

    Args:
        storage: The session's namespace.
        session_id: The session.
        agent_id: The agent.

    Attributes:
        writer: Writes the blobs.
        at_rest: What is there.

    Raises:
        InvalidIdError: If an id cannot name anything.
    """

    def __init__(self, storage: Storage, session_id: str, agent_id: str) -> None:
        self.writer = Writer(storage, AgentKeys(session_id, agent_id))
        self.at_rest = _AtRest()
        self._lineage = Lineage()
        self._ledgers = [MessageLedger()]

    @property
    def place(self) -> Storage:
        return self.writer.storage

    @property
    def journal_open(self) -> bool:
        return self.at_rest.journal_open

    def draft(self, moment: Moment) -> Generator[None, None, _BlobDraft]:
        try:
            ledger = self._ledgers.pop()
        except IndexError:  # a draft is in the middle of it, on a loop that this call holds up, or on another thread
            ledger = MessageLedger()
        try:
            yield from ledger.update(moment.messages)
        finally:
            self._ledgers[:] = [ledger]
        return _BlobDraft(self, moment, ledger.encoded, self._lineage)

    async def find_latest(self) -> Found | None:
        storage, keys = self.writer.storage, self.writer.keys
        data, open_lines = await storage.read(keys.latest), await storage.read(keys.journal)
        if data is None and open_lines is None:
            return None
        lineage, mark = Lineage(), 0
        snapshot = None
        if data is not None:
            stored = read_snapshot(keys.latest, data)
            snapshot, lineage, mark = stored.snapshot, stored.lineage, stored.mark
        damage: SnapshotException | None = None
        journal, at_rest, is_open = Journal(mark=mark), b"", False
        if open_lines is not None:
            try:
                found, line = read_journal(keys.journal, open_lines)
            except SnapshotException as error:
                _log.error("session %r: a damaged journal is left aside: %s", keys.session_id, error)
                damage, is_open = error, True
            else:
                is_open = not found.empty
                if line == lineage.line:
                    journal, at_rest = found.settled(mark), open_lines
                else:  # of a history that was rewound since
                    journal = Journal(mark=max(mark, found.mark + len(found.lines)))

        def restored(messages: Messages) -> None:
            self._restored(lineage, messages if data is not None else [], at_rest)
            self.at_rest.journal_open = is_open

        return Found(keys.latest, snapshot, journal, restored, damage)

    async def find(self, snapshot_id: str) -> Found | None:
        key = self.writer.keys.immutable(snapshot_id)
        data = await self.writer.storage.read(key)
        if data is None:
            return None
        stored = read_snapshot(key, data)

        def restored(messages: Messages) -> None:
            # A line of its own: whatever journal is at rest is not about this history.
            self._restored(Lineage(snapshot_id, new_uuid7()), None, b"")

        return Found(key, stored.snapshot, Journal(mark=stored.mark), restored)

    async def ids(self) -> list[str]:
        keys = self.writer.keys
        found = (keys.snapshot_id(key) for key in await self.writer.storage.list(keys.history))
        return sorted(snapshot_id for snapshot_id in found if snapshot_id is not None)

    async def delete_session(self) -> None:
        storage, prefix = self.writer.storage, session_prefix(self.writer.keys.session_id)
        keys = [key for key in await storage.list(prefix) if key.startswith(prefix)]
        for start in range(0, len(keys), _DELETES):
            await asyncio.gather(*(storage.delete(key) for key in keys[start : start + _DELETES]))

    def check_id(self, snapshot_id: object) -> str:
        return checked_snapshot_id(snapshot_id)

    def begin_anew(self) -> None:
        self._restored(Lineage(), None, b"")
        self.at_rest.journal_open = False

    async def run(self, operation: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
        return await on_helper_loop(self.writer.storage, _aside, lambda: operation(*args, **kwargs))

    def call(self, operation: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
        return blocking(self.writer.storage, _aside, lambda: operation(*args, **kwargs))

    def descend_from(self, snapshot_id: str) -> Lineage:
        """What is written next descends from this checkpoint."""
        self._lineage = replace(self._lineage, parent_id=snapshot_id)
        return self._lineage

    def _restored(self, lineage: Lineage, saved: Messages | None, journal: bytes) -> None:
        self._lineage = lineage
        self.at_rest.messages, self.at_rest.journal = saved, journal


async def _aside(storage: Storage, operation: Callable[[], Coroutine[Any, Any, T]]) -> T:
    return await operation()


@dataclass(slots=True)
class _BlobDraft:
    """A moment, its messages in JSON."""

    _target: BlobTarget
    _moment: Moment
    _encoded: list[bytes]
    _lineage: Lineage

    async def checkpoint(self) -> str:
        snapshot_id = new_uuid7()
        writer = self._target.writer
        await writer.write(
            self._moment.number, [Blob(writer.keys.immutable(snapshot_id), self._parts(), rewritten=False)]
        )
        self._lineage = self._target.descend_from(snapshot_id)
        return snapshot_id

    async def latest(self) -> None:
        await self._target.writer.write(self._moment.number, [self._latest_blob()])
        self._target.at_rest.note_latest(self._moment)

    async def journal(self) -> None:
        # It has let go of lines that are in the history by now.
        if self._target.at_rest.messages != self._moment.messages:
            await self.latest()
        await self._target.writer.write(self._moment.number, self._journal_blobs())
        self._target.at_rest.note_journal(self._moment, self._journal_bytes())

    async def redact(self, redactions: Sequence[Redaction]) -> None:
        with_journal = self._target.journal_open
        blobs = [self._latest_blob(), *(self._journal_blobs() if with_journal else [])]
        await self._target.writer.redact(self._moment.number, blobs, redactions)
        self._target.at_rest.note_latest(self._moment)
        if with_journal:
            self._target.at_rest.note_journal(self._moment, self._journal_bytes())

    def _parts(self) -> list[bytes]:
        return snapshot_parts(self._moment.rest, self._encoded, self._lineage, self._moment.mark)

    def _latest_blob(self) -> Blob:
        return Blob(self._target.writer.keys.latest, self._parts())

    def _journal_bytes(self) -> bytes:
        return journal_bytes(self._moment.journal, self._lineage.line)

    def _journal_blobs(self) -> list[Blob]:
        journal = self._journal_bytes()
        at_rest = self._target.at_rest
        return [Blob(self._target.writer.keys.journal, [journal])] if at_rest.needs(self._moment, journal) else []
