"""Changing a session: `Writing` over its log."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress

from antiphon.errors import MovedError, SessionStoreError
from antiphon.store.backend import SessionMark
from antiphon.store.file.chains import beyond
from antiphon.store.file.contents import Contents
from antiphon.store.file.folder import INDEX, KEYS, LOG, TEMPORARY, Folder, digest, note_lock, translated, write_whole
from antiphon.store.file.frames import Begin, Head, pack_frame
from antiphon.store.file.index import Claim, Index, key_claim, row_claim
from antiphon.store.file.view import LogCache, Open, View, note_file, pack_note
from antiphon.store.lines import covered
from antiphon.store.record import Row, addresses_in

_log = logging.getLogger(__name__)

_SPARE = 1 << 16
"""Bytes that nobody needs that may stay in any log."""

_FEW = 64  # rows that are removed before somebody looks for messages that no row names
_TOGETHER = 256  # messages in one frame of a log that is written anew
_ROWS_TOGETHER = 64  # rows in one; damage costs at most so many
_PIECE = 1 << 22  # bytes of bodies in one
_FIRST_LINES = 1 << 31


class _Draft:
    """What was changed: it will be a frame. `bodies` are those without a place: offset -1 stands for the first."""

    __slots__ = ("blobs", "bodies", "claims", "dropped", "has_mark", "has_masks", "lines", "rows")

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self.lines: list[tuple[int, int, list[bytes]]] = []
        self.blobs: dict[bytes, bytes] = {}
        self.dropped: list[str] = []
        self.has_mark = self.has_masks = False
        self.bodies: list[bytes] = []
        self.claims: list[Claim] = []

    def pending(self, body: bytes) -> int:
        """The offset that stands for a body until it has one."""
        self.bodies.append(body)
        return -len(self.bodies)


class Transaction(View):
    """A change of one session, whose log is locked by the caller; fulfils `Writing`.

    Changes are taken in at once. `commit` appends them as one frame, so that they are in the log all or none, whatever number
    of jobs they come from; or it writes the whole log anew where something is to be forgotten. After that `keep_log` puts
    what is in memory into the cache; without it the log is read again, for what is in memory may not be in the file.

    Args:
        folder: The tenant's folder.
        cache: What is known of it on this thread.
        index: Its index.
        session_id: The session.
        lock: The descriptor that holds its log; None when there is no log, and none is to be made.
    """

    def __init__(self, folder: Folder, cache: LogCache, index: Index, session_id: str, lock: int | None) -> None:
        super().__init__(folder, cache, index)
        self._place = folder
        self._session_id, self._key = session_id, digest(session_id)
        self._draft, self._changes, self._settled = _Draft(), 0, 0
        self._notes: dict[str, bytes | None] = {}
        self._is_anew = self._is_gone = False
        self._locks, self._locked = ExitStack(), set[str]()
        self._held: Open | None = None
        if lock is not None:
            self._held = self._caught_up(lock)
        self._opened[self._key] = self._held

    def _caught_up(self, lock: int) -> Open:
        log = self._cache.take(self._key)
        log.catch_up_settled(lock)
        size = os.fstat(lock).st_size
        if size > log.end:  # its writer is dead, for the lock is ours
            _log.warning("%s: cut %d bytes of a commit that never ended", self._place.path(self._file), size - log.end)
            self._place.fs.truncate(lock, log.end)
        if log.end:
            log.contents.call(self._session_id)
        return Open(log, lock, log.take_read())

    def __exit__(self, *exc_info: object) -> None:
        self._opened.pop(self._key, None)  # the descriptor is the caller's
        self._locks.close()
        super().__exit__(None, None, None)

    @property
    def _file(self) -> str:
        return self._key.hex() + LOG

    @property
    def is_dirty(self) -> bool:
        """Whether something was changed since the last job ended."""
        return self._changes != self._settled

    @property
    def is_empty(self) -> bool:
        """Whether the log was made for this change, and nothing was written to it."""
        return self._held is not None and self._held.log.end == 0

    def keep_log(self) -> None:
        """Remember the log: what is in memory is what is in the file."""
        if self._held is not None and not self._is_gone and not self._is_anew and self._held.log.end:
            self._cache.keep(self._key, self._held.log)

    # Looking, with what was changed in view

    def keyed(self, idempotency_key: str) -> str | None:
        if self._held is not None and idempotency_key in self._held.contents.keys:
            return self._held.contents.keys[idempotency_key]
        self._lock(KEYS)  # nobody else may take the key until this is over
        self._is_indexed = False
        return super().keyed(idempotency_key)

    def note(self, name: str) -> bytes | None:
        if name in self._notes:
            return self._notes[name]
        self._lock(note_lock(name))
        return super().note(name)

    def bodies_at(self, opened: Open, offsets: Sequence[int], sizes: Sequence[int]) -> list[bytes]:
        if opened is not self._held or not self._draft.bodies or min(offsets, default=0) >= 0:
            return super().bodies_at(opened, offsets, sizes)
        written = [index for index, offset in enumerate(offsets) if offset >= 0]
        stored = super().bodies_at(opened, [offsets[index] for index in written], [sizes[index] for index in written])
        bodies = dict(zip(written, stored, strict=True))
        return [
            bodies[index] if offset >= 0 else self._draft.bodies[-offset - 1] for index, offset in enumerate(offsets)
        ]

    def bodies(self, session_id: str) -> Sequence[tuple[int, int, bytes]]:
        held = self._held
        if held is None:
            return []
        found: list[tuple[int, int, bytes]] = []
        for number, line in held.contents.lines.items():
            places = [at for at, offset in enumerate(line.offsets) if offset]
            stored = self.bodies_at(held, [line.offsets[at] for at in places], [line.sizes[at] for at in places])
            found += [(number, at, body) for at, body in zip(places, stored, strict=True)]
        return found

    def addressed(self, session_id: str) -> set[bytes]:
        return addresses_in(body for _, _, body in self.bodies(session_id))

    # Changing

    def put_mark(self, session_id: str, mark: SessionMark) -> None:
        contents = self._change(session_id)
        if not contents.uid:
            contents.call(session_id)
            contents.uid = os.urandom(8)
            # Where a session of this name was deleted its lines had other numbers.
            contents.last_line = max(contents.last_line, int.from_bytes(os.urandom(4), "big") % _FIRST_LINES)
        contents.mark = mark
        self._draft.has_mark = True

    def put_masks(self, session_id: str, masks: Mapping[bytes, bytes]) -> None:
        self._change(session_id).masks = dict(masks)
        self._draft.has_masks = True

    def put_row(self, row: Row) -> None:
        contents = self._change(row.session_id)
        before = contents.rows.get(row.snapshot_id)
        if before is None:
            other = self.row(row.snapshot_id)
            if other is not None:
                raise MovedError(f"snapshot {row.snapshot_id!r} is in session {other.session_id!r}")
        record = row.record
        if before is None or record.created_at != before.record.created_at:
            self._draft.claims.append(row_claim(self._key, contents.uid, row.snapshot_id, record.created_at))
        if record.idempotency_key is not None and record.idempotency_key not in contents.keys:
            self._draft.claims.append(key_claim(self._key, contents.uid, record.idempotency_key))
        contents.put_row(row)
        self._draft.rows[row.snapshot_id] = row

    def drop_rows(self, session_id: str, snapshot_ids: Sequence[str]) -> None:
        self._change(session_id).drop_rows(snapshot_ids)
        for snapshot_id in snapshot_ids:
            self._draft.rows.pop(snapshot_id, None)
        self._draft.dropped += snapshot_ids

    def new_line(self, session_id: str) -> int:
        contents = self._change(session_id)
        contents.line(contents.last_line + 1)
        return contents.last_line

    def append(self, session_id: str, line: int, at: int, bodies: Sequence[bytes]) -> None:
        found = self._change(session_id).line(line)
        for position, body in enumerate(bodies, at):
            found.put(position, self._draft.pending(body), len(body))
        self._draft.lines.append((line, at, list(bodies)))

    def replace(self, session_id: str, line: int, at: int, body: bytes) -> None:
        self._change(session_id).line(line).put(at, self._draft.pending(body), len(body))
        self._is_anew = True

    def put_blobs(self, session_id: str, blobs: Mapping[bytes, bytes]) -> None:
        known = self._change(session_id).blobs
        for address, body in blobs.items():
            if address not in known:
                known[address] = self._draft.pending(body), len(body)
                self._draft.blobs[address] = body

    def keep_messages(self, session_id: str, kept: Mapping[int, Sequence[tuple[int, int]]]) -> int:
        forgotten = self._change(session_id).keep_messages(kept)
        self._is_anew = self._is_anew or forgotten > 0 or bool(self._draft.dropped)
        return forgotten

    def keep_blobs(self, session_id: str, addresses: set[bytes]) -> None:
        contents = self._change(session_id)
        gone = contents.blobs.keys() - addresses
        for address in gone:
            del contents.blobs[address]
        self._is_anew = self._is_anew or bool(gone)

    def drop_session(self, session_id: str) -> None:
        self._change(session_id)
        self._is_gone = True
        self._opened[self._key] = None

    def put_note(self, name: str, value: bytes | None) -> None:
        self._notes[name] = value

    # Writing

    def end_job(self) -> None:
        """Say that a job has made all of its changes."""
        self._settled = self._changes

    def commit(self) -> None:
        """Make everything durable, notes last. Who is told of an error must begin again with what is in the file."""
        if self._is_gone:
            self._erase()
        elif self._is_anew and self._held is not None:
            self._index_claims()
            self._write_anew(self._held)
        elif self._changes and self._held is not None:
            self._index_claims()
            self._append(self._held)
        for name, value in self._notes.items():
            self._write_note(name, value)

    def tidy(self) -> None:
        """Write the log anew, without what nobody needs, when that is the greater part of it; after `commit`."""
        held = self._held
        if held is None or self._is_gone or self._is_anew or held.contents.lost:
            return
        contents = held.contents
        limit = _SPARE + held.log.end // 2
        dead = contents.waste.dead
        if contents.waste.dropped >= _FEW:
            contents.waste.dropped = 0
            dead += contents.loose()
        if dead > limit:
            rows = contents.rows.values()
            contents.keep_messages(covered(row.record.spans or () for row in rows))
            named = self.addressed(self._session_id)
            for row in rows:
                named |= addresses_in(row.record.parts.values())
            contents.blobs = {address: place for address, place in contents.blobs.items() if address in named}
            self._is_anew = True
            self._write_anew(held)

    def shorten(self, most: int) -> None:
        """Remove the ancestors of what was written that are further back than `most` rows, as far as they may go."""
        if self._held is not None and not self._is_gone:
            rows = self._held.contents.rows
            for snapshot_id in list(self._draft.rows):
                gone = beyond(rows, snapshot_id, most)
                if gone:
                    self.drop_rows(self._session_id, gone)

    def _change(self, session_id: str) -> Contents:
        if self._held is None or session_id != self._session_id or self._is_gone:
            raise MovedError(f"session {session_id!r} is gone")
        self._changes += 1
        return self._held.contents

    def _lock(self, name: str) -> None:
        if name not in self._locked:
            with translated(f"locking {self._place.path(name)!r}"):
                self._locks.enter_context(self._place.locked(name))
            self._locked.add(name)

    def _begin(self, contents: Contents) -> Begin:
        return Begin(self._session_id, contents.uid, contents.last_line, tuple(contents.lost))

    def _index_claims(self) -> None:
        if self._draft.claims:
            self._indexed().add(self._place, self._draft.claims)

    def _append(self, held: Open) -> None:
        fs, log, contents, draft = self._place.fs, held.log, held.contents, self._draft
        if not contents.is_named:
            # Whoever gave the file its name may have died before that was durable.
            fs.sync_folder(self._place.at)
        head, bodies = self._changed(contents)
        data, offset, checksum = pack_frame(log.end, log.checksum, head, bodies)
        try:
            fs.write_at(held.fd, data, log.end)
            fs.sync_data(held.fd)
        except OSError:
            with suppress(OSError):
                fs.truncate(held.fd, log.end)
            raise
        if len(draft.rows) == 1:
            contents.waste.costs[next(iter(draft.rows))] = offset - log.end
        for number, first, run in draft.lines:
            line = contents.line(number)
            for position, body in enumerate(run, first):
                line.put(position, offset, len(body))
                offset += len(body)
        for address, body in draft.blobs.items():
            contents.blobs[address] = offset, len(body)
            offset += len(body)
        contents.begun += head.begin is not None
        contents.is_named = True
        log.advance(data, checksum)
        self._draft = _Draft()

    def _changed(self, contents: Contents) -> tuple[Head, list[bytes]]:
        """What was changed, as a frame's head and bodies."""
        draft = self._draft
        begin = self._begin(contents) if contents.begun < 2 else None
        bodies = [body for _, _, run in draft.lines for body in run] + list(draft.blobs.values())
        mark = contents.mark if draft.has_mark or begin else None
        head = Head(
            rows=[(row.snapshot_id, row.revision, row.record) for row in draft.rows.values()],
            lines=[(line, at, len(run)) for line, at, run in draft.lines],
            sizes=[len(body) for body in bodies],
            blobs=list(draft.blobs),
            dropped=draft.dropped,
            is_named=not contents.is_named,
            mark=None if mark is None else (mark.redactions, mark.salt),
            masks=contents.masks if draft.has_masks or (begin and contents.masks) else None,
            begin=begin,
        )
        return head, bodies

    def _write_anew(self, held: Open) -> None:
        """Write a log with what is in memory, and give it the name of the old one, in one step.

        Who reads the old one goes on to do so. Who waits for its lock will find that it has lost its name; who opens the new
        one before its name is durable waits for this, since a file that is made is locked.
        """
        fs, at = self._place.fs, self._place.at
        temporary = self._file + TEMPORARY
        with suppress(FileNotFoundError):  # of one who died over this: the name is ours, for the session is locked
            fs.remove(temporary, at)
        try:
            fd = fs.create(temporary, at)
            try:
                place, checksum = 0, 0
                for head, bodies in self._pieces(held):
                    data, _, checksum = pack_frame(place, checksum, head, bodies)
                    fs.write(fd, data)
                    place += len(data)
                fs.sync(fd)
                fs.replace(temporary, self._file, at)
                fs.sync_folder(at)
            finally:
                fs.close(fd)
        except OSError:
            with suppress(OSError):
                fs.remove(temporary, at)
            raise

    def _pieces(self, held: Open) -> Iterator[tuple[Head, list[bytes]]]:
        contents = held.contents
        mark = None if contents.mark is None else (contents.mark.redactions, contents.mark.salt)
        for _ in range(2):
            yield Head(begin=self._begin(contents), mark=mark, masks=contents.masks or None), []
        for number, line in contents.lines.items():
            start = 0
            while start < len(line):
                stop, size = start, 0
                while stop < len(line) and line.offsets[stop] and stop - start < _TOGETHER and size < _PIECE:
                    size += line.sizes[stop]
                    stop += 1
                if stop > start:
                    sizes = line.sizes[start:stop]
                    run = self.bodies_at(held, line.offsets[start:stop], sizes)
                    yield Head(lines=[(number, start, stop - start)], sizes=list(sizes)), run
                start = max(stop, start + 1)
            if len(line) and not line.offsets[-1]:
                yield Head(lines=[(number, len(line), 0)]), []
        for address, (offset, size) in contents.blobs.items():
            yield Head(blobs=[address], sizes=[size]), self.bodies_at(held, [offset], [size])
        rows = contents.ordered()
        for first in range(0, len(rows), _ROWS_TOGETHER):
            chunk = rows[first : first + _ROWS_TOGETHER]
            yield Head(rows=[(row.snapshot_id, row.revision, row.record) for row in chunk]), []

    def _erase(self) -> None:
        fs, at = self._place.fs, self._place.at
        with suppress(FileNotFoundError):
            fs.remove(self._file + TEMPORARY, at)
        fs.remove(self._file, at)
        fs.sync_folder(at)
        if self._held is not None:
            try:
                self._indexed().remove(self._place, self._key, self._held.contents.uid)
            except (OSError, SessionStoreError) as error:  # what the index says too much costs a look, no more
                _log.warning("%s: %s", self._place.path(INDEX), error)

    def _write_note(self, name: str, value: bytes | None) -> None:
        fs, at = self._place.fs, self._place.at
        if value is not None:
            write_whole(fs, at, note_file(name), pack_note(name, value))
            return
        with suppress(FileNotFoundError):
            fs.remove(note_file(name), at)
        fs.sync_folder(at)
