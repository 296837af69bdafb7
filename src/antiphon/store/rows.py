"""Between rows as users see them and rows at rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

from antiphon.errors import CorruptStoreError, NotJsonError, SessionRowError, SnapshotException
from antiphon.ids import check_id
from antiphon.jsonable import encode_json, private_copy
from antiphon.snapshot.envelope import Snapshot
from antiphon.snapshot.upgrade import SCHEMA_VERSION
from antiphon.store.backend import Reading
from antiphon.store.base import STATUSES, SessionSnapshot, SnapshotStatus, from_microseconds, to_microseconds
from antiphon.store.lines import Span
from antiphon.store.messages import Origin, StoredMessages
from antiphon.store.record import LARGE_PART, Cuts, Record, Row, body, decode_part, encode_part, resolve
from antiphon.store.redaction import Masks, replace_messages

_DATA = "data."
_APP_DATA = "app_data"
_PLAIN = ("error", "usage", "journal")

# In UTC, in which times are given back: a time of another zone may lie just outside.
_FIRST = to_microseconds(datetime.min.replace(tzinfo=UTC))
_LAST = to_microseconds(datetime.max.replace(tzinfo=UTC))
_LONGEST_NAME = 500


@dataclass(frozen=True, slots=True)
class Loaded:
    """A row that was read.

    Attributes:
        row: As the backend gave it.
        origin: Names its state.
        parts: Its parts in JSON, large ones resolved; empty for a row that was read without its state.
        messages: Its messages; None where its snapshot has none, or it was read without its state.
        read: Their JSON; empty where they were remembered.
    """

    row: Row
    origin: Origin
    parts: dict[str, bytes]
    messages: StoredMessages | None
    read: Sequence[bytes] = ()

    @property
    def size(self) -> int:
        """How many bytes of JSON its messages have; 0 where they were remembered."""
        return sum(self.read.sizes if isinstance(self.read, Cuts) else map(len, self.read))

    def shown(self, *, state: bool = True) -> SessionSnapshot:
        """The row for its user, with parts of its own."""
        row, record = self.row, self.row.record
        what = f"snapshot {row.snapshot_id!r}"
        plain: dict[str, Any] = {
            name: decode_part(self.parts[name], f"{name} of {what}") for name in _PLAIN if name in self.parts
        }
        return SessionSnapshot(
            session_id=row.session_id,
            snapshot_id=row.snapshot_id,
            created_at=from_microseconds(record.created_at),
            updated_at=_moment(record.updated_at),
            heartbeat_at=_moment(record.heartbeat_at),
            agent_id=record.agent_id,
            parent_id=record.parent_id,
            status=cast("SnapshotStatus", record.status),
            finish_reason=record.finish_reason,
            error=plain.get("error"),
            usage=plain.get("usage"),
            owner=record.owner,
            epoch=record.epoch,
            idempotency_key=record.idempotency_key,
            journal=plain.get("journal") if state else None,
            snapshot=self._snapshot(what) if state else None,
        )

    def _snapshot(self, what: str) -> Snapshot | None:
        envelope = self.row.record.envelope
        if envelope is None:
            return None
        scope, version, created_at = envelope
        data: dict[str, Any] = {}
        if self.messages is not None:
            data["messages"] = self.messages
        for name, raw in self.parts.items():
            if name.startswith(_DATA):
                data[name.removeprefix(_DATA)] = decode_part(raw, f"{name} of {what}")
        app_data: dict[str, Any] = (
            decode_part(self.parts[_APP_DATA], f"app_data of {what}") if _APP_DATA in self.parts else {}
        )
        if version == SCHEMA_VERSION and scope in {"agent", "multiAgent"}:
            return Snapshot(cast("Any", scope), version, data, app_data, created_at)
        messages = {} if self.messages is None else {"messages": list(self.messages)}
        return Snapshot.from_dict(
            {
                "scope": scope,
                "schema_version": version,
                "created_at": created_at,
                "data": {**data, **messages},
                "app_data": app_data,
            }
        )


def load(
    view: Reading,
    tenant: str,
    row: Row,
    *,
    state: bool = True,
    known: Callable[[Origin], StoredMessages | None] | None = None,
) -> Loaded:
    """Read what belongs to a row, within the view that it was read in.

    Args:
        view: The view.
        tenant: Whose.
        row: The row.
        state: Whether its snapshot and journal are wanted.
        known: Gives the messages of a state that was read before. None: they are read, so that what is shown to a reader
            is what is stored.
    """
    mark = view.mark(row.session_id)
    origin = Origin(tenant, row.snapshot_id, row.revision, mark.redactions if mark else 0)
    names = [name for name in row.record.parts if state or name in ("error", "usage")]

    def blobs(addresses: set[bytes]) -> Any:
        return view.blobs(row.session_id, addresses)

    try:
        bodies = resolve([row.record.parts[name] for name in names], blobs)
        parts = dict(zip(names, bodies, strict=True))
        if not state or row.record.spans is None:
            return Loaded(row, origin, parts, None)
        messages = None if known is None else known(origin)
        raws: Sequence[bytes] = ()
        if messages is None:
            runs = [view.messages(row.session_id, span.line, span.start, span.stop) for span in row.record.spans]
            raws = resolve(runs[0] if len(runs) == 1 else [raw for run in runs for raw in run], blobs)
            messages = StoredMessages(raws, None, origin, known=len(raws))
    except CorruptStoreError as error:
        raise CorruptStoreError(f"snapshot {row.snapshot_id!r} of session {row.session_id!r}: {error}") from error
    return Loaded(row, origin, parts, messages, raws)


def check_row(wanted: object, snapshot_id: str, session_id: str | None) -> SessionSnapshot:
    """What `fn` gave, when it can be stored.

    Args:
        wanted: What it gave.
        snapshot_id: The row's id, for errors.
        session_id: The session that the row has; None when it is new.

    Raises:
        SessionRowError: If a field cannot be stored.
        InvalidIdError: If an id cannot name anything.
    """
    if not isinstance(wanted, SessionSnapshot):
        raise SessionRowError(f"fn returned {type(wanted).__name__}, not a SessionSnapshot or None")
    if session_id is None:
        if not wanted.session_id:
            raise SessionRowError(f"snapshot {snapshot_id!r} needs a session_id: it is never inferred")
        check_id("session_id", wanted.session_id)
    for name in ("agent_id", "parent_id"):
        value = getattr(wanted, name)
        if value is not None:
            check_id(name, value)
    for name in ("owner", "idempotency_key", "finish_reason"):
        if getattr(wanted, name) is not None:
            check_name(name, getattr(wanted, name))
    if wanted.status not in ("", *STATUSES) or wanted.status == "expired":
        raise SessionRowError(f"status={wanted.status!r} cannot be stored: 'expired' is computed when a row is read")
    if type(wanted.epoch) is not int or not 0 <= wanted.epoch < 2**63:
        raise SessionRowError(f"epoch={wanted.epoch!r} is not a count")
    for name in _PLAIN:
        value = getattr(wanted, name)
        if value is not None and not isinstance(value, dict):
            raise SessionRowError(f"{name} is {type(value).__name__}, not a dict")
    for name in ("created_at", "updated_at", "heartbeat_at"):
        check_moment(name, getattr(wanted, name), needed=name == "created_at")
    if wanted.snapshot is not None:
        if not isinstance(wanted.snapshot, Snapshot):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise SessionRowError(f"snapshot is {type(wanted.snapshot).__name__}, not a Snapshot")
        wanted.snapshot.validate()
        for name in wanted.snapshot.data:
            if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise SnapshotException(f"data has the key {name!r}, which is not a string")
            _check_text(f"snapshot.data has the key {name!r}, which", name)
        _check_text(f"snapshot.created_at={wanted.snapshot.created_at!r}", wanted.snapshot.created_at)
    return wanted


def check_name(what: str, value: object) -> str:
    """`value`, when it can be an owner, an idempotency key or a reason.

    Raises:
        SessionRowError: If it cannot.
    """
    if not isinstance(value, str) or not value or len(value) > _LONGEST_NAME or "\0" in value:
        raise SessionRowError(f"{what}={value!r} is not a text of 1 to {_LONGEST_NAME} characters without NUL")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise SessionRowError(f"{what}={value!r} contains a lone surrogate") from None
    return value


def _check_text(what: str, value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise NotJsonError(what, "contains a lone surrogate") from None


def check_moment(what: str, value: object, *, needed: bool = False) -> int | None:
    """A time in microseconds since 1970.

    Raises:
        SessionRowError: If it is no time, or has no time zone.
    """
    if value is None and not needed:
        return None
    if not isinstance(value, datetime):
        raise SessionRowError(f"{what} is {type(value).__name__}, not a datetime")
    if value.utcoffset() is None:
        raise SessionRowError(f"{what}={value!r} has no time zone: use datetime.now(UTC)")
    microseconds = to_microseconds(value)
    if not _FIRST <= microseconds <= _LAST:
        raise SessionRowError(f"{what}={value!r} is outside of the years 1 to 9999 in UTC")
    return microseconds


def listed_messages(wanted: SessionSnapshot) -> list[Any] | tuple[Any, ...] | StoredMessages | None:
    """The messages of a row that is to be saved; None where there is no list of them."""
    found: Any = None if wanted.snapshot is None else wanted.snapshot.data.get("messages")
    return cast("list[Any] | None", found) if isinstance(found, (list, tuple, StoredMessages)) else None


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a row on their way to a backend.

    Attributes:
        raw: Each in JSON, by name.
        stored: What the record holds: the same, or addresses.
        blobs: What stands at these.
    """

    raw: dict[str, bytes]
    stored: dict[str, bytes]
    blobs: dict[bytes, bytes]


