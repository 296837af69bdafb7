"""Changes to a session, carried out within one of a backend's (`Writing`).

Each checks and plans everything first and raises before it changes anything.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from msgspec.structs import replace

from antiphon.errors import CorruptStoreError, IdempotencyKeyError, MovedError, SessionConflictError
from antiphon.jsonable import decode_json, encode_json, private_copy
from antiphon.store.backend import SessionMark, Writing
from antiphon.store.base import PruneReport, RedactMessage, RedactPart, Tip
from antiphon.store.leases import Queue, dump, lease_key, load
from antiphon.store.lines import covered, settle
from antiphon.store.record import (
    LARGE_MESSAGE,
    LARGE_PART,
    Record,
    Row,
    address_in,
    addresses_in,
    body,
    resolve,
)
from antiphon.store.redaction import Masks, replace_messages
from antiphon.store.retention import removable, to_fit

_UNREADABLE = b""  # in the place of a damaged body: still an error to whoever reads it, and without a word


def new_revision() -> int:
    """A number that no state of any row has had: also when an id is deleted and written again."""
    return int.from_bytes(os.urandom(7), "big")


@dataclass(frozen=True, slots=True)
class Commit:
    """A row to write, and everything that must still be as it was when the row was planned.

    Attributes:
        session_id: The row's session.
        snapshot_id: Its id.
        revision: Of the row that was read; None: there was none.
        base: The row whose spans are shared and its revision; None: nothing is shared.
        redactions: How many redactions the session had seen.
        expected_tip: See `SessionStore.save_snapshot`.
        record: The row; its spans may name `NEW_LINE`.
        fresh: Bodies of the new line.
        grown: Bodies to append to the line of the last span.
        length: How long that line was.
        blobs: Large bodies, by address.
    """

    session_id: str
    snapshot_id: str
    revision: int | None
    base: tuple[str, int] | None
    redactions: int
    expected_tip: str | Tip | None
    record: Record
    fresh: Sequence[bytes] = ()
    grown: Sequence[bytes] = ()
    length: int = 0
    blobs: dict[bytes, bytes] = field(default_factory=dict[bytes, bytes])

    def carry_out(self, tx: Writing) -> Row:
        """Write the row with its new messages.

        Raises:
            MovedError: If what was read has changed.
            SessionConflictError: If another row is the latest than was expected.
            IdempotencyKeyError: If another row has the key.
        """
        mark = tx.mark(self.session_id)
        self._check(tx, mark)
        if mark is None:
            tx.put_mark(self.session_id, SessionMark(0, os.urandom(16)))
        record = self.record
        spans = record.spans
        if spans and self.fresh:
            line = tx.new_line(self.session_id)
            spans = settle(spans, line)
            record = replace(record, spans=spans)
            tx.append(self.session_id, line, 0, self.fresh)
        if spans and self.grown:
            tx.append(self.session_id, spans[-1].line, self.length, self.grown)
        if self.blobs:
            tx.put_blobs(self.session_id, self.blobs)
        row = Row(self.snapshot_id, self.session_id, new_revision(), record)
        tx.put_row(row)
        return row

    def _check(self, tx: Writing, mark: SessionMark | None) -> None:
        now = tx.row(self.snapshot_id)
        if (now and now.revision) != self.revision:
            raise MovedError(f"snapshot {self.snapshot_id!r} has changed")
        if (mark.redactions if mark else 0) != self.redactions:
            raise MovedError(f"session {self.session_id!r} was redacted")
        key = self.record.idempotency_key
        holder = None if key is None else tx.keyed(key)
        if key is not None and holder is not None and holder != self.snapshot_id:
            raise IdempotencyKeyError(key, holder)
        if not isinstance(self.expected_tip, Tip):
            latest = tx.latest(self.session_id, self.record.agent_id)
            tip = None if latest is None else latest.snapshot_id
            if tip != self.expected_tip:
                raise SessionConflictError(self.session_id, self.expected_tip, tip)
        if self.base is not None:
            base = tx.row(self.base[0])
            if base is None or base.revision != self.base[1]:
                raise MovedError(f"snapshot {self.base[0]!r} has changed")
        if self.grown and self.record.spans:
            line = self.record.spans[-1].line
            if tx.length(self.session_id, line) != self.length:
                raise MovedError(f"another branch of session {self.session_id!r} took the end of line {line}")


def sweep_session(tx: Writing, session_id: str, rows: Sequence[Row] | None = None) -> int:
    """Forget what no row of the session holds. Returns how many messages were forgotten."""
    rows = tx.rows(session_id) if rows is None else rows
    forgotten = tx.keep_messages(session_id, covered(row.record.spans or () for row in rows))
    named = tx.addressed(session_id)
    for row in rows:
        named |= addresses_in(row.record.parts.values())
    tx.keep_blobs(session_id, named)
    return forgotten


def prune_session(
    tx: Writing, session_id: str, *, keep: int | None, older_than: int | None, max_bytes: int | None
) -> PruneReport:
    """Remove rows that may go, and what only they held."""
    rows = tx.rows(session_id)
    gone = removable(rows, keep=keep, older_than=older_than)
    if max_bytes is not None:
        gone = _largest(tx, session_id, rows, gone, max_bytes)
    if not gone:
        return PruneReport()
    ids = tuple(row.snapshot_id for row in gone)
    tx.drop_rows(session_id, ids)
    removed = set(ids)
    return PruneReport(ids, sweep_session(tx, session_id, [row for row in rows if row.snapshot_id not in removed]))


def _largest(tx: Writing, session_id: str, rows: Sequence[Row], candidates: list[Row], max_bytes: int) -> list[Row]:
    blobs: dict[bytes, int] = {}

    def blob(address: bytes) -> int:
        if address not in blobs:
            blobs[address] = len(tx.blobs(session_id, {address}).get(address, b""))
        return blobs[address]

    ends: dict[int, int] = {}
    sizes: dict[int, dict[int, int]] = {}
    for line, at, stored in tx.bodies(session_id):
        address = address_in(stored)
        sizes.setdefault(line, {})[at] = len(stored) if address is None else blob(address)
        ends[line] = max(ends.get(line, 0), at + 1)
    sums = {line: [0, *accumulate(known.get(at, 0) for at in range(ends[line]))] for line, known in sizes.items()}

    def size(line: int, start: int, stop: int) -> int:
        total = sums.get(line, [0])
        return total[min(stop, len(total) - 1)] - total[min(start, len(total) - 1)]

    return to_fit(rows, candidates, max_bytes, size, blob)


def erase_session(tx: Writing, session_id: str) -> bool:
    """Forget a session whole, and who had its lease or waited for it. Whether it was there."""
    queue = tx.note(lease_key(session_id))
    if queue is not None:
        left = dump(Queue(load(queue).drawn))
        if left != queue:
            tx.put_note(lease_key(session_id), left)
    if tx.mark(session_id) is None:
        return False
    tx.drop_session(session_id)
    return True


def redact_session(tx: Writing, session_id: str, message: RedactMessage, part: RedactPart | None) -> int:
    """Replace messages and parts wherever the session holds them. Returns how many were replaced."""
    mark = tx.mark(session_id)
    if mark is None:
        return 0
    rows = tx.rows(session_id)
    plan = _Redaction(tx, session_id, Masks(mark.salt, tx.masks(session_id)), message, part or _as_it_is)
    held = covered(row.record.spans or () for row in rows)
    for line, at, stored in tx.bodies(session_id):
        # What no row holds any more will be swept, but somebody may still hold it and save it again.
        plan.see_message(line, at, stored, is_held=any(start <= at < stop for start, stop in held.get(line, ())))
    changed = [plan.see_row(row) for row in rows]
    masks = plan.masks_now()
    # Nothing was changed up to here, so that an error of the caller's functions leaves everything as it was.
    for line, at, stored in plan.replaced:
        tx.replace(session_id, line, at, stored)
    tx.put_blobs(session_id, plan.blobs)
    for before, after in zip(rows, changed, strict=True):
        if after is not before:
            tx.put_row(after)
    tx.put_masks(session_id, masks)
    tx.put_mark(session_id, SessionMark(mark.redactions + 1, mark.salt))
    sweep_session(tx, session_id, changed)
    return plan.count


class _Redaction:
    """What a redaction will change."""

    def __init__(self, tx: Writing, session_id: str, masks: Masks, message: RedactMessage, part: RedactPart) -> None:
        self._fetch: Callable[[set[bytes]], Any] = lambda addresses: tx.blobs(session_id, addresses)
        self._masks = masks.renewed(message, part)
        self._message, self._part = message, part
        self._seen: dict[tuple[str, bytes], bytes] = {}
        self.replaced: list[tuple[int, int, bytes]] = []
        self.blobs: dict[bytes, bytes] = {}
        self.count = 0

    def masks_now(self) -> dict[bytes, bytes]:
        return self._masks.entries

    def see_message(self, line: int, at: int, stored: bytes, *, is_held: bool) -> None:
        if stored == _UNREADABLE:
            return
        raw = self._readable(stored)
        new = _UNREADABLE if raw is None else self._new_message(raw)
        if new is not None and is_held:
            self.replaced.append((line, at, body(new, LARGE_MESSAGE, self.blobs)))
            self.count += 1

    def see_row(self, row: Row) -> Row:
        parts: dict[str, bytes] = {}
        for name, stored in row.record.parts.items():
            if (name, stored) not in self._seen:
                self._seen[name, stored] = self._new_part(name, stored)
            parts[name] = self._seen[name, stored]
        if parts == row.record.parts:
            return row
        return replace(row, revision=new_revision(), record=replace(row.record, parts=parts))

    def _readable(self, stored: bytes) -> bytes | None:
        """A body's JSON; None when it is damaged or lost, and nobody can tell which words it holds."""
        try:
            raw = resolve([stored], self._fetch)[0]
            decode_json(raw)
        except (CorruptStoreError, ValueError):
            return None
        return raw

    def _new_message(self, raw: bytes) -> bytes | None:
        """The message's replacement in JSON; None when it stays."""
        replacement = self._message(decode_json(raw))
        if replacement is None:
            return None
        new = encode_json(private_copy(replacement))
        if new == raw:
            return None
        self._masks.add_message(raw, new)
        return new

    def _new_line(self, message: Any) -> Any:
        new = self._new_message(encode_json(private_copy(message)))
        return None if new is None else decode_json(new)

    def _new_part(self, name: str, stored: bytes) -> bytes:
        if stored == _UNREADABLE:
            return stored
        raw = self._readable(stored)
        if raw is None:
            self.count += 1
            return _UNREADABLE
        value = decode_json(raw)
        replace_messages(name, value, self._new_line)
        before = encode_json(private_copy(value))  # a part is masked by its messages first when it comes back
        changed = encode_json(private_copy(self._part(name, value)))
        if changed != before:
            self._masks.add_part(name, before, changed)
        if changed == raw:
            return stored
        self.count += 1
        if name == "journal":
            return changed
        return body(changed, LARGE_PART, self.blobs) if name.startswith(("data.", "app_data")) else changed


def _as_it_is(name: str, value: Any) -> Any:
    return value
