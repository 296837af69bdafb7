"""How a row is saved: read, change, find out what is new, and write that.

Nothing is locked between these steps: the change itself looks whether what it was planned on is still so, and else the row is
planned anew. That makes it safe to plan on what is merely remembered, and so a save that follows another one of this store asks
nothing: it only writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from antiphon.errors import ContendedError, CorruptStoreError, MovedError, StaleEpochError, TerminalStatusError
from antiphon.ids import check_id, new_uuid7
from antiphon.jsonable import private_copy
from antiphon.store.backend import Job, Reading
from antiphon.store.base import IN_FLIGHT, Change, SessionSnapshot, Tip
from antiphon.store.changes import Commit
from antiphon.store.core import Read, Steps, Write
from antiphon.store.known import Footing, KnownRows
from antiphon.store.lines import NEW_LINE, Layout, Piece, lay_out
from antiphon.store.matching import Matched, match
from antiphon.store.messages import Origin, StoredMessages
from antiphon.store.record import LARGE_MESSAGE, Row, body
from antiphon.store.redaction import Masks
from antiphon.store.rows import Loaded, check_row, listed_messages, load, parts_of, record_of

_TRIES = 200
_HOPS = 8  # ancestors without messages that are passed over on the way to one that has some
_ENCODED = 32  # messages encoded between two looks at the event loop


@dataclass(frozen=True, slots=True)
class _Ground:
    """What a save builds on, in one view.

    Attributes:
        redactions: How many the session has seen.
        masks: What was redacted; None when nothing was.
        bases: Rows that may hold most of the list, best first, each with the length of its last line.
    """

    redactions: int
    masks: Masks | None
    bases: tuple[tuple[Row, int], ...]


@dataclass(frozen=True, slots=True)
class _Plan:
    """Which messages are stored already.

    Attributes:
        messages: The whole list, redacted where it must be.
        base: The row that holds the known ones; None when none is known.
        layout: Where each message goes.
        length: Of the line that grows.
    """

    messages: StoredMessages
    base: Row | None
    layout: Layout
    length: int


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A change that is ready to be carried out.

    Attributes:
        commit: The change.
        plan: Where its messages go; None where it has none.
        parts: Its parts in JSON.
        size: How many bytes of JSON its messages have, about.
    """

    commit: Commit
    plan: _Plan | None
    parts: dict[str, bytes]
    size: int


def save(
    known: KnownRows, tenant: str, snapshot_id: str, fn: Change, expected_tip: str | Tip | None
) -> Steps[SessionSnapshot | None]:
    """`SessionStore.save_snapshot`, as steps."""
    is_minted = not snapshot_id
    snapshot_id = new_uuid7() if is_minted else check_id("snapshot_id", snapshot_id)
    if not isinstance(expected_tip, Tip) and expected_tip is not None:
        check_id("expected_tip", expected_tip)
    moved: MovedError | None = None
    is_guess = False
    if not is_minted:
        is_guess, guessed = _remembered(known, tenant, snapshot_id, expected_tip)
        if is_guess:
            saved = yield from _save_on_guess(known, tenant, snapshot_id, guessed, fn, expected_tip)
            if saved is not None:
                return saved
    for trial in range(_TRIES):
        try:
            old = None if is_minted else (yield Read(tenant, lambda view: _load(view, tenant, snapshot_id, known)))
            # What the guess was built on may be what was wrong with it.
            unasked = trial == 0 and not is_guess
            prepared = yield from _prepared(known, tenant, snapshot_id, old, fn, expected_tip, unasked=unasked)
            return None if prepared is None else (yield from _carry_out(known, tenant, old, prepared))
        except MovedError as error:
            moved = error
            yield None
    raise ContendedError(f"snapshot {snapshot_id!r} is still contended after {_TRIES} tries") from moved


