"""What a session's log says, in memory: rows as they are now, and where in the file each message stands."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from antiphon.store.backend import SessionMark
from antiphon.store.file.frames import HEADER, Frame, Gap
from antiphon.store.lines import covered
from antiphon.store.record import Row, addresses_in

ANY_AGENT = ""
"""Stands for all agents in `Contents.newest`; no agent has this id."""

_ROW_BYTES = 64  # of a row among several in one frame, beside its parts: a guess, for the account of dead bytes


class Line:
    """Where the messages of a line stand: parallel arrays. Offset 0 is a message that was swept, or is lost."""

    __slots__ = ("offsets", "sizes")

    def __init__(self) -> None:
        self.offsets = array("q")
        self.sizes = array("Q")

    def __len__(self) -> int:
        return len(self.offsets)

    def reach(self, length: int) -> None:
        """Make it at least this long."""
        missing = length - len(self.offsets)
        if missing > 0:
            self.offsets.extend([0] * missing)
            self.sizes.extend([0] * missing)

    def put(self, at: int, offset: int, size: int) -> None:
        """Say where a message stands."""
        self.reach(at + 1)
        self.offsets[at] = offset
        self.sizes[at] = size

    def keep(self, intervals: Sequence[tuple[int, int]]) -> int:
        """Forget everything outside of the intervals. Returns how many messages were forgotten."""
        self.reach(intervals[-1][1])
        before = len(self.offsets) - self.offsets.count(0)
        offsets, sizes = array("q", bytes(8 * intervals[-1][1])), array("Q", bytes(8 * intervals[-1][1]))
        for start, stop in intervals:
            offsets[start:stop] = self.offsets[start:stop]
            sizes[start:stop] = self.sizes[start:stop]
        self.offsets, self.sizes = offsets, sizes
        return before - (len(offsets) - offsets.count(0))


class Waste:
    """The account of what nobody needs any more in a log.

    Attributes:
        dead: About how many bytes, messages aside.
        dropped: How many rows were removed since somebody looked for messages that no row names.
        costs: How many bytes of the log each row takes.
    """

    __slots__ = ("costs", "dead", "dropped")

    def __init__(self) -> None:
        self.dead = 0
        self.dropped = 0
        self.costs: dict[str, int] = {}


class Contents:
    """A session.

    Attributes:
        begun: How many frames told what the first one tells.
        session_id: Its id; empty when none of those frames can be read.
        uid: See `frames.Begin`.
        mark: What is kept of it.
        masks: What was redacted.
        rows: By id.
        newest: The newest row, by agent and of all (`ANY_AGENT`).
        keys: Which row has an idempotency key.
        lines: By number.
        blobs: Where large bodies stand: offset and size, by address.
        last_line: No line has a greater number.
        is_named: Whether the log's name is known to be durable.
        lost: Damage that was found.
        waste: What nobody needs any more.
        order: What `ordered` gave, as long as it is right.
    """

    __slots__ = (
        *("begun", "blobs", "is_named", "keys", "last_line", "lines", "lost", "mark", "masks", "newest", "rows"),
        *("order", "session_id", "uid", "waste"),
    )

    def __init__(self) -> None:
        self.begun = 0
        self.session_id = ""
        self.uid = b""
        self.mark: SessionMark | None = None
        self.masks: dict[bytes, bytes] = {}
        self.rows: dict[str, Row] = {}
        self.newest: dict[str, Row] = {}
        self.keys: dict[str, str] = {}
        self.lines: dict[int, Line] = {}
        self.blobs: dict[bytes, tuple[int, int]] = {}
        self.last_line = 0
        self.is_named = False
        self.lost: list[tuple[int, int]] = []
        self.waste = Waste()
        self.order: list[Row] | None = None

    @property
    def weight(self) -> int:
        """How much memory it takes, in messages."""
        return 8 + sum(map(len, self.lines.values())) + 8 * len(self.rows) + 2 * len(self.blobs)

    def apply(self, found: Frame | Gap) -> None:
        """Take in what stands in the log next."""
        if isinstance(found, Gap):
            self.lost.append((found.start, found.stop))
            # A line that was opened there has a number that we do not know.
            self.last_line += 1 << 16
            return
        head = found.head
        begin = head.begin
        if begin is not None:
            self.call(begin.session_id)
            self.uid, self.last_line = begin.uid, max(begin.last_line, self.last_line)
            self.lost += [gap for gap in begin.lost if gap not in self.lost]
            self.begun += 1
        offset = found.body
        taken = 0
        for number, first, count in head.lines:
            line = self.lines.get(number)
            if line is None:
                line = self.line(number)
            sizes = head.sizes[taken : taken + count]
            if first != len(line.offsets):
                line.reach(first + count)
                for at, size in enumerate(sizes, first):
                    line.put(at, offset, size)
                    offset += size
            else:
                line.sizes.extend(sizes)
                for size in sizes:
                    line.offsets.append(offset)
                    offset += size
            taken += count
        if head.blobs:
            for address, size in zip(head.blobs, head.sizes[taken:], strict=True):
                self.blobs[address] = offset, size
                offset += size
        if head.dropped:  # before the rows: an id may be free at once
            self.drop_rows(head.dropped)
        cost = found.body - found.at if len(head.rows) == 1 else HEADER.size + _ROW_BYTES
        for snapshot_id, revision, record in head.rows:
            self.put_row(Row(snapshot_id, self.session_id, revision, record), cost)
        if head.mark is not None:
            self.mark = SessionMark(*head.mark)
        if head.masks is not None:
            self.masks = head.masks
        self.is_named = self.is_named or head.is_named

    def call(self, session_id: str) -> None:
        """Say whose log it is; it may not have told so far."""
        if self.session_id != session_id:
            self.session_id = session_id
            self.rows = {key: replace(row, session_id=session_id) for key, row in self.rows.items()}
            self._find_newest()

    def line(self, number: int) -> Line:
        """The line of this number, made if it is not there."""
        line = self.lines.get(number)
        if line is None:
            line = self.lines[number] = Line()
            self.last_line = max(self.last_line, number)
        return line

    def put_row(self, row: Row, cost: int = _ROW_BYTES) -> None:
        """Take in a row; `cost` is how many bytes of the log it takes."""
        before = self.rows.get(row.snapshot_id)
        if before is not None:
            self.waste.dead += self.waste.costs[row.snapshot_id] + self._parts(before, row)
            self._forget_key(before)
        self.rows[row.snapshot_id] = row
        self.waste.costs[row.snapshot_id] = cost
        record = row.record
        if record.idempotency_key is not None:
            self.keys[record.idempotency_key] = row.snapshot_id
        for span in record.spans or ():
            # What a row names is taken, although it may be lost: nothing else may ever stand there.
            line = self.lines.get(span.line)
            if line is None:
                line = self.line(span.line)
            if len(line.offsets) < span.stop:
                line.reach(span.stop)
        if before is not None and (row.recency < before.recency or record.agent_id != before.record.agent_id):
            self._find_newest()
        else:
            self._see_newest(row)
        if self.order is not None and (before is not None or row is not self.newest[ANY_AGENT]):
            self.order = None
        elif self.order is not None:
            self.order.append(row)

    def drop_rows(self, snapshot_ids: Sequence[str]) -> None:
        """Forget rows."""
        for snapshot_id in snapshot_ids:
            row = self.rows.pop(snapshot_id, None)
            if row is not None:
                self.waste.dropped += 1
                self.waste.dead += self.waste.costs.pop(snapshot_id)
                self._forget_key(row)
        self._find_newest()

    def ordered(self) -> list[Row]:
        """All rows, oldest first. Not to be changed."""
        if self.order is None:
            self.order = sorted(self.rows.values(), key=lambda row: row.recency)
        return self.order

    def keep_messages(self, kept: Mapping[int, Sequence[tuple[int, int]]]) -> int:
        """See `backend.Writing`."""
        forgotten = 0
        for number, line in list(self.lines.items()):
            intervals = kept.get(number)
            if not intervals:
                forgotten += len(line) - line.offsets.count(0)
                del self.lines[number]
            else:
                forgotten += line.keep(intervals)
        return forgotten

    def loose(self) -> int:
        """Bytes of messages that no row names."""
        held = covered(row.record.spans or () for row in self.rows.values())
        named = sum(sum(self.lines[number].sizes[a:b]) for number, parts in held.items() for a, b in parts)
        return sum(sum(line.sizes) for line in self.lines.values()) - named

    def _parts(self, before: Row, now: Row) -> int:
        """Bytes of large parts that a row had and has no more. Another row may have them too."""
        old, new = before.record.parts, now.record.parts
        if old is new or old == new:
            return 0
        gone = addresses_in(old.values()) - addresses_in(new.values())
        return sum(self.blobs[address][1] for address in gone if address in self.blobs)

    def _forget_key(self, row: Row) -> None:
        if row.record.idempotency_key is not None:
            self.keys.pop(row.record.idempotency_key, None)

    def _see_newest(self, row: Row) -> None:
        newest = self.newest
        known = newest.get(ANY_AGENT)
        if known is None or row.record.created_at > known.record.created_at or row.recency >= known.recency:
            newest[ANY_AGENT] = row
        agent = row.record.agent_id
        if agent is not None:
            known = newest.get(agent)
            if known is None or row.recency >= known.recency:
                newest[agent] = row

    def _find_newest(self) -> None:
        self.newest.clear()
        self.order = None
        for row in self.rows.values():
            self._see_newest(row)
