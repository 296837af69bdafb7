"""Putting an agent back to what is at rest."""

from __future__ import annotations

import logging
from dataclasses import replace

from antiphon.content import Messages
from antiphon.conversation.journal import Journal
from antiphon.errors import SnapshotException
from antiphon.local_agent import LocalAgent
from antiphon.session.stored import located
from antiphon.session.target import Found

_log = logging.getLogger(__name__)


def restore_latest(agent: LocalAgent, found: Found) -> None:
    """Load the latest snapshot and the journal beside it, as far as they are there.

    Raises:
        SnapshotException: If it cannot be loaded; nothing was changed then.
        AgentStateError: If the agent is active.
    """
    saved: Messages = []
    if found.snapshot is not None:
        _load(agent, found)
        saved = list(agent.messages)
    journal = found.journal
    if agent.model.stateful:
        # Its provider has the words; a prompt that waits for an open turn it does not have yet.
        passed = len(journal.lines) - len(journal.turn)
        journal = replace(journal, mark=journal.mark + passed, lines=journal.lines[passed:])
    agent.load_journal(journal)
    found.restored(saved)


def restore_checkpoint(agent: LocalAgent, found: Found) -> None:
    """Load a checkpoint. What was open then, or is open now, is let go of.

    Raises:
        SnapshotException: If it cannot be loaded; nothing was changed then.
        AgentStateError: If the agent is active.
    """
    mark = max(found.journal.mark, agent.take_journal().mark)
    _load(agent, found)
    agent.load_journal(Journal(mark=mark))
    found.restored(list(agent.messages))


def _load(agent: LocalAgent, found: Found) -> None:
    snapshot = found.snapshot
    if snapshot is None:
        return
    if agent.model.stateful and snapshot.data.get("messages"):
        _log.warning("%s: the model keeps the history on its side; restored messages are dropped", found.name)
        snapshot = replace(snapshot, data={**snapshot.data, "messages": []})
    elif snapshot.data.get("model_state") and not agent.model.stateful:
        _log.warning(
            "%s: the session's model kept the history on its side; this one is told the newest messages only",
            found.name,
        )
    try:
        agent.load_snapshot(snapshot)
    except SnapshotException as error:
        raise located(error, found.name) from error