def _save_on_guess(
    known: KnownRows, tenant: str, snapshot_id: str, old: Loaded | None, fn: Change, expected_tip: str | Tip | None
) -> Steps[SessionSnapshot | None]:
    """Save a row that is taken to be as it is remembered; None: it is not, or only the store can tell."""
    try:
        prepared = yield from _prepared(known, tenant, snapshot_id, old, fn, expected_tip, unasked=True)
    except Exception:  # noqa: BLE001 - whatever `fn` or a check has against the guess, it may not have against the row
        return None
    if prepared is None:
        return None
    try:
        return (yield from _carry_out(known, tenant, old, prepared))
    except MovedError:
        return None


def _remembered(
    known: KnownRows, tenant: str, snapshot_id: str, expected_tip: str | Tip | None
) -> tuple[bool, Loaded | None]:
    """Whether the row can be guessed, and the guess. A row that nobody knows, and that is to follow another, is new."""
    footing = known.footing(tenant, snapshot_id)
    if footing is None:
        return not isinstance(expected_tip, Tip) and expected_tip != snapshot_id, None
    if footing.parts is None:
        return False, None
    row = footing.row
    origin = Origin(tenant, snapshot_id, row.revision, footing.redactions)
    messages = None if row.record.spans is None else known.get(origin)
    return (messages is None) == (row.record.spans is None), Loaded(row, origin, footing.parts, messages)


def _load(view: Reading, tenant: str, snapshot_id: str, known: KnownRows) -> Loaded | None:
    row = view.row(snapshot_id)
    return None if row is None else load(view, tenant, row, known=known.get)


def _prepared(
    known: KnownRows,
    tenant: str,
    snapshot_id: str,
    old: Loaded | None,
    fn: Change,
    expected_tip: str | Tip | None,
    *,
    unasked: bool,
) -> Steps[_Prepared | None]:
    """What there is to write; None when `fn` declines. `unasked`: what is remembered will do for what the row builds on."""
    given = fn(None if old is None else old.shown())
    if given is None:
        return None
    wanted = check_row(given, snapshot_id, None if old is None else old.row.session_id)
    session_id = wanted.session_id if old is None else old.row.session_id
    if old is not None:
        _guard(old.row, wanted)
        if old.messages is not None:
            known.put(old.origin, old.messages, old.size)
    listed = listed_messages(wanted)
    ground = _remembered_ground(known, tenant, session_id, wanted.parent_id, old, listed) if unasked else None
    plan = None
    if ground is not None and listed is not None:
        plan = yield from _plan(known, tenant, listed, ground)
        if plan.base is None and plan.layout.fresh:
            # Another row may share something with the list, or one of these has changed: what was built on nothing
            # would be written without a look at them.
            ground = None
    if ground is None:
        ground = yield from _asked_ground(known, tenant, session_id, wanted.parent_id, old, listed)
        if listed is not None:  # what was copied already is not copied again
            plan = yield from _plan(known, tenant, listed if plan is None else plan.messages, ground)
    if old is not None and old.origin.redactions != ground.redactions:
        raise MovedError(f"session {session_id!r} was redacted")
    parts = parts_of(wanted, ground.masks)
    blobs = dict(parts.blobs)
    fresh: list[bytes] = []
    grown: list[bytes] = []
    size = 0
    if plan is not None:
        fresh, size = yield from _bodies(plan.messages, plan.layout.fresh, blobs)
        count = len(plan.messages)
        grown, more = yield from _bodies(plan.messages, range(count - plan.layout.grown, count), blobs)
        size += more
        if plan.base is not None:
            base = Origin(tenant, plan.base.snapshot_id, plan.base.revision, ground.redactions)
            size += known.size(base, count - len(fresh) - len(grown))
    commit = Commit(
        session_id=session_id,
        snapshot_id=snapshot_id,
        revision=None if old is None else old.row.revision,
        base=None if plan is None or plan.base is None else (plan.base.snapshot_id, plan.base.revision),
        redactions=ground.redactions,
        expected_tip=expected_tip,
        record=record_of(wanted, None if plan is None else plan.layout.spans, parts.stored),
        fresh=fresh,
        grown=grown,
        length=0 if plan is None else plan.length,
        blobs=blobs,
    )
    return _Prepared(commit, plan, parts.raw, size)


