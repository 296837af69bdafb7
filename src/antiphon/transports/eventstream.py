"""The event-stream framing of AWS: messages with typed headers and two checksums. Pure; both directions.

A message is a prelude (total length, length of the headers, CRC-32 of those eight bytes), the headers, the payload, and
the CRC-32 of everything before it; all numbers are big-endian. Source: "Event stream encoding", Amazon Transcribe
Developer Guide, and the smithy specification "application/vnd.amazon.eventstream".
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID
from zlib import crc32

from antiphon.errors import TransportError

LONGEST_HEADERS = 128 * 1024
LONGEST_PAYLOAD = 24 * 1024 * 1024
"""Bytes. The bounds that botocore keeps; a wire that announces more does not speak this protocol."""

_LONGEST_NAME = 255
_LONGEST_VALUE = 2**15 - 1
_FRAME = 16  # bytes beside headers and payload: the prelude with its checksum, and the last checksum
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Byte(int):
    """A header's number of one byte on the wire."""

    __slots__ = ()


class Short(int):
    """A header's number of two bytes on the wire."""

    __slots__ = ()


class Long(int):
    """A header's number of eight bytes on the wire. A plain int takes four where it fits, else eight."""

    __slots__ = ()


HeaderValue = str | bytes | bool | int | datetime | UUID


@dataclass(frozen=True, slots=True)
class Message:
    """One message.

    Attributes:
        headers: In the order in which they were sent. Timestamps are in UTC, of whole milliseconds.
        payload: The body.
    """

    headers: Mapping[str, HeaderValue]
    payload: bytes = b""

    def text_header(self, name: str) -> str:
        """A header that is text, such as `:event-type`; empty where there is none."""
        value = self.headers.get(name, "")
        return value if isinstance(value, str) else ""


def encode_message(headers: Mapping[str, HeaderValue], payload: bytes = b"") -> bytes:
    """One message as bytes.

    Raises:
        ValueError: If a name or a value is longer than the format can say, or a number or a time does not fit.
        TypeError: If a value is of a type that no header has.
    """
    return framed(encode_headers(headers), payload)


def framed(head: bytes, payload: bytes = b"") -> bytes:
    """One message as bytes, of headers that are encoded already: many messages may have the same.

    Raises:
        ValueError: If it is longer than a message may be.
    """
    if len(head) > LONGEST_HEADERS:
        raise ValueError(f"headers of {len(head)} bytes are longer than the {LONGEST_HEADERS} that a message may have")
    if len(payload) > LONGEST_PAYLOAD:
        raise ValueError(f"a payload of {len(payload)} bytes is longer than the {LONGEST_PAYLOAD} of a message")
    prelude = struct.pack("!II", len(head) + len(payload) + _FRAME, len(head))
    body = b"".join([prelude, struct.pack("!I", crc32(prelude)), head, payload])
    return body + struct.pack("!I", crc32(body))


def encode_headers(headers: Mapping[str, HeaderValue]) -> bytes:
    """The headers alone, as they stand in a message and as AWS signs them.

    Raises:
        ValueError: As `encode_message`.
        TypeError: As `encode_message`.
    """
    out = bytearray()
    for name, value in headers.items():
        raw = name.encode()
        if not 0 < len(raw) <= _LONGEST_NAME:
            raise ValueError(f"a header's name has 1 to {_LONGEST_NAME} bytes, not {len(raw)}: {name[:40]!r}")
        out.append(len(raw))
        out += raw
        out += _encode_value(name, value)
    return bytes(out)


