"""A session as one JSON Lines file, and back.

The first line names the format and the session, the last counts the rows. Between them stand messages, each once, and
rows, each after the messages that it names: `runs` are pairs of start and stop in the numbering of the messages. Where
words were redacted, the second line tells how often, and has the salt and the digests by which they are known when they
come back: who has the file can try whether a word that they guess was one of them.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeAlias, cast

import msgspec
from msgspec.structs import replace

from antiphon.errors import (
    AntiphonError,
    ContendedError,
    IdempotencyKeyError,
    MovedError,
    SessionRowError,
    SnapshotExistsError,
    SnapshotNotFoundError,
)
from antiphon.ids import check_id
from antiphon.jsonable import decode_json, encode_json, private_copy
from antiphon.snapshot.envelope import Snapshot
from antiphon.store.backend import Job, Reading, SessionMark, Writing
from antiphon.store.base import SessionSnapshot, from_microseconds
from antiphon.store.changes import new_revision
from antiphon.store.core import EVERY_ROW, Read, Steps, Write
from antiphon.store.lines import NEW_LINE, Span, settle
from antiphon.store.record import LARGE_MESSAGE, Row, body, resolve
from antiphon.store.redaction import checked_mask
from antiphon.store.rows import check_row, parts_of, record_of

FORMAT = 1
_BLOCK = 64
_TRIES = 200
_ENCODED = 32  # messages encoded between two looks at the event loop

_Runs: TypeAlias = tuple[tuple[int, int], ...]
_FIELDS = (
    *("status", "created_at", "updated_at", "heartbeat_at", "parent_id", "agent_id"),
    *("finish_reason", "owner", "epoch", "idempotency_key"),
)


def export_lines(tenant: str, session_id: str) -> Steps[list[bytes]]:
    """A session's lines.

    Raises:
        SnapshotNotFoundError: If it has no rows.
    """
    check_id("session_id", session_id)
    lines: list[bytes] | None = yield Read(tenant, lambda view: _lines(view, session_id))
    if lines is None:
        raise SnapshotNotFoundError("session", session_id)
    return lines


def _lines(view: Reading, session_id: str) -> list[bytes] | None:
    rows = sorted(view.rows(session_id), key=lambda row: row.recency)
    if not rows:
        return None
    numbers: dict[tuple[int, int], int] = {}
    lines = [msgspec.json.encode({"antiphon_session": FORMAT, "session_id": session_id})]

    def blobs(addresses: set[bytes]) -> Any:
        return view.blobs(session_id, addresses)

    mark = view.mark(session_id)
    if mark is not None and mark.redactions:
        masks = {digest.hex(): msgspec.Raw(raw) for digest, raw in sorted(view.masks(session_id).items())}
        lines.append(msgspec.json.encode(_Redacted(mark.redactions, mark.salt, masks)))
    for row in rows:
        runs: list[list[int]] | None = None if row.record.spans is None else []
        for span in row.record.spans or ():
            new = [at for at in range(span.start, span.stop) if (span.line, at) not in numbers]
            for start, stop in _intervals(new):
                raws = resolve(view.messages(session_id, span.line, start, stop), blobs)
                for at in range(start, stop):
                    numbers[span.line, at] = len(numbers)
                lines += [
                    b'{"messages":[' + b",".join(raws[begin : begin + _BLOCK]) + b"]}"
                    for begin in range(0, len(raws), _BLOCK)
                ]
            for at in range(span.start, span.stop):
                number = numbers[span.line, at]
                if runs and runs[-1][1] == number:
                    runs[-1][1] += 1
                elif runs is not None:
                    runs.append([number, number + 1])
        lines.append(_row_line(row, runs, blobs))
    lines.append(msgspec.json.encode({"rows": len(rows)}))
    return [line + b"\n" for line in lines]


def _intervals(numbers: list[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number:
            found[-1] = (found[-1][0], number + 1)
        else:
            found.append((number, number + 1))
    return found


def _row_line(row: Row, runs: list[list[int]] | None, blobs: Any) -> bytes:
    names = list(row.record.parts)
    raws = resolve([row.record.parts[name] for name in names], blobs)
    return msgspec.json.encode(
        {
            "snapshot_id": row.snapshot_id,
            **{name: getattr(row.record, name) for name in _FIELDS},
            "envelope": row.record.envelope,
            "runs": runs,
            "parts": {name: msgspec.Raw(raw) for name, raw in zip(names, raws, strict=True)},
        }
    )


class _Head(msgspec.Struct, frozen=True):
    """The first line."""

    antiphon_session: int
    session_id: str


class _Redacted(msgspec.Struct, frozen=True):
    """The line of what was redacted: `store.backend.SessionMark`, and `Reading.masks` with digests in hexadecimal."""

    redactions: Annotated[int, msgspec.Meta(ge=1, lt=2**31)]
    salt: bytes
    masks: dict[str, msgspec.Raw] = {}


class _Row(msgspec.Struct, frozen=True, kw_only=True):
    """A row's line."""

    snapshot_id: str
    status: str
    created_at: int
    updated_at: int | None = None
    heartbeat_at: int | None = None
    parent_id: str | None = None
    agent_id: str | None = None
    finish_reason: str | None = None
    owner: str | None = None
    epoch: int = 0
    idempotency_key: str | None = None
    envelope: tuple[str, str, str] | None = None
    runs: list[tuple[int, int]] | None = None
    parts: dict[str, msgspec.Raw] = {}