def _carry_out(known: KnownRows, tenant: str, old: Loaded | None, prepared: _Prepared) -> Steps[SessionSnapshot]:
    """Write it, and remember it."""
    commit, plan = prepared.commit, prepared.plan
    line = plan.layout.spans[-1].line if plan is not None and plan.layout.grown else None
    job = Job(tenant, commit.session_id, commit.carry_out, None if old else commit.snapshot_id, line=line)
    row: Row = yield Write(job, wakes=commit.snapshot_id)
    origin = Origin(tenant, row.snapshot_id, row.revision, commit.redactions)
    messages = None if plan is None else plan.messages.came_from(origin)
    if messages is not None:
        known.put(origin, messages, prepared.size)
    grows = row.record.status in IN_FLIGHT
    known.see(tenant, Footing(row, commit.redactions, prepared.parts if grows else None), _length_after(row, plan))
    return Loaded(row, origin, prepared.parts, messages).shown()


def _length_after(row: Row, plan: _Plan | None) -> int | None:
    """How long the line of a row's last span is, now that it was written; None where that is not known."""
    spans = row.record.spans
    if plan is None or not spans:
        return 0
    if plan.layout.grown or plan.layout.spans[-1].line == NEW_LINE:
        return spans[-1].stop
    base = None if plan.base is None else plan.base.record.spans
    return plan.length if base and base[-1].line == spans[-1].line else None


def _guard(old: Row, wanted: SessionSnapshot) -> None:
    status = wanted.status or "completed"
    if old.record.status not in IN_FLIGHT and status != old.record.status:
        raise TerminalStatusError(old.snapshot_id, old.record.status, status)
    if wanted.epoch < old.record.epoch:
        raise StaleEpochError(old.snapshot_id, wanted.epoch, old.record.epoch)


def _ground(
    view: Reading,
    session_id: str,
    parent_id: str | None,
    old: Loaded | None,
    listed: Sequence[Any] | None,
) -> _Ground:
    mark = view.mark(session_id)
    redactions = 0 if mark is None else mark.redactions
    masks = Masks(mark.salt, view.masks(session_id)) if mark is not None and mark.redactions else None
    bases: list[Row] = []
    if listed:
        seen: set[str] = set()

        def consider(row: Row | None) -> bool:
            if row is None or row.session_id != session_id or row.snapshot_id in seen:
                return False
            seen.add(row.snapshot_id)
            if row.record.spans:
                bases.append(row)
            return bool(row.record.spans)

        if isinstance(listed, StoredMessages) and listed.origin is not None:
            consider(view.row(listed.origin.snapshot_id))
        if old is not None:
            consider(view.row(old.row.snapshot_id))
        ancestor = parent_id
        for _ in range(_HOPS):
            row = None if ancestor is None else view.row(ancestor)
            if row is None or consider(row):
                break
            ancestor = row.record.parent_id
        if not bases:
            consider(view.latest(session_id, None))
    return _Ground(
        redactions,
        masks,
        tuple((row, view.length(session_id, row.record.spans[-1].line)) for row in bases if row.record.spans),
    )


def _asked_ground(
    known: KnownRows,
    tenant: str,
    session_id: str,
    parent_id: str | None,
    old: Loaded | None,
    listed: Sequence[Any] | None,
) -> Steps[_Ground]:
    ground: _Ground = yield Read(tenant, lambda view: _ground(view, session_id, parent_id, old, listed))
    for row, length in ground.bases:
        known.see(tenant, Footing(row, ground.redactions), length)
    return ground


def _remembered_ground(
    known: KnownRows,
    tenant: str,
    session_id: str,
    parent_id: str | None,
    old: Loaded | None,
    listed: Sequence[Any] | None,
) -> _Ground | None:
    """What `_ground` would find, as far as it is remembered; None where that is not enough."""
    origin = listed.origin if isinstance(listed, StoredMessages) else None
    names = [
        *((origin.snapshot_id,) if origin is not None else ()),
        *((old.row.snapshot_id,) if old is not None else ()),
        *((parent_id,) if parent_id is not None else ()),
    ]
    bases: list[tuple[Row, int]] = []
    for name in dict.fromkeys(names):
        footing = known.footing(tenant, name)
        if (
            footing is not None
            and old is not None
            and name == old.row.snapshot_id
            and footing.row.revision != old.row.revision
        ):
            footing = None
        end = None if footing is None else known.end(tenant, footing.row)
        if footing is None or end is None or footing.row.session_id != session_id or footing.redactions:
            if not bases:
                return None
            break  # the first one is nearly always what the list goes on from
        if footing.row.record.spans:
            bases.append((footing.row, end))
    return _Ground(0, None, tuple(bases)) if bases or (names and not listed) else None


