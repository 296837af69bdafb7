"""Which rows may go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from antiphon.store.base import IN_FLIGHT
from antiphon.store.lines import covered
from antiphon.store.record import Row, address_in


def protected(rows: Sequence[Row]) -> set[str]:
    """Ids of rows that are never pruned.

    Of each agent the newest, and the newest that one can resume from (settled, and with a state); those with several
    children, where branches part; those with an owner, which somebody still writes; those in flight, and what is above
    them up to the first that one can resume from: a dead worker's run is taken up again there.
    """
    ordered = sorted(rows, key=lambda row: row.recency)
    children = Counter(row.record.parent_id for row in rows)
    newest = {row.record.agent_id: row.snapshot_id for row in ordered}
    resumable = {row.record.agent_id: row.snapshot_id for row in ordered if _can_resume(row)}
    kept = {*newest.values(), *resumable.values()}
    kept |= {row.snapshot_id for row in rows if children[row.snapshot_id] > 1 or row.record.owner is not None}
    by_id = {row.snapshot_id: row for row in rows}
    for row in rows:
        if row.record.status in IN_FLIGHT:
            kept |= _way_back(row, by_id)
    return kept


def _can_resume(row: Row) -> bool:
    return row.record.status not in IN_FLIGHT and row.record.envelope is not None


def _way_back(row: Row, by_id: Mapping[str, Row]) -> set[str]:
    """A row in flight and its ancestors, up to the first that one can resume from; all of them, if there is none."""
    way: set[str] = set()
    at: Row | None = row
    while at is not None and at.snapshot_id not in way:
        way.add(at.snapshot_id)
        if _can_resume(at):
            break
        at = None if at.record.parent_id is None else by_id.get(at.record.parent_id)
    return way


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