@dataclass(frozen=True, slots=True)
class Export:
    """An export that was read whole.

    Attributes:
        session_id: The session.
        messages: Private copies of all messages.
        rows: Its rows without their messages, each after those that were created before.
        runs: Which messages each row has, as in the file; None where it has none.
        mark: How often the session was redacted, and its salt; None when it never was.
        masks: See `Reading.masks`.
    """

    session_id: str
    messages: tuple[Any, ...]
    rows: tuple[SessionSnapshot, ...]
    runs: tuple[_Runs | None, ...]
    mark: SessionMark | None = None
    masks: Mapping[bytes, bytes] = field(default_factory=dict[bytes, bytes])


def parse_export(lines: Iterable[bytes]) -> Export:
    """Read an export.

    Raises:
        SessionRowError: If it is cut short, or something else.
    """
    number = 0
    try:
        texts = iter(lines)
        head = msgspec.json.decode(next(texts, b""), type=_Head)
        if head.antiphon_session != FORMAT:
            raise SessionRowError(f"this is not an export of a session in format {FORMAT}")
        session_id = head.session_id
        copies: list[Any] = []
        rows: list[SessionSnapshot] = []
        all_runs: list[_Runs | None] = []
        mark: SessionMark | None = None
        masks: dict[bytes, bytes] = {}
        ended: int | None = None
        for number, text in enumerate(texts, 2):
            if ended is not None:
                raise SessionRowError(f"line {number} follows the end of the export")
            if text.startswith(b'{"messages":'):
                copies += [private_copy(message) for message in decode_json(text)["messages"]]
            elif text.startswith(b'{"redactions":') and number == 2:
                redacted = msgspec.json.decode(text, type=_Redacted)
                mark = SessionMark(redacted.redactions, redacted.salt)
                masks = dict(checked_mask(digest, bytes(raw)) for digest, raw in redacted.masks.items())
            elif text.startswith(b'{"rows":'):
                ended = msgspec.json.decode(text)["rows"]
            else:
                line = msgspec.json.decode(text, type=_Row)
                rows.append(check_row(_row(line, session_id), line.snapshot_id, None))
                all_runs.append(_runs(line, len(copies)))
    except AntiphonError:
        raise
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise SessionRowError(
            f"line {number + 1 if number == 0 else number} of the export cannot be read: {error}"
        ) from error
    if ended != len(rows):
        raise SessionRowError(f"the export is cut short: {len(rows)} rows, and no line at the end that counts them")
    _check_once("snapshot", [row.snapshot_id for row in rows])
    _check_once("idempotency key", [row.idempotency_key for row in rows if row.idempotency_key is not None])
    return Export(session_id, tuple(copies), tuple(rows), tuple(all_runs), mark, masks)


def _check_once(what: str, names: list[str]) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise SessionRowError(f"{what} {name!r} is in the export {count} times")