def _plan(
    known: KnownRows, tenant: str, listed: list[Any] | tuple[Any, ...] | StoredMessages, ground: _Ground
) -> Steps[_Plan]:
    for row, length in ground.bases:
        origin = Origin(tenant, row.snapshot_id, row.revision, ground.redactions)
        spans = row.record.spans or ()
        if isinstance(listed, StoredMessages) and listed.origin == origin and listed.known:
            # The store made these bytes itself and nobody can have changed them.
            pieces = [Piece(0, listed.known, listed.start)]
            if len(listed) > listed.known:
                listed = yield from _masked_tail(listed, ground.masks)
                pieces.append(Piece(listed.known, len(listed) - listed.known, None))
            return _Plan(listed, row, lay_out(pieces, spans, length), length)
    mask = None if ground.masks is None else ground.masks.message
    is_private = isinstance(listed, StoredMessages)
    messages = (yield from listed.private()) if isinstance(listed, StoredMessages) else listed
    found: Matched | None = None
    for row, length in ground.bases:
        if found is not None:  # nothing was known: all of it has been copied, and redacted
            messages, mask, is_private = found.copies, None, True
        origin = Origin(tenant, row.snapshot_id, row.revision, ground.redactions)
        try:
            stored = yield from _stored(known, row, origin)
            copies = yield from stored.private()
        except CorruptStoreError:  # what is damaged cannot be shared; the session goes on without it
            continue
        found = yield from match(messages, copies, path="snapshot.data.messages", mask=mask, is_private=is_private)
        if any(piece.known is not None for piece in found.pieces):
            layout = lay_out(found.pieces, row.record.spans or (), length)
            return _Plan(StoredMessages(None, found.copies), row, layout, length)
    if found is None:
        found = yield from match(messages, [], path="snapshot.data.messages", mask=mask, is_private=is_private)
    return _Plan(StoredMessages(None, found.copies), None, lay_out(found.pieces, (), None), 0)


def _stored(known: KnownRows, row: Row, origin: Origin) -> Steps[StoredMessages]:
    found = known.get(origin)
    if found is not None:
        return found
    read, size = yield Read(origin.tenant, lambda view: _messages_of(view, row, origin))
    known.put(origin, read, size)
    messages: StoredMessages = read
    return messages


def _messages_of(view: Reading, row: Row, origin: Origin) -> tuple[StoredMessages, int]:
    now = view.row(row.snapshot_id)
    loaded = None if now is None else load(view, origin.tenant, now)
    if loaded is None or loaded.origin != origin or loaded.messages is None:
        raise MovedError(f"snapshot {row.snapshot_id!r} has changed")
    return loaded.messages, loaded.size


def _masked_tail(listed: StoredMessages, masks: Masks | None) -> Steps[StoredMessages]:
    """The same list, with what was appended to stored messages redacted."""
    if masks is None:
        return listed
    tail: list[Any] = []
    for message in listed[listed.known :]:
        copy = private_copy(message)
        replaced = masks.message(copy)
        tail.append(copy if replaced is None else replaced)
        yield None
    return listed[: listed.known] + StoredMessages(None, tail)


def _bodies(
    messages: StoredMessages, indexes: Sequence[int], blobs: dict[bytes, bytes]
) -> Steps[tuple[list[bytes], int]]:
    """What is stored for these messages, and how many bytes of JSON they have."""
    bodies: list[bytes] = []
    size = 0
    for count, index in enumerate(indexes, 1):
        raw = messages.raw(index)
        size += len(raw)
        bodies.append(body(raw, LARGE_MESSAGE, blobs))
        if count % _ENCODED == 0:
            yield None
    return bodies, size
