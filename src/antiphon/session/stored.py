"""What a snapshot and a journal are at rest: bytes, and what is told beside the agent's own data.

Beside `data`, a stored snapshot tells

- `parent_id`: the immutable snapshot that it descends from;
- `journal_mark`: how many lines of the journal it has already (`conversation.journal`);
- `line`: its line of descent, which changes when an earlier snapshot is restored. A journal of another line is not about
  this history.

Strands neither writes these keys nor minds them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from antiphon.conversation.journal import Journal
from antiphon.errors import CorruptSnapshotError, NotJsonError, SnapshotException
from antiphon.jsonable import copy_json, decode_json, encode_json
from antiphon.snapshot.checks import check_message
from antiphon.snapshot.envelope import SCHEMA_VERSION, Snapshot, encode_snapshot_parts

_REMEDY = (
    "to go on, make the agent without its session manager, `restore_snapshot` an id of `list_snapshot_ids` into it and save "
    "it with `save_snapshot(agent, is_latest=True)`; or delete the damaged blob"
)


@dataclass(frozen=True, slots=True)
class Lineage:
    """Where a state comes from.

    Attributes:
        parent_id: The immutable snapshot that it descends from.
        line: Its line of descent.
    """

    parent_id: str | None = None
    line: str | None = None


class StoredHead(msgspec.Struct, frozen=True):
    """What is told of a stored snapshot beside its data."""

    created_at: str = ""
    parent_id: str | None = None
    journal_mark: int = 0
    line: str | None = None


@dataclass(frozen=True, slots=True)
class StoredSnapshot:
    """A snapshot that was read, and what was told beside it."""

    snapshot: Snapshot
    lineage: Lineage
    mark: int


def snapshot_parts(snapshot: Snapshot, messages: Sequence[bytes], lineage: Lineage, mark: int) -> list[bytes]:
    """A snapshot as it lies at rest, in pieces.

    Args:
        snapshot: The agent's data, without messages.
        messages: The messages, each as one JSON object.
        lineage: Where it comes from.
        mark: The journal's mark at the moment of the capture.
    """
    parts = encode_snapshot_parts(snapshot, messages, parent_id=lineage.parent_id)
    beside: dict[str, Any] = {"journal_mark": mark}
    if lineage.line is not None:
        beside["line"] = lineage.line
    parts[-1] = parts[-1].removesuffix(b"}") + b"," + encode_json(beside)[1:]
    return parts


def read_snapshot(key: str, data: bytes) -> StoredSnapshot:
    """The snapshot in `data`, which lies at `key`.

    Raises:
        CorruptSnapshotError: If it is cut short or overwritten.
        SnapshotException: If it is whole, but not one that this version can read.
    """
    try:
        snapshot = Snapshot.from_json(data)
        head = msgspec.json.decode(data, type=StoredHead)
    except SnapshotException as error:
        raise located(error, key) from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise located(CorruptSnapshotError(f"Failed to deserialize snapshot: {error}"), key) from error
    return StoredSnapshot(snapshot, Lineage(head.parent_id, head.line), max(0, head.journal_mark))


def located(error: SnapshotException, key: str) -> SnapshotException:
    """The same error, with the blob's key, and for damaged ones what to do."""
    if isinstance(error, CorruptSnapshotError):
        return CorruptSnapshotError(f"{key!r}: {error}: {_REMEDY}")
    return SnapshotException(f"{key!r}: {error}")


def journal_data(journal: Journal) -> dict[str, Any]:
    """A journal as checked data of its own.

    Raises:
        SnapshotException: If a value in it is not JSON.
    """
    try:
        data: dict[str, Any] = copy_json(journal.to_dict(), "journal")
    except NotJsonError as error:
        raise SnapshotException(str(error)) from error
    return data


def journal_bytes(journal: dict[str, Any], line: str | None) -> bytes:
    """A journal (`journal_data`) as it lies in a blob."""
    return encode_json({"schema_version": SCHEMA_VERSION, "line": line, **journal})


def read_journal(key: str, data: bytes) -> tuple[Journal, str | None]:
    """The journal in `data`, which lies at `key`, and its line of descent.

    Raises:
        CorruptSnapshotError: If it cannot be read: the history beside it is not touched by that.
    """
    try:
        entry = decode_json(data)
    except ValueError as error:
        raise CorruptSnapshotError(f"{key!r}: {error}") from error
    journal = checked_journal(key, entry)
    if (version := entry.get("schema_version", SCHEMA_VERSION)) != SCHEMA_VERSION:
        raise CorruptSnapshotError(
            f"{key!r}: a journal of schema {version!r}, and this version reads {SCHEMA_VERSION!r}"
        )
    line = entry.get("line")
    return journal, line if isinstance(line, str) else None


def checked_journal(name: str, entry: object) -> Journal:
    """The journal that `journal_data` gave.

    Args:
        name: Where it was found, for the error.
        entry: What was found.

    Raises:
        CorruptSnapshotError: If it is something else.
    """
    try:
        journal = Journal.from_dict(entry)
        for index, message in enumerate(journal.lines):
            check_message(message, f"lines[{index}]")
        for index, call in enumerate(journal.calls):
            check_message({"role": "assistant", "content": [{"toolUse": call.tool_use}]}, f"calls[{index}]")
            if call.result is not None:
                check_message({"role": "user", "content": [{"toolResult": call.result}]}, f"calls[{index}]")
    except ValueError as error:  # SnapshotException is one
        raise CorruptSnapshotError(f"{name!r}: {error}") from error
    return replace(journal, mark=max(0, journal.mark))