def _runs(found: _Row, count: int) -> _Runs | None:
    """A row's messages, all of which must stand before it."""
    if found.runs is None or found.envelope is None:
        return None
    for start, stop in found.runs:
        if not 0 <= start < stop <= count:
            raise SessionRowError(f"snapshot {found.snapshot_id!r} names messages that are not in the export")
    return tuple(found.runs)


def _row(found: _Row, session_id: str) -> SessionSnapshot:
    parts = {name: decode_json(bytes(raw)) for name, raw in found.parts.items()}
    snapshot = None
    if found.envelope is not None:
        data = {name.removeprefix("data."): value for name, value in parts.items() if name.startswith("data.")}
        if "messages" in data and (found.runs is not None or isinstance(data["messages"], list)):
            raise SessionRowError(f"snapshot {found.snapshot_id!r} has messages of its own, outside of the export's")
        scope, version, created_at = found.envelope
        snapshot = Snapshot(cast("Any", scope), version, data, parts.get("app_data", {}), created_at)
    return SessionSnapshot(
        session_id=session_id,
        snapshot_id=check_id("snapshot_id", found.snapshot_id),
        created_at=from_microseconds(found.created_at),
        updated_at=None if found.updated_at is None else from_microseconds(found.updated_at),
        heartbeat_at=None if found.heartbeat_at is None else from_microseconds(found.heartbeat_at),
        agent_id=found.agent_id,
        parent_id=found.parent_id,
        status=cast("Any", found.status),
        finish_reason=found.finish_reason,
        error=parts.get("error"),
        usage=parts.get("usage"),
        owner=found.owner,
        epoch=found.epoch,
        idempotency_key=found.idempotency_key,
        journal=parts.get("journal"),
        snapshot=snapshot,
    )


def import_rows(tenant: str, found: Export) -> Steps[str]:
    """Store an export's rows: all of them or, when this raises, none.

    Raises:
        SnapshotExistsError: If the session, or a row of one of these ids, is there already.
        IdempotencyKeyError: If a key belongs to a row that is there.
        ContendedError: If others kept taking ids or keys meanwhile.
    """
    session_id = check_id("session_id", found.session_id)
    blobs: dict[bytes, bytes] = {}
    bodies: list[bytes] = []
    for count, message in enumerate(found.messages, 1):
        bodies.append(body(encode_json(message), LARGE_MESSAGE, blobs))
        if count % _ENCODED == 0:
            yield None
    rows: list[Row] = []
    for row, runs in zip(found.rows, found.runs, strict=True):
        parts = parts_of(row, None)
        blobs.update(parts.blobs)
        spans = None if runs is None else tuple(Span(NEW_LINE, start, stop) for start, stop in runs)
        rows.append(Row(row.snapshot_id, session_id, new_revision(), record_of(row, spans, parts.stored)))
        yield None

    def work(tx: Writing) -> None:
        _check_free(tx, session_id, rows)
        if not rows:
            return
        tx.put_mark(session_id, found.mark or SessionMark(0, os.urandom(16)))
        if found.masks:
            tx.put_masks(session_id, found.masks)
        line = tx.new_line(session_id) if bodies else 0
        if bodies:
            tx.append(session_id, line, 0, bodies)
        if blobs:
            tx.put_blobs(session_id, blobs)
        for row in rows:
            spans = row.record.spans
            tx.put_row(replace(row, record=replace(row.record, spans=settle(spans, line))) if spans else row)

    ids = tuple(row.snapshot_id for row in rows)
    for _ in range(_TRIES):
        try:
            yield Write(Job(tenant, session_id, work, also_new=ids), wakes=EVERY_ROW)
        except MovedError:
            yield None
        else:
            return session_id
    raise ContendedError(f"session {session_id!r} could not be imported: others keep taking its ids")


def _check_free(view: Reading, session_id: str, rows: list[Row]) -> None:
    if view.mark(session_id) is not None:
        raise SnapshotExistsError("session", session_id)
    for row in rows:
        if view.row(row.snapshot_id) is not None:
            raise SnapshotExistsError("snapshot", row.snapshot_id)
        key = row.record.idempotency_key
        holder = None if key is None else view.keyed(key)
        if key is not None and holder is not None:
            raise IdempotencyKeyError(key, holder)
