"""Which rows may go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from antiphon.store.base import IN_FLIGHT
from antiphon.store.lines import covered
from antiphon.store.record import Row, address_in


def protected(rows: Sequence[Row]) -> set[str]:
    """Ids of rows that are never pruned.

    The newest; the newest that one can resume from (settled, and with a state); those with several children, where
    branches part; those in flight and their parents, from which a dead worker's run is taken up again.
    """
    ordered = sorted(rows, key=lambda row: row.recency)
    children = Counter(row.record.parent_id for row in rows)
    in_flight = [row for row in rows if row.record.status in IN_FLIGHT]
    resumable = [row for row in ordered if row.record.status not in IN_FLIGHT and row.record.envelope is not None]
    kept = {row.snapshot_id for row in (*ordered[-1:], *resumable[-1:], *in_flight)}
    kept |= {row.record.parent_id for row in in_flight if row.record.parent_id is not None}
    kept |= {row.snapshot_id for row in rows if children[row.snapshot_id] > 1}
    return kept


def removable(rows: Sequence[Row], *, keep: int | None, older_than: int | None) -> list[Row]:
    """Rows that may be removed by number and age, oldest first."""
    ordered = sorted(rows, key=lambda row: row.recency)
    kept = protected(rows)
    old = ordered[: max(0, len(ordered) - keep)] if keep is not None else ordered
    return [
        row for row in old if row.snapshot_id not in kept and (older_than is None or row.record.created_at < older_than)
    ]


def to_fit(
    rows: Sequence[Row],
    candidates: Sequence[Row],
    max_bytes: int,
    sizes: Callable[[int, int, int], int],
    blob: Callable[[bytes], int],
) -> list[Row]:
    """The first of `candidates` without which the others take at most `max_bytes`; all of them, if that is not enough.

    Args:
        rows: All rows of the session.
        candidates: Those that may go, oldest first.
        max_bytes: How much may be left.
        sizes: Bytes of the messages of a line from a position to another.
        blob: Bytes of a blob.
    """

    def total(gone: int) -> int:
        removed = {row.snapshot_id for row in candidates[:gone]}
        left = [row for row in rows if row.snapshot_id not in removed]
        held = covered(row.record.spans or () for row in left)
        messages = sum(sizes(line, start, stop) for line, parts in held.items() for start, stop in parts)
        return messages + parts_bytes(left, blob)

    low, high = 0, len(candidates)  # what is left never grows when one more goes
    while low < high:
        middle = (low + high) // 2
        if total(middle) <= max_bytes:
            high = middle
        else:
            low = middle + 1
    return list(candidates[:low])


def parts_bytes(rows: Iterable[Row], blob: Callable[[bytes], int]) -> int:
    """Bytes of the parts of rows; one that is stored once is counted once."""
    shared: set[bytes] = set()
    own = 0
    for row in rows:
        for stored in row.record.parts.values():
            address = address_in(stored)
            if address is None:
                own += len(stored)
            else:
                shared.add(address)
    return own + sum(blob(address) for address in shared)
