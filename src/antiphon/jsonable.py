"""What JSON can carry: checked copies, comparison, and bytes on the way to disk and back.

Messages and state are plain data that users may change at any time, so nobody trusts them about what changed. A *private
copy* shares immutable leaves with the original and compares with `==` at C speed, numbers by type and bits: `1`, `1.0`,
`True` and `-0.0` are four different values on disk.
"""

from __future__ import annotations

import json
import math
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec

from antiphon.errors import NotJsonError

MAX_DEPTH = 200
"""How deep lists and dicts may be nested; deeper ones are refused (a value that contains itself among them)."""

_LONGEST_TOLD = 256  # bits of an integer that an error still writes out: longer ones Python refuses to

BYTES_MARK = "__bytes_encoded__"
"""Key of the dict that stands for bytes on disk: `{"__bytes_encoded__": true, "data": "<base64>"}`.

User data with that key is wrapped as `{"__bytes_encoded__": false, "value": {...}}`, so that it comes back as it was.
"""


class Number:
    """A number in a private copy: equal only to the same type and the same bits."""

    __slots__ = ("value",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, value: float) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        value = self.value
        if type(other) is Number:
            other = other.value
        return type(other) is type(value) and other == value and (other != 0 or str(other) == str(value))

    def __repr__(self) -> str:
        return repr(self.value)


class _RefusedError(Exception):
    """On its way up it collects where the value stands, innermost first: most values are fine and need no path."""

    def __init__(self, why: str) -> None:
        self.why = why
        self.keys: list[str | int] = []


def _at(path: str, key: str | int) -> str:
    return f"{path}[{key}]" if isinstance(key, int) else f"{path}.{key}" if path else key


def _checked_text(text: str) -> str:
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise _RefusedError(f"contains a lone surrogate at position {error.start}") from None
    return text if type(text) is str else str.__str__(text)


def clean_text(text: str) -> str:
    r"""`text` with U+FFFD for each lone surrogate, which no storage takes. Halves that meet become their character.

    >>> clean_text("a\ud800b") == "a\ufffdb", clean_text("\ud83c" + "\udfa7") == "\N{HEADPHONE}"
    (True, True)
    """
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _number(value: float) -> float:
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        if not -(2**63) <= value < 2**64:
            told = repr(value) if value.bit_length() < _LONGEST_TOLD else f"an integer of {value.bit_length()} bits"
            raise _RefusedError(f"is {told}, more than 64 bits: store it as a string")
        return int(value)
    if not math.isfinite(value):
        told = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        raise _RefusedError(f"is {told}, which is not JSON")
    return float(value)