def parts_of(wanted: SessionSnapshot, masks: Masks | None) -> Parts:
    """Every part but the messages, as JSON; redacted ones replaced.

    Raises:
        NotJsonError: If one cannot be stored; with its path.
    """
    raw: dict[str, bytes] = {}
    if wanted.error is not None:
        raw["error"] = encode_part(wanted.error, "error")
    if wanted.usage is not None:
        raw["usage"] = encode_part(wanted.usage, "usage")
    if wanted.journal is not None:
        raw["journal"] = _masked("journal", wanted.journal, "journal", masks)
    if wanted.snapshot is not None:
        listed = listed_messages(wanted) is not None
        for name, value in wanted.snapshot.data.items():
            if name != "messages" or not listed:
                raw[_DATA + name] = _masked(_DATA + name, value, f"snapshot.data.{name}", masks)
        if wanted.snapshot.app_data:
            raw[_APP_DATA] = encode_part(wanted.snapshot.app_data, "snapshot.app_data")
    if masks is not None:
        raw = {name: masks.part(name, value) for name, value in raw.items()}
    blobs: dict[bytes, bytes] = {}
    # The journal of a run is rewritten several times a second: by address, each version would stay until a sweep.
    stored = {name: value if name in _PLAIN else body(value, LARGE_PART, blobs) for name, value in raw.items()}
    return Parts(raw, stored, blobs)


