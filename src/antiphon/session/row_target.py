"""An agent in a session store: its newest row, which grows, and those before it."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable, Coroutine, Generator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ParamSpec, TypeVar, cast

from antiphon.clock import Clock
from antiphon.content import Messages
from antiphon.conversation.journal import Journal
from antiphon.errors import InvalidIdError, InvalidInputError, NotJsonError, NotSupportedError, SnapshotException
from antiphon.ids import check_id
from antiphon.iothread import IOThread
from antiphon.jsonable import private_copy
from antiphon.session.redaction import Redaction, redacted
from antiphon.session.rows import RowWriter, Sighting
from antiphon.session.stored import checked_journal
from antiphon.session.target import Found, Moment
from antiphon.snapshot.envelope import Snapshot
from antiphon.store.base import SessionCatalogue, SessionRedactor, SessionSnapshot, SessionStore
from antiphon.store.matching import Matched, match
from antiphon.store.messages import StoredMessages

P = ParamSpec("P")
T = TypeVar("T")

_HOPS = 64  # ancestors without a state that are passed over on the way to one that has some
_PAGE = 1000

_log = logging.getLogger(__name__)
_thread = IOThread("antiphon-rows")


@dataclass(frozen=True, slots=True)
class _Said:
    """What a row says of an agent, as private copies."""

    messages: list[Any]
    rest: Any
    journal: Any


class RowTarget:
    """One agent of a session in a store.

    A row holds the history and the journal of one moment, so the two never disagree: each write is whole, and costs
    what is new.

    Args:
        store: The store.
        session_id: The session.
        agent_id: The agent.
        clock: Dates the rows.

    Attributes:
        writer: Writes the rows.

    Raises:
        InvalidIdError: If an id cannot name anything.
    """

    journal_open = False  # latest is the journal, too

    def __init__(self, store: SessionStore, session_id: str, agent_id: str, clock: Clock) -> None:
        self.writer = RowWriter(store, session_id, agent_id=agent_id, clock=clock)
        self._lock = asyncio.Lock()
        self._base = StoredMessages(None, [])
        self._newest: _Said | None = None
        self._usage: dict[str, Any] | None = None  # the session's until then, of the row that was gone on from
        self._written = 0
        self._redactions: list[tuple[int, Redaction]] = []

    @property
    def place(self) -> SessionStore:
        return self.writer.store

    def draft(self, moment: Moment) -> Generator[None, None, _RowDraft]:
        base = self._base
        try:
            known = yield from base.private()
            matched = yield from match(moment.messages, known, path="data.messages")
            rest = private_copy({"data": moment.rest.data, "app_data": moment.rest.app_data})
        except NotJsonError as error:
            raise SnapshotException(str(error)) from error
        journal = None if moment.journal_empty and not moment.mark else moment.journal
        said = _Said(matched.copies, rest, None if journal is None else private_copy(journal))
        return _RowDraft(self, moment, _joined(base, matched), journal, said)

    async def write(self, draft: _RowDraft, *, seal: bool = False) -> str | None:
        """Grow or begin the newest row, unless it says the same, or says something newer.

        Args:
            draft: What it shall say.
            seal: Close it in any case.

        Returns:
            Its id; None when nothing had to be written.
        """
        async with self._lock:
            return await self._write(draft, seal=seal)

    async def redact(self, draft: _RowDraft, redactions: Sequence[Redaction]) -> None:
        """Have the store redact the session, then write the newest row: the words are gone also where that is refused."""
        redactor = self.writer.store
        if not isinstance(redactor, SessionRedactor):
            raise NotSupportedError(f"{type(redactor).__name__} cannot redact: it is no SessionRedactor")
        found = list(redactions)
        self._redactions += [(draft.moment.number, redaction) for redaction in found]
        async with self._lock:
            if found:
                await redactor.redact(
                    self.writer.session_id,
                    partial(_replacement, found),
                    part=lambda _, value: redacted(value, found)[0],
                )
            await self._write(draft, seal=False)

    async def find_latest(self) -> Found | None:
        async with self._lock:
            seen = await self.writer.read_latest()
            if seen is None:
                self.begin_anew()
                return None
            seen = await self._with_state(seen)
            said = await _said(seen)
        name = self._name(seen.row)
        journal, damage = Journal(), None
        if seen.row.journal is not None:
            try:
                journal = checked_journal(name, seen.row.journal)
            except SnapshotException as error:
                _log.error("session %r: a damaged journal is left aside: %s", self.writer.session_id, error)
                damage = error

        def restored(messages: Messages) -> None:
            self.writer.restored(seen, grow=True)
            self._know(seen.row, said)

        return Found(name, seen.row.loaded(), journal, restored, damage)

    async def find(self, snapshot_id: str) -> Found | None:
        async with self._lock:
            seen = await self.writer.read(snapshot_id)
        if seen is None:
            return None

        def restored(messages: Messages) -> None:
            self.writer.restored(seen)
            self._know(seen.row, None)

        entry = seen.row.journal or {}
        mark: object = entry.get("mark")
        return Found(
            self._name(seen.row), seen.row.loaded(), Journal(mark=mark if isinstance(mark, int) else 0), restored
        )

    async def ids(self) -> list[str]:
        catalogue = self._catalogue("list its snapshots")
        rows: list[SessionSnapshot] = []
        cursor: str | None = None
        while True:
            page = await catalogue.list_snapshots(
                self.writer.session_id, limit=_PAGE, cursor=cursor, agent_id=self.writer.agent_id
            )
            rows += page.snapshots
            cursor = page.cursor
            if cursor is None:
                break
        # The newest one may grow; of the others those that somebody is still at work on.
        return [
            row.snapshot_id for at, row in reversed(list(enumerate(rows))) if row.terminal and (at or row.owner is None)
        ]

    async def delete_session(self) -> None:
        await self._catalogue("delete a session").delete_session(self.writer.session_id)

    def check_id(self, snapshot_id: object) -> str:
        try:
            return check_id("snapshot_id", snapshot_id)
        except InvalidIdError as error:
            raise InvalidInputError(
                f"{snapshot_id!r} is not a valid snapshot id: take one from list_snapshot_ids"
            ) from error

    def begin_anew(self) -> None:
        self.writer.begin_anew()
        self._newest = self._usage = None

    async def run(self, operation: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
        # In the caller's context: a store may ask it for the tenant.
        return await _thread.run_async(_within, contextvars.copy_context(), lambda: operation(*args, **kwargs))

    def call(self, operation: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
        return _thread.call_async(_within, contextvars.copy_context(), lambda: operation(*args, **kwargs))

    async def _write(self, draft: _RowDraft, *, seal: bool) -> str | None:
        number, position = draft.moment.number, self.writer.position
        older = number < self._written  # a synchronous save overtook it
        if not seal and (older or number == self._written or self._newest == draft.said):
            return None
        if older and position.head is None:
            return position.tip  # sealed by then, and newer
        late = [redaction for since, redaction in self._redactions if number < since]
        snapshot, journal = draft.snapshot(late)
        known = self._usage

        def change(row: SessionSnapshot) -> SessionSnapshot:
            if older:
                return row
            usage = known if row.usage is None else row.usage
            return replace(row, status="completed", snapshot=snapshot, journal=journal, usage=usage)

        # Before the write: one that fails may have reached the store all the same.
        self._written, said, self._newest = max(number, self._written), self._newest, None
        row = await self.writer.put(change, seal=seal)
        if older:
            self._newest = said
        else:
            self._newest = None if late else draft.said
            stored = None if row.snapshot is None else row.snapshot.data.get("messages")
            self._base = stored if isinstance(stored, StoredMessages) else draft.messages
        return row.snapshot_id

    async def _with_state(self, seen: Sighting) -> Sighting:
        """The nearest row that has a state: a run that has only begun, or has failed at once, may have none."""
        row: SessionSnapshot | None = seen.row
        for _ in range(_HOPS):
            if row is None or row.snapshot is not None or row.parent_id is None:
                break
            row = await self.writer.store.get_snapshot(row.parent_id)
        return seen if row is None or row.snapshot is None else replace(seen, row=row)

    def _know(self, row: SessionSnapshot, newest: _Said | None) -> None:
        self._newest, self._usage = newest, row.usage
        messages = None if row.snapshot is None else row.snapshot.data.get("messages")
        if isinstance(messages, StoredMessages):
            self._base = messages

    def _name(self, row: SessionSnapshot) -> str:
        return f"snapshot {row.snapshot_id} of session {row.session_id}"

    def _catalogue(self, what: str) -> SessionCatalogue:
        store = self.writer.store
        if not isinstance(store, SessionCatalogue):
            raise NotSupportedError(f"{type(store).__name__} cannot {what}: it is no SessionCatalogue")
        return store


@dataclass(frozen=True, slots=True)
class _RowDraft:
    """A moment, its messages as far as a store can be told where they come from."""

    target: RowTarget
    moment: Moment
    messages: StoredMessages
    open_lines: dict[str, Any] | None
    said: _Said

    async def checkpoint(self) -> str:
        return await self.target.write(self, seal=True) or ""

    async def latest(self) -> None:
        await self.target.write(self)

    async def journal(self) -> None:
        await self.target.write(self)

    async def redact(self, redactions: Sequence[Redaction]) -> None:
        await self.target.redact(self, redactions)

    def snapshot(self, late: list[Redaction]) -> tuple[Snapshot, dict[str, Any] | None]:
        """What the row is to hold: its state and its journal, redacted by what came after this moment."""
        rest = self.moment.rest
        if not late:
            return replace(rest, data={**rest.data, "messages": self.messages}), self.open_lines
        data, _ = redacted({**rest.data, "messages": list(self.messages)}, late)
        app_data, _ = redacted(rest.app_data, late)
        journal, _ = redacted(self.open_lines, late)
        return replace(rest, data=data, app_data=app_data), cast("dict[str, Any] | None", journal)


async def _said(seen: Sighting) -> _Said | None:
    """What the newest row says, if that was read and is settled."""
    row = seen.row
    messages = None if row.snapshot is None else row.snapshot.data.get("messages")
    if row.snapshot is None or row.snapshot_id != seen.tip or not row.terminal:
        return None
    if not isinstance(messages, StoredMessages):
        return None
    steps = messages.private()
    while True:
        try:
            next(steps)
        except StopIteration as end:
            copies: list[Any] = end.value
            break
        await asyncio.sleep(0)
    data = {name: value for name, value in row.snapshot.data.items() if name != "messages"}
    rest = private_copy({"data": data, "app_data": row.snapshot.app_data})
    return _Said(copies, rest, None if row.journal is None else private_copy(row.journal))


def _joined(base: StoredMessages, matched: Matched) -> StoredMessages:
    """The messages that were matched with `base`, as a list that knows which of them are stored.

    A store that reads them from there compares nothing; otherwise it compares copies which it has itself.
    """
    run = matched.pieces[0] if matched.pieces else None
    if run is None or run.known is None or run.known + run.size > base.known:
        return StoredMessages(None, matched.copies)
    if any(piece.known is not None for piece in matched.pieces[1:]):
        return StoredMessages(None, matched.copies)
    return StoredMessages(None, matched.copies, base.origin, start=base.start + run.known, known=run.size)


def _replacement(redactions: list[Redaction], message: dict[str, Any]) -> dict[str, Any] | None:
    changed, hit = redacted(message, redactions)
    return cast("dict[str, Any]", changed) if hit else None


async def _within(context: contextvars.Context, operation: Callable[[], Coroutine[Any, Any, T]]) -> T:
    return await asyncio.get_running_loop().create_task(operation(), context=context)
