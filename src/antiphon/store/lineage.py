"""A session as a tree, and what is different in two of its rows: over any session store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from antiphon.errors import SnapshotNotFoundError
from antiphon.snapshot.diff import SnapshotDiff, diff_snapshots
from antiphon.store.base import SessionCatalogue, SessionSnapshot, SessionStore

PAGE = 1000
"""Rows that are asked for at once."""


@dataclass(frozen=True, slots=True)
class SnapshotTree:
    """What descends from what in a session.

    Attributes:
        session_id: The session.
        rows: Its rows without their state, oldest first.
        parents: By row, the parent under which it stands. A row without one is a root: it has no parent, that one is not
            there (any more), or it would descend from itself.
        descendants: By row, its children, oldest first; roots under None.
    """

    session_id: str
    rows: tuple[SessionSnapshot, ...]
    parents: Mapping[str, str]
    descendants: Mapping[str | None, tuple[SessionSnapshot, ...]]

    def roots(self) -> tuple[SessionSnapshot, ...]:
        """Rows that stand under no other, oldest first."""
        return self.descendants.get(None, ())

    def children(self, snapshot_id: str) -> tuple[SessionSnapshot, ...]:
        """Rows that descend directly from one, oldest first."""
        return self.descendants.get(snapshot_id, ())

    def leaves(self) -> tuple[SessionSnapshot, ...]:
        """Rows from which nothing descends, oldest first: the ends of the branches."""
        return tuple(row for row in self.rows if row.snapshot_id not in self.descendants)

    def path(self, snapshot_id: str) -> tuple[SessionSnapshot, ...]:
        """The rows from a root down to this one.

        Raises:
            SnapshotNotFoundError: If it is not in the tree.
        """
        by_id = {row.snapshot_id: row for row in self.rows}
        if snapshot_id not in by_id:
            raise SnapshotNotFoundError("snapshot", snapshot_id)
        path: list[SessionSnapshot] = []
        at: str | None = snapshot_id
        while at is not None:
            path.append(by_id[at])
            at = self.parents.get(at)
        return tuple(reversed(path))

    def walk(self) -> Iterator[tuple[int, SessionSnapshot]]:
        """Every row with its depth, parents first; what is drawn as an indented list."""
        waiting = [(0, row) for row in reversed(self.roots())]
        while waiting:
            depth, row = waiting.pop()
            yield depth, row
            waiting += [(depth + 1, child) for child in reversed(self.children(row.snapshot_id))]


def tree_of(session_id: str, rows: Iterable[SessionSnapshot]) -> SnapshotTree:
    """The tree of these rows, all of one session, in any order."""
    ordered = sorted(rows, key=lambda row: (row.created_at, row.snapshot_id))
    ranks = {row.snapshot_id: rank for rank, row in enumerate(ordered)}
    parents = {row.snapshot_id: row.parent_id for row in ordered if row.parent_id in ranks}
    seen: set[str] = set()
    for snapshot_id in ranks:
        trail: list[str] = []
        at: str | None = snapshot_id
        while at is not None and at not in seen:
            seen.add(at)
            trail.append(at)
            at = parents.get(at)
        if at is not None and at in trail:  # a circle: its oldest row becomes a root
            del parents[min(trail[trail.index(at) :], key=ranks.__getitem__)]
    descendants: dict[str | None, list[SessionSnapshot]] = {}
    for row in ordered:
        descendants.setdefault(parents.get(row.snapshot_id), []).append(row)
    return SnapshotTree(
        session_id, tuple(ordered), parents, {parent: tuple(children) for parent, children in descendants.items()}
    )


def difference(one: tuple[str, SessionSnapshot | None], other: tuple[str, SessionSnapshot | None]) -> SnapshotDiff:
    """What makes the state of one row of another's; each given with the id by which it was asked for.

    Raises:
        SnapshotNotFoundError: If one of them is not there.
    """
    for snapshot_id, row in (one, other):
        if row is None:
            raise SnapshotNotFoundError("snapshot", snapshot_id)
    return diff_snapshots(*(None if row is None else row.snapshot for _, row in (one, other)))


async def session_tree(store: SessionCatalogue, session_id: str) -> SnapshotTree:
    """A session as a tree; without rows when it is not there."""
    rows: list[SessionSnapshot] = []
    cursor: str | None = None
    while True:
        page = await store.list_snapshots(session_id, limit=PAGE, cursor=cursor)
        rows += page.snapshots
        cursor = page.cursor
        if cursor is None:
            return tree_of(session_id, rows)


async def snapshot_diff(store: SessionStore, one: str, other: str) -> SnapshotDiff:
    """What makes the state of the second row of the first one's; they may be of different sessions.

    Raises:
        SnapshotNotFoundError: If one of them is not there.
    """
    return difference((one, await store.get_snapshot(one)), (other, await store.get_snapshot(other)))
