"""A session as a tree of snapshots, read from a storage or store alone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from antiphon.clock import iso_utc
from antiphon.content import Message, text_of
from antiphon.errors import CorruptStoreError, NotSupportedError, SnapshotException
from antiphon.ids import check_id
from antiphon.session.layout import NAMESPACE, AgentKeys
from antiphon.storage.base import Storage
from antiphon.storage.namespace import resolve_namespace
from antiphon.store.base import SessionCatalogue, SessionSnapshot, SessionStore

_READS = 8  # at once
_PAGE = 1000


@dataclass(frozen=True, slots=True)
class SnapshotNode:
    """A stored snapshot, without its data.

    Attributes:
        snapshot_id: What `restore_snapshot` takes; None for the latest snapshot in a storage, which is overwritten.
        parent_id: The immutable snapshot that it descends from; None for a root, and in folders that Strands wrote.
        created_at: When it was taken: UTC ISO-8601; empty when it is damaged.
        message_count: Messages in its history.
        last_words: The text of the last message that has any.
        size: Bytes at rest; 0 in a store, whose rows share what they hold.
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
        nodes: The immutable snapshots, oldest first; in a store all rows but the newest, while that may still grow.
        latest: The one that the next process goes on from; None when there is none. In a store it may be the last of
            `nodes`.
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


async def read_tree(place: Storage | SessionStore, session_id: str, agent_id: str = "default") -> SessionTree:
    """Read the tree of an agent's snapshots. No agent is made, and nothing is written.

    Args:
        place: As the session manager was given: a storage, the whole or a namespaced view, or a session store.
        session_id: The session.
        agent_id: The agent.

    Raises:
        InvalidIdError: If an id cannot name anything.
        NotSupportedError: If a store cannot list its rows.
        StorageError: If the storage cannot be read.
        SessionStoreError: If the store cannot be read.
    """
    if isinstance(place, SessionStore):
        return await _read_rows(place, session_id, agent_id)
    return await _read_blobs(place, session_id, agent_id)


async def _read_rows(store: SessionStore, session_id: str, agent_id: str) -> SessionTree:
    check_id("agent_id", agent_id)
    if not isinstance(store, SessionCatalogue):
        raise NotSupportedError(f"{type(store).__name__} cannot list its rows: it is no SessionCatalogue")
    found: list[SessionSnapshot] = []
    cursor: str | None = None
    while True:
        page = await store.list_snapshots(session_id, limit=_PAGE, cursor=cursor, agent_id=agent_id)
        found += page.snapshots
        cursor = page.cursor
        if cursor is None:
            break
    gate = asyncio.Semaphore(_READS)

    async def read(row: SessionSnapshot) -> SnapshotNode:
        try:
            async with gate:
                whole = await store.get_snapshot(row.snapshot_id)
        except (CorruptStoreError, SnapshotException):
            return SnapshotNode(row.snapshot_id, row.parent_id, iso_utc(row.created_at), damaged=True)
        messages: Sequence[Message] = []
        if whole is not None and whole.snapshot is not None:
            messages = whole.snapshot.data.get("messages") or []
        return SnapshotNode(
            row.snapshot_id, row.parent_id, iso_utc(row.created_at), len(messages), _last_words(messages)
        )

    nodes = await asyncio.gather(*(read(row) for row in reversed(found)))
    if not nodes:
        return SessionTree(session_id, agent_id, (), None)
    grows = found[0].owner is not None
    return SessionTree(session_id, agent_id, tuple(nodes[:-1] if grows else nodes), nodes[-1])


def _last_words(messages: Sequence[Message]) -> str:
    for index in range(len(messages) - 1, -1, -1):
        try:
            words = text_of(messages[index])
        except (KeyError, TypeError):  # a row may hold what no agent of ours has written
            continue
        if words:
            return words
    return ""


async def _read_blobs(storage: Storage, session_id: str, agent_id: str) -> SessionTree:
    keys = AgentKeys(session_id, agent_id)
    space = resolve_namespace(storage, NAMESPACE)
    gate = asyncio.Semaphore(_READS)

    async def read(key: str, snapshot_id: str | None) -> SnapshotNode | None:
        async with gate:
            data = await space.read(key)
        return None if data is None else _node(snapshot_id, data)

    found = sorted(
        (snapshot_id, key)
        for key in await space.list(keys.history)
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
