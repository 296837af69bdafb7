"""Where a session's blobs lie, in Strands' layout and ours.

Below the namespace `session/`::

    <session_id>/scopes/agent/<agent_id>/snapshots/snapshot_latest.json
    <session_id>/scopes/agent/<agent_id>/snapshots/immutable_history/snapshot_<uuid7>.json
    <session_id>/scopes/agent/<agent_id>/snapshots/open.json        the journal; not in Strands' layout
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from antiphon.errors import InvalidInputError
from antiphon.ids import check_id, is_uuid7

NAMESPACE = "session"
_IMMUTABLE = re.compile(r"\Asnapshot_([0-9a-f-]{36})\.json\Z")


@dataclass(frozen=True, slots=True)
class AgentKeys:
    """The keys of one agent in one session.

    Attributes:
        session_id: The session.
        agent_id: The agent.

    >>> AgentKeys("talk", "default").latest
    'talk/scopes/agent/default/snapshots/snapshot_latest.json'
    """

    session_id: str
    agent_id: str

    def __post_init__(self) -> None:
        check_id("session_id", self.session_id)
        check_id("agent_id", self.agent_id)

    @property
    def folder(self) -> str:
        """The prefix of everything of this agent, with a slash at its end."""
        return f"{session_prefix(self.session_id)}scopes/agent/{self.agent_id}/snapshots/"

    @property
    def latest(self) -> str:
        """The snapshot that is overwritten."""
        return f"{self.folder}snapshot_latest.json"

    @property
    def journal(self) -> str:
        """What is open beside it."""
        return f"{self.folder}open.json"

    @property
    def history(self) -> str:
        """The prefix of the immutable snapshots, with a slash at its end."""
        return f"{self.folder}immutable_history/"

    def immutable(self, snapshot_id: str) -> str:
        """The key of an immutable snapshot.

        Raises:
            InvalidInputError: If the id is not a UUID version 7 in lower case.
        """
        return f"{self.history}snapshot_{checked_snapshot_id(snapshot_id)}.json"

    def snapshot_id(self, key: str) -> str | None:
        """The id in a key of an immutable snapshot; None for any other key."""
        found = _IMMUTABLE.match(key.removeprefix(self.history)) if key.startswith(self.history) else None
        return found[1] if found is not None and is_uuid7(found[1]) else None


def session_prefix(session_id: str) -> str:
    """The prefix of everything of a session, with a slash at its end."""
    return f"{check_id('session_id', session_id)}/"


def checked_snapshot_id(snapshot_id: object) -> str:
    """`snapshot_id`, when it is one.

    Raises:
        InvalidInputError: If it is not a UUID version 7 in lower case.
    """
    if not isinstance(snapshot_id, str) or not is_uuid7(snapshot_id):
        raise InvalidInputError(f"{snapshot_id!r} is not a valid snapshot id: take one from list_snapshot_ids")
    return snapshot_id
