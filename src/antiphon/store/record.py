"""A row at rest: small, in one piece, beside the lines that hold its messages."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, overload

import msgspec

from antiphon.errors import CorruptStoreError
from antiphon.jsonable import decode_json, encode_json, private_copy
from antiphon.store.lines import Span

LARGE_MESSAGE = 4096
"""From this many bytes on a message is stored by its content's address."""

LARGE_PART = 256
"""From this many bytes on another part of a row is stored by its content's address, so that it is stored once."""

_ADDRESSED = b"\0"  # no JSON begins with it

ADDRESS_LENGTH = 32
"""An address is a SHA-256."""

_STORED_LENGTH = 1 + ADDRESS_LENGTH


class Record(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, kw_only=True, gc=False):
    """Everything of a row but its ids and its messages' words.

    New fields go to the end and have a default: older records are read without them.

    Attributes:
        status: As it was saved; never `expired`.
        created_at: Microseconds since 1970 in UTC, as all times here.
        spans: Where the messages are; None when the snapshot has none (or there is no snapshot).
        envelope: The snapshot's scope, schema version and time; None when the row has no snapshot.
        parts: Every other part in JSON, by name: `data.state`, `app_data`, `error`, `usage`, `journal` and so on. Large
            ones are addresses (`address_in`).
    """

    status: str
    created_at: int
    updated_at: int | None = None
    heartbeat_at: int | None = None
    parent_id: str | None = None
    agent_id: str | None = None
    finish_reason: str | None = None
    owner: str | None = None
    epoch: int = 0
    idempotency_key: str | None = None
    envelope: tuple[str, str, str] | None = None
    spans: tuple[Span, ...] | None = None
    parts: dict[str, bytes] = {}


class Row(msgspec.Struct, frozen=True, gc=False):
    """A record and its keys, as backends hand it over.

    Attributes:
        revision: Random, new with each commit: the same id with the same revision is the same state.
    """

    snapshot_id: str
    session_id: str
    revision: int
    record: Record

    @property
    def recency(self) -> tuple[int, str]:
        """Latest is the greatest of these. Strings compare by code point, as their UTF-8 bytes do."""
        return self.record.created_at, self.snapshot_id


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Record)


def pack(record: Record) -> bytes:
    """A record as bytes (MessagePack), for backends that keep it as one value."""
    return _encoder.encode(record)


def unpack(data: bytes) -> Record:
    """The record that `pack` gave.

    Raises:
        CorruptStoreError: If `data` is not one.
    """
    try:
        return _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CorruptStoreError(f"a row's record cannot be read: {error}") from error


def body(raw: bytes, large: int, blobs: dict[bytes, bytes]) -> bytes:
    """What is stored in the place of `raw`: itself, or the address of what is added to `blobs`."""
    if len(raw) < large:
        return raw
    address = hashlib.sha256(raw).digest()
    blobs[address] = raw
    return _ADDRESSED + address


def address_in(body: bytes) -> bytes | None:
    """The address that stands in the place of a large body; None when it is the body itself."""
    return body[1:] if body[:1] == _ADDRESSED else None


class Cuts(Sequence[bytes]):
    """Bodies within a larger piece of bytes, each cut out when it is looked at; the piece stays in memory with them.

    Args:
        data: The piece.
        starts: Where each begins in it.
        sizes: How many bytes each has.
    """

    __slots__ = ("_data", "_starts", "sizes")

    def __init__(self, data: bytes, starts: Sequence[int], sizes: Sequence[int]) -> None:
        self._data, self._starts, self.sizes = data, starts, sizes

    def __len__(self) -> int:
        return len(self.sizes)

    @overload
    def __getitem__(self, index: int) -> bytes: ...

    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...

    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        data = self._data
        if isinstance(index, slice):
            return [data[at : at + size] for at, size in zip(self._starts[index], self.sizes[index], strict=True)]
        at = self._starts[index]
        return data[at : at + self.sizes[index]]


def addresses_in(bodies: Iterable[bytes]) -> set[bytes]:
    """The addresses among bodies."""
    if isinstance(bodies, Cuts):
        bodies = [bodies[index] for index, size in enumerate(bodies.sizes) if size == _STORED_LENGTH]
    return {stored[1:] for stored in bodies if len(stored) == _STORED_LENGTH and stored[:1] == _ADDRESSED}


def resolve(bodies: Sequence[bytes], fetch: Callable[[set[bytes]], Mapping[bytes, bytes]]) -> Sequence[bytes]:
    """The bodies, with large ones in place of their addresses.

    Args:
        bodies: As stored.
        fetch: Gives the large bodies by address; not called when there is none.

    Raises:
        CorruptStoreError: If one of them is not there.
    """
    wanted = addresses_in(bodies)
    if not wanted:
        return bodies
    blobs = fetch(wanted)
    try:
        return [blobs[stored[1:]] if stored[:1] == _ADDRESSED else stored for stored in bodies]
    except KeyError as error:
        raise CorruptStoreError(f"the large body {error.args[0].hex()} is lost") from error


def encode_part(value: Any, path: str) -> bytes:
    """A part of a row as JSON.

    Raises:
        NotJsonError: If it cannot be stored; with its path.
    """
    return encode_json(private_copy(value, path))


def decode_part(data: bytes, what: str) -> Any:
    """A part of a row, the caller's own.

    Raises:
        CorruptStoreError: If it is damaged.
    """
    try:
        return decode_json(data)
    except ValueError as error:
        raise CorruptStoreError(f"{what} cannot be read: {error}") from error
