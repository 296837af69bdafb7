"""What a store remembers of rows that it read or wrote lately, so that the next save need not ask for them.

Nothing here is ever shown to a reader, and nothing that was built on it is written unless the store finds, within the change
itself, that it is still so.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from antiphon.store.messages import Origin, StoredMessages
from antiphon.store.record import Row

_ROW_BYTES = 1_000  # of a row beside its parts: a guess
_ROW_COUNTS = 8  # what a remembered list counts beside its messages: an empty one takes room too


@dataclass(frozen=True, slots=True)
class Footing:
    """A row as it was when it was last seen, to be built on.

    Attributes:
        row: The row.
        redactions: How many its session had seen.
        parts: Its parts in JSON, large ones resolved; None where nobody will grow it.
    """

    row: Row
    redactions: int
    parts: dict[str, bytes] | None = None

    @property
    def weight(self) -> int:
        """Bytes that it takes, about."""
        held = sum(map(len, self.row.record.parts.values()))
        return _ROW_BYTES + held + sum(map(len, (self.parts or {}).values()))


class KnownRows:
    """The messages of rows, and what the next save may build on.

    A row's state never changes under one `Origin`, so messages cannot be out of date; a `Footing` can, and so can what is
    remembered of where a line ends. Lists of successive rows share their messages, and rows of one line its end: whoever
    lets it grow, all branches know.

    Args:
        most: How many messages may be held, shared ones counted each time; the newest row's always are.
        most_bytes: How many bytes of footings may be held.
        most_ends: How many lines' ends may be held.
        most_text: How many bytes of messages, as JSON, may be held; otherwise as `most`. Fewer messages than that fit where
            they hold pictures or sound.
    """

    def __init__(
        self, most: int = 200_000, most_bytes: int = 16 << 20, most_ends: int = 16_384, most_text: int = 256 << 20
    ) -> None:
        self._most, self._held = most, 0
        self._most_text, self._text = most_text, 0
        self._most_bytes, self._bytes = most_bytes, 0
        self._most_ends = most_ends
        self._rows: OrderedDict[Origin, tuple[StoredMessages, int]] = OrderedDict()
        self._footings: OrderedDict[tuple[str, str], Footing] = OrderedDict()
        self._ends: OrderedDict[tuple[str, str, int], int] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, origin: Origin) -> StoredMessages | None:
        """The messages of a row in this very state."""
        with self._lock:
            found = self._rows.get(origin)
            if found is None:
                return None
            self._rows.move_to_end(origin)
            return found[0]

    def size(self, origin: Origin, kept: int) -> int:
        """About how many bytes of JSON so many of a row's messages have; 0 for a row that is not remembered."""
        with self._lock:
            messages, size = self._rows.get(origin, ((), 0))
            return size * min(kept, len(messages)) // len(messages) if messages else 0

    def put(self, origin: Origin, messages: StoredMessages, size: int = 0) -> None:
        """Remember them, with the bytes that they have as JSON; 0: as many as were told before."""
        with self._lock:
            before = self._gone(origin)
            self._rows[origin] = messages, size or before
            self._held += len(messages) + _ROW_COUNTS
            self._text += size or before
            while (self._held > self._most or self._text > self._most_text) and len(self._rows) > 1:
                self._gone(next(iter(self._rows)))

    def footing(self, tenant: str, snapshot_id: str) -> Footing | None:
        """A row as it was seen last."""
        with self._lock:
            found = self._footings.get((tenant, snapshot_id))
            if found is not None:
                self._footings.move_to_end((tenant, snapshot_id))
            return found

    def end(self, tenant: str, row: Row) -> int | None:
        """How long the line of a row's last span was when it was last seen; 0 for a row without messages."""
        spans = row.record.spans
        if not spans:
            return 0
        with self._lock:
            return self._ends.get((tenant, row.session_id, spans[-1].line))

    def see(self, tenant: str, footing: Footing, end: int | None) -> None:
        """Remember a row as it is now, and where its last line ends where that is known."""
        key = tenant, footing.row.snapshot_id
        with self._lock:
            before = self._footings.pop(key, None)
            if before is not None:
                self._bytes -= before.weight
                if footing.parts is None and before.row.revision == footing.row.revision:
                    footing = replace(footing, parts=before.parts)
            self._bytes += footing.weight
            self._footings[key] = footing
            while self._bytes > self._most_bytes and len(self._footings) > 1:
                self._bytes -= self._footings.popitem(last=False)[1].weight
            spans = footing.row.record.spans
            if end is not None and spans:
                line = tenant, footing.row.session_id, spans[-1].line
                self._ends[line] = end
                self._ends.move_to_end(line)
                if len(self._ends) > self._most_ends:
                    self._ends.popitem(last=False)

    def forget(self, origins: Iterable[Origin] | None = None) -> None:
        """Let go of these messages; without `origins`, of everything."""
        with self._lock:
            if origins is None:
                self._footings.clear()
                self._ends.clear()
                self._bytes = 0
            for origin in list(self._rows) if origins is None else origins:
                self._gone(origin)

    def _gone(self, origin: Origin) -> int:
        """Let go of a row's messages, and say what they weighed."""
        found = self._rows.pop(origin, None)
        if found is None:
            return 0
        messages, size = found
        self._held -= len(messages) + _ROW_COUNTS
        self._text -= size
        return size
