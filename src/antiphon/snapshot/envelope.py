"""The versioned envelope in which an agent's state is kept, and its JSON.

The layout on disk is that of Strands' session folders: one object with `scope`, `schema_version`, `created_at`, `data`
and `app_data`, bytes as marked base64. `parent_id` may stand beside `data`; who does not know it ignores it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

import msgspec

from antiphon.clock import SYSTEM_CLOCK, iso_utc
from antiphon.errors import CorruptSnapshotError, NotJsonError, SnapshotException
from antiphon.jsonable import BYTES_MARK, copy_json, decode_json, encode_json
from antiphon.snapshot.upgrade import SCHEMA_VERSION, UPGRADES, check_version

SnapshotScope = Literal["agent", "multiAgent"]  # camel case on disk

_SCOPES: tuple[str, ...] = get_args(SnapshotScope)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An agent's state at one moment.

    Attributes:
        scope: `agent`, or `multiAgent` for an orchestrator.
        schema_version: `SCHEMA_VERSION`; older ones are upgraded when they are read.
        data: The agent's fields by name (`SnapshotField`); JSON and bytes.
        app_data: What belongs to the application; JSON and bytes, kept as it is.
        created_at: UTC ISO-8601 with microseconds and `Z`; now, when it is left empty.

    Raises:
        SnapshotException: If `data` or `app_data` is not a dict.
    """

    scope: SnapshotScope
    schema_version: str
    data: dict[str, Any]
    app_data: dict[str, Any]
    created_at: str = ""

    def __post_init__(self) -> None:
        for name in ("data", "app_data"):
            _check_type(name, getattr(self, name), dict)
        if not self.created_at:
            object.__setattr__(self, "created_at", iso_utc(SYSTEM_CLOCK.utc()))

    def validate(self) -> None:
        """Check the envelope; the fields are checked when they are loaded (`snapshot.checks`).

        Raises:
            SnapshotException: If the version or the scope is unknown, or a part has the wrong type.
        """
        check_version(self.schema_version, known=UPGRADES)
        if self.scope not in _SCOPES:
            raise SnapshotException(f"Invalid snapshot scope: {self.scope!r}. Valid scopes: {sorted(_SCOPES)}")
        _check_type("created_at", self.created_at, str)

    def upgraded(self) -> Snapshot:
        """This snapshot in the current schema: itself, when it is in it. Else a copy.

        Raises:
            SnapshotException: If its version is unknown, or the upgrades made something else of it.
        """
        return self if self.schema_version == SCHEMA_VERSION else Snapshot.from_dict(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """The parts by name, in the order on disk. Nothing is copied."""
        return {
            "scope": self.scope,
            "schema_version": self.schema_version,
            "created_at": self.created_at,
            "data": self.data,
            "app_data": self.app_data,
        }

    @classmethod
    def from_dict(cls, envelope: Mapping[str, Any]) -> Snapshot:
        """The snapshot that `to_dict` gave, or one in an older schema. Its data are copies.

        Raises:
            SnapshotException: If a part is missing, has the wrong type or cannot be stored; the message names its path.
        """
        if not isinstance(envelope, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise SnapshotException(f"a snapshot is a dict, not {type(envelope).__name__}")
        try:
            private = copy_json(dict(envelope))
        except NotJsonError as error:
            raise SnapshotException(str(error)) from error
        return _from_private(private)

    def to_json(self) -> bytes:
        """The snapshot as JSON in UTF-8: the layout on disk.

        Raises:
            SnapshotException: If a value cannot be stored (NaN, a lone surrogate, a foreign object); the message names
                its path.
        """
        return b"".join(encode_snapshot_parts(self))

    @classmethod
    def from_json(cls, data: bytes) -> Snapshot:
        """The snapshot that is stored in `data`.

        Raises:
            CorruptSnapshotError: If `data` is not a JSON object: cut short, overwritten, or something else.
            SnapshotException: If it is one, but not a snapshot that can be read. NaN is named with its path.
        """
        envelope = _decoded(data)
        if not isinstance(envelope, dict):
            raise CorruptSnapshotError(f"Snapshot is not an object: got {type(envelope).__name__}")
        return _from_private(cast("dict[str, Any]", envelope))


def _check_type(name: str, value: object, kind: type) -> None:
    if not isinstance(value, kind):
        raise SnapshotException(f"{name} is {type(value).__name__}, not {kind.__name__}")


def _decoded(data: bytes) -> Any:
    try:
        return decode_json(data)
    except NotJsonError as error:
        raise SnapshotException(
            f"{error}: the snapshot is whole, but another library wrote what no JSON reader takes"
        ) from error
    except ValueError as error:
        raise CorruptSnapshotError(f"Failed to deserialize snapshot ({len(data)} bytes): {error}") from error


def _from_private(envelope: dict[str, Any]) -> Snapshot:
    envelope = UPGRADES.apply(envelope)
    for name in ("created_at", "data"):
        if name not in envelope:
            raise SnapshotException(f"the snapshot has no {name!r}")
    snapshot = Snapshot(
        envelope.get("scope", "agent"),
        envelope["schema_version"],
        envelope["data"],
        envelope.get("app_data", {}),
        envelope["created_at"],
    )
    snapshot.validate()
    return snapshot


def encode_snapshot_parts(
    snapshot: Snapshot, messages: Sequence[bytes] | None = None, *, parent_id: str | None = None
) -> list[bytes]:
    """Chunks that, joined, are the snapshot's JSON.

    Args:
        snapshot: What to write.
        messages: The messages already encoded, each as one JSON object (`MessageLedger.encoded`): they are written in
            place of `snapshot.data["messages"]`, which is not looked at and may be missing. None encodes those.
        parent_id: Written beside the data, when given: the checkpoint that this snapshot descends from.

    Raises:
        SnapshotException: If the envelope is malformed or a value cannot be stored; the message names its path.
    """
    snapshot.validate()
    chunks = [
        b'{"scope":%b,"schema_version":%b,"created_at":%b,"data":'
        % (
            _encoded(snapshot.scope, "scope"),
            _encoded(snapshot.schema_version, "schema_version"),
            _encoded(snapshot.created_at, "created_at"),
        )
    ]
    if BYTES_MARK in snapshot.data:
        # Looks like marked bytes: it is wrapped, as everywhere below.
        chunks.append(_encoded(snapshot.data, "data"))
    else:
        opening = b"{"
        names = list(snapshot.data)
        if messages is not None and "messages" not in snapshot.data:
            names.insert(0, "messages")
        for name in names:
            if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise SnapshotException(f"data has the key {name!r}, which is not a string")
            chunks.append(opening + _encoded(name, "data") + b":")
            if name == "messages" and messages is not None:
                chunks.extend(_listed(messages))
            else:
                chunks.append(_encoded(snapshot.data[name], f"data.{name}"))
            opening = b","
        chunks.append(b"}" if names else b"{}")
    chunks.append(b',"app_data":' + _encoded(snapshot.app_data, "app_data"))
    if parent_id is not None:
        chunks.append(b',"parent_id":' + _encoded(parent_id, "parent_id"))
    chunks.append(b"}")
    return chunks


def _listed(encoded: Sequence[bytes]) -> list[bytes]:
    """Chunks of a JSON array."""
    if not encoded:
        return [b"[]"]
    chunks = [b","] * (2 * len(encoded) + 1)
    chunks[0], chunks[-1] = b"[", b"]"
    chunks[1::2] = encoded
    return chunks


def _encoded(value: Any, path: str) -> bytes:
    try:
        return encode_json(copy_json(value, path))
    except NotJsonError as error:
        raise SnapshotException(str(error)) from error


class SnapshotHead(msgspec.Struct, frozen=True):
    """What can be told of a stored snapshot without decoding its data.

    Attributes:
        parent_id: The checkpoint that it descends from; None when there is none, or another library wrote it.
    """

    scope: str = "agent"
    schema_version: str = ""
    created_at: str = ""
    parent_id: str | None = None


def read_head(data: bytes) -> SnapshotHead:
    """The small parts of a stored snapshot. The rest is skipped, at a fraction of the cost of decoding it.

    Raises:
        CorruptSnapshotError: If `data` is not a JSON object with these parts.
    """
    try:
        return msgspec.json.decode(data, type=SnapshotHead)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptSnapshotError(f"Failed to deserialize snapshot ({len(data)} bytes): {error}") from error


def read_parent_id(data: bytes) -> str | None:
    """The checkpoint that a stored snapshot descends from.

    Raises:
        CorruptSnapshotError: If `data` is not a stored snapshot.
    """
    return read_head(data).parent_id


__all__ = [
    "SCHEMA_VERSION",
    "Snapshot",
    "SnapshotHead",
    "SnapshotScope",
    "encode_snapshot_parts",
    "read_head",
    "read_parent_id",
]