def _encode_value(name: str, value: HeaderValue) -> bytes:
    match value:
        case bool():
            return b"\x00" if value else b"\x01"
        case int():
            return _encode_number(name, value)
        case bytes():
            return b"\x06" + _sized(name, value)
        case str():
            return b"\x07" + _sized(name, value.encode())
        case datetime():
            if value.tzinfo is None:
                raise ValueError(f"the time of header {name!r} has no time zone")
            return struct.pack("!Bq", 8, (value - _EPOCH) // timedelta(milliseconds=1))
        case UUID():
            return b"\x09" + value.bytes
        case _:
            raise TypeError(f"header {name!r} cannot hold {value!r}: use text, bytes, a number, a time or a UUID")


def _encode_number(name: str, value: int) -> bytes:
    kind, layout = 5, "!Bq"
    if isinstance(value, Byte):
        kind, layout = 2, "!Bb"
    elif isinstance(value, Short):
        kind, layout = 3, "!Bh"
    elif not isinstance(value, Long) and -(2**31) <= value < 2**31:
        kind, layout = 4, "!Bi"
    try:
        return struct.pack(layout, kind, value)
    except struct.error as error:
        raise ValueError(f"header {name!r} cannot hold {value!r}: {error}") from error


def _sized(name: str, raw: bytes) -> bytes:
    if len(raw) > _LONGEST_VALUE:
        raise ValueError(f"header {name!r} has {len(raw)} bytes; a header's value has {_LONGEST_VALUE} at most")
    return struct.pack("!H", len(raw)) + raw


class Decoder:
    """Takes the bytes of a wire as they come, in pieces of any size, and gives whole messages.

    However the bytes are cut, the same messages come, and then the same error if the bytes break somewhere. After an
    error nothing more can be read.
    """

    def __init__(self) -> None:
        self._held = bytearray()
        self._broken: TransportError | None = None
        self._head: tuple[bytes, Mapping[str, HeaderValue]] = b"", {}  # of the last message: most have the same

    def feed(self, data: bytes) -> list[Message]:
        """The messages that are whole now, in order.

        Where the bytes break after whole messages, these are given first, and the next call raises (`end` as well).

        Raises:
            TransportError: If a checksum is wrong, or a length or a header cannot be: this is not event-stream framing,
                or bytes were lost.
        """
        if self._broken is not None:
            raise self._broken
        self._held += data
        found: list[Message] = []
        try:
            while (size := self._whole()) is not None:
                found.append(self._message(bytes(self._held[:size])))
                del self._held[:size]
        except TransportError as error:
            self._broken = error
            self._held.clear()
            if not found:
                raise
        return found

    def end(self) -> None:
        """The wire has ended.

        Raises:
            TransportError: If it ended within a message, or had broken before.
        """
        if self._broken is not None:
            raise self._broken
        if self._held:
            raise TransportError(f"the event stream ended within a message, after {len(self._held)} bytes of it")

    def _whole(self) -> int | None:
        """The length of the first message in bytes; None while it is not whole."""
        if len(self._held) < 12:
            return None
        total, head, checksum = struct.unpack_from("!III", self._held)
        # Before anything is waited for: a broken length could ask for gigabytes that never come.
        if crc32(self._held[:8]) != checksum:
            raise TransportError("an event-stream message has a wrong checksum over its lengths")
        if head > LONGEST_HEADERS or not _FRAME + head <= total <= _FRAME + head + LONGEST_PAYLOAD:
            raise TransportError(f"an event-stream message cannot have {total} bytes with {head} bytes of headers")
        return int(total) if len(self._held) >= total else None

    def _message(self, raw: bytes) -> Message:
        if crc32(raw[:-4]) != struct.unpack_from("!I", raw, len(raw) - 4)[0]:
            raise TransportError("an event-stream message has a wrong checksum")
        start = 12 + int(struct.unpack_from("!I", raw, 4)[0])
        head = raw[12:start]
        if head != self._head[0]:
            self._head = head, decode_headers(head)
        return Message(self._head[1], raw[start:-4])


def decode_headers(raw: bytes) -> dict[str, HeaderValue]:
    """Headers from their bytes, in order.

    Raises:
        TransportError: If they are cut short, are of an unknown type, or name one header twice.
    """
    headers: dict[str, HeaderValue] = {}
    at = 0
    try:
        while at < len(raw):
            end = at + 1 + raw[at]
            name = _exactly(raw, at + 1, end).decode()
            value, at = _decode_value(name, raw, end)
            if not name or name in headers:
                raise TransportError(f"an event-stream message has the header {name!r} twice, or one without a name")
            headers[name] = value
    except (IndexError, struct.error, UnicodeDecodeError, OverflowError) as error:
        raise TransportError(f"the headers of an event-stream message cannot be read: {error}") from error
    return headers


def _decode_value(name: str, raw: bytes, at: int) -> tuple[HeaderValue, int]:
    """A value that begins at `at` with its type, and where the next header begins."""
    kind, at = raw[at], at + 1
    match kind:
        case 0 | 1:
            return kind == 0, at
        case 2:
            return Byte(struct.unpack_from("!b", raw, at)[0]), at + 1
        case 3:
            return Short(struct.unpack_from("!h", raw, at)[0]), at + 2
        case 4:
            return int(struct.unpack_from("!i", raw, at)[0]), at + 4
        case 5:
            return Long(struct.unpack_from("!q", raw, at)[0]), at + 8
        case 6 | 7:
            end = at + 2 + int(struct.unpack_from("!H", raw, at)[0])
            value = _exactly(raw, at + 2, end)
            return (value if kind == 6 else value.decode()), end
        case 8:
            return _EPOCH + timedelta(milliseconds=int(struct.unpack_from("!q", raw, at)[0])), at + 8
        case 9:
            return UUID(bytes=_exactly(raw, at, at + 16)), at + 16
        case _:
            raise TransportError(f"the event-stream header {name!r} is of the unknown type {kind}")


def _exactly(raw: bytes, start: int, end: int) -> bytes:
    if end > len(raw):
        raise IndexError(f"{end - len(raw)} bytes are missing")
    return raw[start:end]