def _masked(name: str, value: Any, path: str, masks: Masks | None) -> bytes:
    """A part in JSON, the messages within it redacted."""
    if masks is None:
        return encode_part(value, path)
    copy = private_copy(value, path)
    replace_messages(name, copy, masks.message)
    return encode_json(copy)


def record_of(wanted: SessionSnapshot, spans: tuple[Span, ...] | None, parts: dict[str, bytes]) -> Record:
    """The row at rest."""
    created_at = check_moment("created_at", wanted.created_at, needed=True)
    snapshot = wanted.snapshot
    return Record(
        status=wanted.status or "completed",
        created_at=created_at or 0,
        updated_at=check_moment("updated_at", wanted.updated_at),
        heartbeat_at=check_moment("heartbeat_at", wanted.heartbeat_at),
        parent_id=wanted.parent_id,
        agent_id=wanted.agent_id,
        finish_reason=wanted.finish_reason,
        owner=wanted.owner,
        epoch=wanted.epoch,
        idempotency_key=wanted.idempotency_key,
        envelope=None if snapshot is None else (snapshot.scope, snapshot.schema_version, snapshot.created_at),
        spans=spans,
        parts=parts,
    )


def _moment(value: int | None) -> datetime | None:
    return None if value is None else from_microseconds(value)
