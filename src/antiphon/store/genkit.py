"""Sessions that Genkit wrote to files, brought into any session store.

Genkit's file stores keep one JSON file for each snapshot, `<directory>/<prefix>/<snapshotId>.json`, and beside them pointers
(`.pointers`), which are not needed. Messages become messages of ours: `model` is `assistant`, a tool's answers stand in a
`user` message, and whatever has no block of ours is told in words and kept as it was under `metadata.genkit`.
"""

from __future__ import annotations

import binascii
import os
from base64 import b64decode
from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import msgspec

from antiphon.clock import iso_utc
from antiphon.errors import AntiphonError, SessionRowError, SessionStoreError
from antiphon.filesystem import OS
from antiphon.ids import check_id
from antiphon.iothread import run_in_worker
from antiphon.snapshot.envelope import Snapshot
from antiphon.snapshot.upgrade import SCHEMA_VERSION
from antiphon.store.base import STATUSES, SessionSnapshot, SessionStore, SnapshotStatus
from antiphon.store.tenants import check_tenant

_IMAGES = {"image/png": "png", "image/jpeg": "jpeg", "image/gif": "gif", "image/webp": "webp"}
_ROLES = {"user": "user", "model": "assistant", "tool": "user", "system": "user"}
_UNSET_YEAR = 1  # what Go writes for a time that was never set


@dataclass(frozen=True, slots=True)
class GenkitImport:
    """What came of an import.

    Attributes:
        snapshot_ids: Rows that were stored, oldest first.
        skipped: Files that were not, each with the reason.
    """

    snapshot_ids: tuple[str, ...]
    skipped: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class _Found:
    """A file that was understood. `stamp` orders what falls into one microsecond: Genkit keeps nanoseconds."""

    path: str
    row: SessionSnapshot
    stamp: str


class _Unreadable(ValueError):
    """A file is not a snapshot."""


async def import_genkit_folder(
    store: SessionStore, directory: str | os.PathLike[str], *, prefix: str = "global"
) -> GenkitImport:
    """Store every snapshot of a folder that a file store of Genkit wrote, with lineage, status and times.

    Rows that are there already are left as they are, so an import that was broken off can be repeated. Two rows of one
    session that were created in one microsecond are put one apart, in their order.

    Args:
        store: Where to; a view for a tenant when it is to be a tenant's (`store.for_tenant`).
        directory: Genkit's folder.
        prefix: Genkit's prefix, a path below it.

    Raises:
        SessionStoreError: If the folder cannot be read, or the store fails.
        SessionRowError: If the prefix is none.
    """
    found, skipped = await run_in_worker(_read_folder, os.fspath(directory), check_tenant(prefix))
    stored: list[str] = []
    for each in _apart(found):

        def put(there: SessionSnapshot | None, row: SessionSnapshot = each.row) -> SessionSnapshot | None:
            return row if there is None else None

        try:
            saved = await store.save_snapshot(each.row.snapshot_id, put)
        except AntiphonError as error:
            if isinstance(error, SessionStoreError) and not isinstance(error, SessionRowError):
                raise
            skipped.append((each.path, str(error)))
            continue
        if saved is None:
            skipped.append((each.path, "a snapshot of this id is there already"))
        else:
            stored.append(each.row.snapshot_id)
    return GenkitImport(tuple(stored), tuple(skipped))


def _read_folder(directory: str, prefix: str) -> tuple[list[_Found], list[tuple[str, str]]]:
    folder = os.path.join(os.path.abspath(directory), *prefix.split("/"))
    found: list[_Found] = []
    skipped: list[tuple[str, str]] = []
    try:
        at = OS.open_base(folder)
        try:
            for name, kind in sorted(OS.entries(at)):
                path = os.path.join(folder, name)
                if not name.endswith(".json") or name.startswith(".") or kind == "folder":
                    continue
                try:
                    row, stamp = parse_snapshot(OS.read(name, at), name.removesuffix(".json"))
                    found.append(_Found(path, row, stamp))
                except (ValueError, OSError) as error:
                    skipped.append((path, str(error)))
        finally:
            OS.close(at)
    except OSError as error:
        raise SessionStoreError(f"reading {folder!r} failed: {error.strerror}") from error
    return found, skipped


def _apart(found: list[_Found]) -> list[_Found]:
    """All rows, oldest first; those of a session at different times."""
    last: dict[str, datetime] = {}
    ordered: list[_Found] = []
    for each in sorted(found, key=lambda each: (each.row.created_at, each.stamp, each.row.snapshot_id)):
        row, before = each.row, last.get(each.row.session_id)
        if before is not None and row.created_at <= before:
            row = replace(row, created_at=before + timedelta(microseconds=1))
        last[row.session_id] = row.created_at
        ordered.append(replace(each, row=row))
    return ordered


