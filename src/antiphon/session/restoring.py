"""Putting an agent back to what is at rest."""

from __future__ import annotations

import logging
from dataclasses import replace

from antiphon.content import Messages
from antiphon.conversation.journal import Journal
from antiphon.errors import SnapshotException
from antiphon.ids import new_uuid7
from antiphon.local_agent import LocalAgent
from antiphon.session.keeper import Keeper
from antiphon.session.stored import Lineage, StoredSnapshot, located, read_journal, read_snapshot

_log = logging.getLogger(__name__)


def restore_latest(
    agent: LocalAgent, keeper: Keeper, latest: bytes | None, open_lines: bytes | None
) -> SnapshotException | None:
    """Load the latest snapshot and the journal beside it, as far as they are there.

    Returns:
        What is wrong with the journal, when it is damaged. It is left aside then: the history is whole without it.

    Raises:
        CorruptSnapshotError: If the snapshot is damaged.
        SnapshotException: If it cannot be loaded.
        AgentStateError: If the agent is active.
    """
    keys = keeper.writer.keys
    lineage, mark = Lineage(), 0
    saved: Messages = []
    if latest is not None:
        stored = read_snapshot(keys.latest, latest)
        _load(agent, stored, keys.latest)
        lineage, mark, saved = stored.lineage, stored.mark, list(agent.messages)
    damage: SnapshotException | None = None
    journal, at_rest, is_open = Journal(mark=mark), None, False
    if open_lines is not None:
        try:
            found, line = read_journal(keys.journal, open_lines)
        except SnapshotException as error:
            _log.error("session %r: a damaged journal is left aside: %s", keys.session_id, error)
            damage, is_open = error, True
        else:
            is_open = not found.empty
            if line == lineage.line:
                journal, at_rest = found.settled(mark), open_lines
            else:  # of a history that was rewound since
                journal = Journal(mark=max(mark, found.mark + len(found.lines)))
    if agent.model.stateful:
        journal = replace(journal, mark=journal.mark + len(journal.lines), lines=())
    agent.load_journal(journal)
    keeper.restored(lineage, saved, at_rest, is_open=is_open)
    keeper.seen.note(agent.messages)
    return damage


def restore_checkpoint(agent: LocalAgent, keeper: Keeper, snapshot_id: str, data: bytes) -> None:
    """Load an immutable snapshot. What was open then, or is open now, is let go of.

    Raises:
        SnapshotException: If it is damaged or cannot be loaded.
        AgentStateError: If the agent is active.
    """
    key = keeper.writer.keys.immutable(snapshot_id)
    stored = read_snapshot(key, data)
    mark = max(stored.mark, agent.take_journal().mark)
    _load(agent, stored, key)
    agent.load_journal(Journal(mark=mark))
    # A line of its own: whatever journal is at rest is not about this history.
    keeper.restored(Lineage(snapshot_id, new_uuid7()), None, None)
    keeper.seen.note(agent.messages)


def _load(agent: LocalAgent, stored: StoredSnapshot, key: str) -> None:
    snapshot = stored.snapshot
    if agent.model.stateful and snapshot.data.get("messages"):
        _log.warning("%s: the model keeps the history on its side; restored messages are dropped", key)
        snapshot = replace(snapshot, data={**snapshot.data, "messages": []})
    try:
        agent.load_snapshot(snapshot)
    except SnapshotException as error:
        raise located(error, key) from error