def _type(value: object) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _copy(value: Any, depth: int, wrap: bool, binary: bool) -> Any:  # noqa: FBT001 - by position, for speed
    if type(value) is str:
        return value if value.isascii() else _checked_text(value)
    if value is None:
        return None
    if depth > MAX_DEPTH:
        raise _RefusedError(f"is nested deeper than {MAX_DEPTH}")
    if isinstance(value, dict):
        result: dict[str, Any] = {}
        for key, item in cast("Mapping[Any, Any]", value).items():
            if not isinstance(key, str):
                raise _RefusedError(f"has the key {key!r}, which is not a string")
            name = _checked_text(key)
            try:
                result[name] = _copy(item, depth + 1, wrap, binary)
            except _RefusedError as refused:
                refused.keys.append(name)
                raise
        return result
    if isinstance(value, (list, tuple)):
        items: list[Any] = []
        try:
            for item in cast("Iterable[Any]", value):
                items.append(_copy(item, depth + 1, wrap, binary))  # noqa: PERF401 - its length is the index, if refused
        except _RefusedError as refused:
            refused.keys.append(len(items))
            raise
        return items
    if isinstance(value, (bool, int, float)):
        number = _number(value)
        return Number(number) if wrap else number
    if isinstance(value, str):
        return _checked_text(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        if not binary:
            raise _RefusedError(f"is {_type(cast('object', value))}: store bytes as base64 text")
        return bytes(cast("bytes", value))
    raise _RefusedError(f"is {_type(value)}, which JSON does not know")


def _copied(value: Any, path: str, *, wrap: bool, binary: bool, room: int = 0) -> Any:
    try:
        return _copy(value, room, wrap, binary)
    except _RefusedError as refused:
        for key in reversed(refused.keys):
            path = _at(path, key)
        raise NotJsonError(path, refused.why) from None


def copy_json(value: Any, path: str = "", *, binary: bool = True, room: int = 0) -> Any:
    """An independent copy of `value`, checked: what comes back from disk is equal to it.

    Tuples become lists, `bytearray` and `memoryview` become `bytes`.

    Args:
        value: None, booleans, finite numbers, strings, bytes, and lists, tuples and dicts of these.
        path: Where the value stands, for the error.
        binary: Whether bytes are allowed.
        room: Levels that are kept free above the value: how deep it will stand in what is saved one day.

    Raises:
        NotJsonError: With the path of the first value that cannot be stored.
    """
    return _copied(value, path, wrap=False, binary=binary, room=room)


def private_copy(value: Any, path: str = "") -> Any:
    """A checked copy to compare with later: `private == value` says whether `value` is still the same, to the bit.

    Raises:
        NotJsonError: With the path of the first value that cannot be stored.
    """
    return _copied(value, path, wrap=True, binary=True)


def same_json(one: Any, other: Any) -> bool:
    """Whether two values are the same on disk: `==`, but `1`, `1.0`, `True` and `-0.0` differ.

    Raises:
        NotJsonError: If one of them cannot be stored.
    """
    return bool(private_copy(one) == copy_json(other))


def _to_disk(value: Any) -> Any:
    if isinstance(value, dict):
        entry = {key: _to_disk(item) for key, item in cast("dict[str, Any]", value).items()}
        return {BYTES_MARK: False, "value": entry} if BYTES_MARK in entry else entry
    if isinstance(value, list):
        return [_to_disk(item) for item in cast("Iterable[Any]", value)]
    if isinstance(value, bytes):
        return {BYTES_MARK: True, "data": b64encode(value).decode("ascii")}
    return value.value if isinstance(value, Number) else value


def _from_disk(value: Any) -> Any:
    if isinstance(value, dict):
        entry = cast("dict[str, Any]", value)
        if BYTES_MARK in entry and len(entry) == 2:
            mark = entry[BYTES_MARK]
            if mark is True and isinstance(entry.get("data"), str):
                return b64decode(entry["data"], validate=True)
            if mark is False and isinstance(entry.get("value"), dict):
                return {key: _from_disk(item) for key, item in entry["value"].items()}
        return {key: _from_disk(item) for key, item in entry.items()}
    if isinstance(value, list):
        return [_from_disk(item) for item in cast("Iterable[Any]", value)]
    return value


def encode_json(value: Any) -> bytes:
    """`value` (a checked copy, private or not) as JSON in UTF-8, bytes as marked base64."""
    return msgspec.json.encode(_to_disk(value))


def decode_json(data: bytes) -> Any:
    """The value that `encode_json` (or Strands' session files) wrote.

    Raises:
        NotJsonError: If `data` is what Python's `json` writes of NaN, an infinity or a lone surrogate; it names the path.
        ValueError: If `data` is not JSON in UTF-8, or a marked value is not base64.
    """
    try:
        value = msgspec.json.decode(data)
        # Most of what is stored has no bytes at all, and then one look at the text saves the walk. Much of it has not even
        # an underscore, which is looked for at a tenth of the cost.
        return _from_disk(value) if b"_" in data and BYTES_MARK.encode() in data else value
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        _refuse_by_name(data)
        raise ValueError(str(error)) from error


def _refuse_by_name(data: bytes) -> None:
    """Raise `NotJsonError` when `data` is damaged only in the eyes of a strict reader."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return
    copy_json(value)
