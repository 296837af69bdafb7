"""A session as a tree of snapshots, read from storage alone."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import msgspec

from antiphon.session.layout import NAMESPACE, AgentKeys
from antiphon.storage.base import Storage
from antiphon.storage.namespace import resolve_namespace

_READS = 8  # at once


@dataclass(frozen=True, slots=True)
class SnapshotNode:
    """A stored snapshot, without its data.

    Attributes:
        snapshot_id: What `restore_snapshot` takes; None for the latest snapshot, which is overwritten.
        parent_id: The immutable snapshot that it descends from; None for a root, and in folders that Strands wrote.
        created_at: When it was taken: UTC ISO-8601; empty when it is damaged.
        message_count: Messages in its history.
        last_words: The text of the last message that has any.
        size: Bytes at rest.
        damaged: Whether it could not be read; all but the ids and the size is missing then.
    """

    snapshot_id: str | None
    parent_id: str | None = None
    created_at: str = ""
    message_count: int = 0
    last_words: str = ""
    size: int = 0
    damaged: bool = False


@dataclass(frozen=True, slots=True)
class SessionTree:
    """The snapshots of one agent in one session.

    Attributes:
        session_id: The session.
        agent_id: The agent.
        nodes: The immutable snapshots, oldest first.
        latest: The one that the next process goes on from; None when there is none.
    """

    session_id: str
    agent_id: str
    nodes: tuple[SnapshotNode, ...]
    latest: SnapshotNode | None

    def roots(self) -> list[SnapshotNode]:
        """The immutable snapshots without a parent that is there, oldest first."""
        known = {node.snapshot_id for node in self.nodes}
        return [node for node in self.nodes if node.parent_id not in known]

    def children(self, snapshot_id: str) -> list[SnapshotNode]:
        """The immutable snapshots that descend directly from one, oldest first."""
        return [node for node in self.nodes if node.parent_id == snapshot_id]


async def read_tree(storage: Storage, session_id: str, agent_id: str = "default") -> SessionTree:
    """Read the tree of an agent's snapshots. No agent is made, and nothing is written.

    Args:
        storage: As the session manager was given: the whole, or a namespaced view.
        session_id: The session.
        agent_id: The agent.

    Raises:
        InvalidIdError: If an id cannot name anything.
        StorageError: If the storage cannot be read.
    """
    keys = AgentKeys(session_id, agent_id)
    place = resolve_namespace(storage, NAMESPACE)
    gate = asyncio.Semaphore(_READS)

    async def read(key: str, snapshot_id: str | None) -> SnapshotNode | None:
        async with gate:
            data = await place.read(key)
        return None if data is None else _node(snapshot_id, data)

    found = sorted(
        (snapshot_id, key)
        for key in await place.list(keys.history)
        if (snapshot_id := keys.snapshot_id(key)) is not None
    )
    latest, *nodes = await asyncio.gather(
        read(keys.latest, None), *(read(key, snapshot_id) for snapshot_id, key in found)
    )
    return SessionTree(session_id, agent_id, tuple(node for node in nodes if node is not None), latest)


class _Block(msgspec.Struct, frozen=True):
    text: str | None = None


class _Message(msgspec.Struct, frozen=True):
    content: list[_Block] = []


class _Data(msgspec.Struct, frozen=True):
    messages: list[_Message] = []


class _Envelope(msgspec.Struct, frozen=True):
    data: _Data
    created_at: str = ""
    parent_id: str | None = None


_DECODER = msgspec.json.Decoder(_Envelope)


def _node(snapshot_id: str | None, data: bytes) -> SnapshotNode:
    try:
        envelope = _DECODER.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return SnapshotNode(snapshot_id, size=len(data), damaged=True)
    messages = envelope.data.messages
    spoken = ("\n".join(block.text for block in message.content if block.text) for message in reversed(messages))
    return SnapshotNode(
        snapshot_id,
        envelope.parent_id,
        envelope.created_at,
        len(messages),
        next((words for words in spoken if words), ""),
        len(data),
    )