def parse_snapshot(data: bytes, snapshot_id: str) -> tuple[SessionSnapshot, str]:
    """The row that a file of Genkit's holds, and the fraction of its second in full.

    Args:
        data: The file.
        snapshot_id: Its name without `.json`.

    Raises:
        ValueError: If it is not a snapshot, or of no session; says why.
    """
    try:
        raw: Any = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise _Unreadable(f"it is not JSON: {error}") from error
    if not isinstance(raw, dict):
        raise _Unreadable("it is not a JSON object")
    row = cast("dict[str, Any]", raw)
    state = _mapping(row.get("state"))
    status = row.get("status") or "completed"
    if status not in STATUSES or status == "expired":
        raise _Unreadable(f"its status is {status!r}")
    session_id = row.get("sessionId") or state.get("sessionId")
    if not session_id:
        raise _Unreadable("it belongs to no session: it has no sessionId")
    created_at = _moment(row, "createdAt")
    if created_at is None:
        raise _Unreadable("it has no createdAt")
    failure = _mapping(row.get("error"))
    usage = _mapping(state.get("usage"))
    found = SessionSnapshot(
        snapshot_id=check_id("snapshot_id", snapshot_id),
        session_id=check_id("session_id", session_id),
        parent_id=check_id("parentId", row["parentId"]) if row.get("parentId") else None,
        created_at=created_at,
        updated_at=_moment(row, "updatedAt"),
        heartbeat_at=_moment(row, "heartbeatAt"),
        status=cast("SnapshotStatus", status),
        finish_reason=str(row["finishReason"]) if row.get("finishReason") else None,
        error=failure or None,
        usage=usage or None,
        snapshot=None if row.get("state") is None else _snapshot(state, created_at),
    )
    stamp = str(row["createdAt"]).partition(".")[2]
    return found, "".join(letter for letter in stamp.partition("+")[0].partition("-")[0] if letter.isdigit())


def _snapshot(state: dict[str, Any], created_at: datetime) -> Snapshot:
    data: dict[str, Any] = {"messages": _Messages().converted(_dicts(state.get("messages")))}
    custom = state.get("custom")
    if custom is not None:
        data["state"] = custom if isinstance(custom, dict) else {"custom": custom}
    if state.get("artifacts") is not None:
        data["artifacts"] = state["artifacts"]
    return Snapshot("agent", SCHEMA_VERSION, data, {}, iso_utc(created_at))


class _Messages:
    """Turns messages into ours. Calls without a name of their own get one, and their answers, by turns, the same."""

    def __init__(self) -> None:
        self._calls = 0
        self._unanswered: defaultdict[str, deque[str]] = defaultdict(deque)

    def converted(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [self._message(message) for message in messages]

    def _message(self, message: dict[str, Any]) -> dict[str, Any]:
        role = message.get("role")
        content: list[dict[str, Any]] = []
        kept: dict[str, Any] = {}
        for index, part in enumerate(_dicts(message.get("content"))):
            block, is_all = self._block(part)
            content.append(block)
            if not is_all or part.get("metadata"):
                kept[str(index)] = part
        genkit: dict[str, Any] = {"parts": kept} if kept else {}
        if role == "system":
            genkit["role"] = role
        found: dict[str, Any] = {"role": _ROLES.get(str(role), "user"), "content": content}
        metadata = {**_mapping(message.get("metadata")), **({"genkit": genkit} if genkit else {})}
        return {**found, "metadata": metadata} if metadata else found

    def _block(self, part: dict[str, Any]) -> tuple[dict[str, Any], bool]:
        """The block, and whether it says everything that the part does (its metadata aside)."""
        if isinstance(part.get("text"), str):
            return {"text": part["text"]}, True
        if isinstance(part.get("reasoning"), str):
            metadata = _mapping(part.get("metadata"))
            signature = metadata.get("signature") or metadata.get("thoughtSignature")
            text = {"text": part["reasoning"]}
            if isinstance(signature, str):
                text["signature"] = signature
            return {"reasoningContent": {"reasoningText": text}}, True
        if isinstance(part.get("toolRequest"), dict):
            call: dict[str, Any] = part["toolRequest"]
            name = str(call.get("name"))
            return {"toolUse": {"toolUseId": self._call_id(name, call), "name": name, "input": call.get("input")}}, True
        if isinstance(part.get("toolResponse"), dict):
            answer: dict[str, Any] = part["toolResponse"]
            output = answer.get("output")
            block = {"text": output} if isinstance(output, str) else {"json": output}
            result = {"toolUseId": self._answered(answer), "status": "success", "content": [block]}
            return {"toolResult": result}, "content" not in answer
        image = _image(_mapping(part.get("media")))
        if image is not None:
            return {"image": image}, True
        kind = next((name for name in ("media", "data", "custom", "resource") if name in part), "part")
        return {"text": f"[{kind}]"}, False

    def _call_id(self, name: str, call: dict[str, Any]) -> str:
        self._calls += 1
        made = str(call.get("ref") or f"{name}-{self._calls}")
        if not call.get("ref"):
            self._unanswered[name].append(made)
        return made

    def _answered(self, answer: dict[str, Any]) -> str:
        name = str(answer.get("name"))
        waiting = self._unanswered[name]
        return str(answer.get("ref") or (waiting.popleft() if waiting else name))


def _image(media: Mapping[str, Any]) -> dict[str, Any] | None:
    """An image that stands in a `data:` URL; None for anything else."""
    head, comma, body = str(media.get("url", "")).partition(",")
    kind = head.removeprefix("data:").removesuffix(";base64")
    if not comma or kind not in _IMAGES or not (head.startswith("data:") and head.endswith(";base64")):
        return None
    try:
        return {"format": _IMAGES[kind], "source": {"bytes": b64decode(body, validate=True)}}
    except (binascii.Error, ValueError):
        return None


def _moment(row: dict[str, Any], name: str) -> datetime | None:
    text = row.get(name)
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError as error:
        raise _Unreadable(f"its {name} is {text!r}") from error
    if moment.year == _UNSET_YEAR:
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _mapping(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _dicts(value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list):
        return []
    return [item for item in value if isinstance(item, dict)]  # pyright: ignore[reportUnknownVariableType]
