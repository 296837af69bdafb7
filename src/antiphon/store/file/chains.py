"""Chains of rows that are kept short."""

from __future__ import annotations

from collections.abc import Mapping

from antiphon.store.record import Row
from antiphon.store.retention import protected


def beyond(rows: Mapping[str, Row], snapshot_id: str, most: int) -> list[str]:
    """Ancestors of a row that may go when only the row and the next `most` - 1 above it are to stay.

    What pruning never removes stays here too (`retention.protected`). A chain that runs in a circle, or to a row that is
    gone, ends there.

    Args:
        rows: All rows of the session, by id.
        snapshot_id: The row that was just written.
        most: How many may stay; at least 1.
    """
    chain: list[str] = []
    seen: set[str] = set()
    at: str | None = snapshot_id
    while at is not None and at not in seen and at in rows:
        seen.add(at)
        chain.append(at)
        at = rows[at].record.parent_id
    if len(chain) <= most:
        return []
    kept = protected(list(rows.values()))
    return [each for each in chain[most:] if each not in kept]
