"""A session as one JSON Lines file, and back.

The first line names the format and the session, the last counts the rows. Between them stand messages, each once, and
rows, each after the messages that it names: `runs` are pairs of start and stop in the numbering of the messages.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

import msgspec

from antiphon.errors import SessionRowError, SnapshotExistsError, SnapshotNotFoundError
from antiphon.ids import check_id
from antiphon.jsonable import decode_json, private_copy
from antiphon.snapshot.envelope import Snapshot
from antiphon.store.backend import Reading
from antiphon.store.base import ANY_TIP, SessionSnapshot, from_microseconds
from antiphon.store.core import Read, Steps, StoreCore
from antiphon.store.messages import StoredMessages
from antiphon.store.record import Row, resolve
from antiphon.store.saving import save

FORMAT = 1
_BLOCK = 64
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
        rows: Its rows, each after those that were created before.
    """

    session_id: str
    rows: tuple[SessionSnapshot, ...]


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
        ended: int | None = None
        for number, text in enumerate(texts, 2):
            if ended is not None:
                raise SessionRowError(f"line {number} follows the end of the export")
            if text.startswith(b'{"messages":'):
                copies += [private_copy(message) for message in decode_json(text)["messages"]]
            elif text.startswith(b'{"rows":'):
                ended = msgspec.json.decode(text)["rows"]
            else:
                rows.append(_row(msgspec.json.decode(text, type=_Row), session_id, copies))
    except (msgspec.MsgspecError, KeyError, TypeError, UnicodeDecodeError, OverflowError) as error:
        raise SessionRowError(
            f"line {number + 1 if number == 0 else number} of the export cannot be read: {error}"
        ) from error
    if ended != len(rows):
        raise SessionRowError(f"the export is cut short: {len(rows)} rows, and no line at the end that counts them")
    return Export(session_id, tuple(rows))


def _row(found: _Row, session_id: str, copies: list[Any]) -> SessionSnapshot:
    parts = {name: decode_json(bytes(raw)) for name, raw in found.parts.items()}
    snapshot = None
    if found.envelope is not None:
        data = {name.removeprefix("data."): value for name, value in parts.items() if name.startswith("data.")}
        if found.runs is not None:
            messages: list[Any] = []
            for start, stop in found.runs:
                if not 0 <= start < stop <= len(copies):
                    raise SessionRowError(f"snapshot {found.snapshot_id!r} names messages that are not in the export")
                messages += copies[start:stop]
            data = {"messages": StoredMessages(None, messages), **data}
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


def import_rows(core: StoreCore, tenant: str, found: Export) -> Steps[str]:
    """Store an export's rows.

    Raises:
        SnapshotExistsError: If the session, or a row of one of these ids, is there already.
    """
    check_id("session_id", found.session_id)

    def taken(view: Reading) -> tuple[str, str] | None:
        if view.latest(found.session_id, None) is not None:
            return "session", found.session_id
        for row in found.rows:
            if view.row(row.snapshot_id) is not None:
                return "snapshot", row.snapshot_id
        return None

    there: tuple[str, str] | None = yield Read(tenant, taken)
    if there is not None:
        raise SnapshotExistsError(*there)
    for row in found.rows:

        def put(existing: SessionSnapshot | None, row: SessionSnapshot = row) -> SessionSnapshot:
            if existing is not None:
                raise SnapshotExistsError("snapshot", row.snapshot_id)
            return row

        yield from save(core.known, tenant, row.snapshot_id, put, ANY_TIP)
    return found.session_id
