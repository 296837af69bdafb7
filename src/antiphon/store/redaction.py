"""What was redacted stays redacted: digests of the old values, by which they are known when they come back."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeGuard

import msgspec

from antiphon.errors import SessionRowError
from antiphon.jsonable import decode_json, encode_json, private_copy
from antiphon.store.matching import Mask

_MESSAGE = b"m"
_PART = b"p"
_LEAF = b"l"
_GONE = b"g"
_DIGEST = 16


class Masks:
    """The redactions of a session.

    A digest is salted, so that nobody can tell from a stored one which words it stands for by trying likely ones against
    other sessions' digests.

    Args:
        salt: The session's.
        entries: What the backend keeps: a digest, and in JSON what stands in the place of what had it.
    """

    __slots__ = ("_salt", "entries")

    def __init__(self, salt: bytes, entries: Mapping[bytes, bytes]) -> None:
        self._salt = salt
        self.entries = dict(entries)

    def message(self, copy: Any) -> Any:
        """The replacement of a message, as a private copy; None when it was not redacted."""
        raw = self.entries.get(self._digest(_MESSAGE, encode_json(copy)))
        return None if raw is None else private_copy(decode_json(raw))

    def part(self, name: str, raw: bytes) -> bytes:
        """What is to be stored for a part of a row."""
        found = self.entries.get(self._digest(_PART + name.encode() + b"\0", raw))
        if found is not None:
            return encode_json(decode_json(found)[1])
        kinds = {digest[:1] for digest in self.entries} & {_LEAF, _GONE}
        if not kinds:
            return raw
        value = decode_json(raw)
        masked = self._masked(value, kinds)
        return raw if masked == value else encode_json(private_copy(masked))

    def add_message(self, old: bytes, new: bytes) -> None:
        """Remember that a message was replaced; both in JSON."""
        self.entries[self._digest(_MESSAGE, old)] = new

    def add_part(self, name: str, old: bytes, new: bytes) -> None:
        """Remember that a part was replaced, and what was replaced in it; both in JSON.

        The part may have changed beside the words when it comes back. So each text that was replaced is replaced
        wherever it stands, in any part, and each text, list or dict that was removed from a dict is removed wherever it
        stands under the same key. A list of another length, or something of another type in the place of a list or a
        dict, is known only as a part of the same whole.
        """
        self.entries[self._digest(_PART + name.encode() + b"\0", old)] = encode_json([name, decode_json(new)])
        self._compare(decode_json(old), decode_json(new))

    def _compare(self, old: Any, new: Any) -> None:
        if _is_dict(old) and _is_dict(new):
            for key, value in old.items():
                if key in new:
                    self._compare(value, new[key])
                elif isinstance(value, (str, list, dict)) and value:
                    self.entries[self._gone(key, value)] = b"null"
        elif _is_list(old) and _is_list(new):
            if len(old) == len(new):
                for value, other in zip(old, new, strict=True):
                    self._compare(value, other)
        elif isinstance(old, str) and old and old != new:
            before, after = encode_json(old), encode_json(new)
            for digest, known in self.entries.items():
                if digest[:1] == _LEAF and known == before:  # what stood for other words was redacted in turn
                    self.entries[digest] = after
            self.entries[self._digest(_LEAF, before)] = after

    def _masked(self, value: Any, kinds: set[bytes]) -> Any:
        if isinstance(value, str) and _LEAF in kinds:
            found = self.entries.get(self._digest(_LEAF, encode_json(value)))
            return value if found is None else decode_json(found)
        if _is_list(value):
            return [self._masked(item, kinds) for item in value]
        if _is_dict(value):
            return {
                key: self._masked(item, kinds)
                for key, item in value.items()
                if _GONE not in kinds or not item or self._gone(key, item) not in self.entries
            }
        return value

    def _gone(self, key: str, value: Any) -> bytes:
        return self._digest(_GONE, encode_json([key, private_copy(value)]))

    def renewed(self, message: Callable[[Any], Any], part: Callable[[str, Any], Any]) -> Masks:
        """The same masks with their replacements redacted in turn."""
        entries: dict[bytes, bytes] = {}
        for digest, raw in self.entries.items():
            value = decode_json(raw)
            if digest.startswith(_MESSAGE):
                again = message(value)
                entries[digest] = raw if again is None else encode_json(private_copy(again))
            elif digest[:1] in (_LEAF, _GONE):
                entries[digest] = raw
            else:
                name, old = value
                replace_messages(name, old, message)
                entries[digest] = encode_json([name, private_copy(part(name, old))])
        return Masks(self._salt, entries)

    def _digest(self, kind: bytes, raw: bytes) -> bytes:
        # The order of keys is not part of a value: `==` does not see it either.
        value = msgspec.json.encode(msgspec.json.decode(raw), order="deterministic")
        return kind[:1] + hashlib.sha256(b"%d:%b%b%b" % (len(kind), kind, self._salt, value)).digest()[:_DIGEST]


def checked_mask(digest: str, raw: bytes) -> tuple[bytes, bytes]:
    """One of `Masks.entries` that comes from elsewhere.

    Args:
        digest: In hexadecimal.
        raw: What stands in its place, in JSON.

    Raises:
        SessionRowError: If it is none.
    """
    try:
        found, value = bytes.fromhex(digest), decode_json(raw)
    except ValueError as error:
        raise SessionRowError(f"the redacted entry {digest!r} cannot be read: {error}") from error
    is_part = found[:1] == _PART
    if len(found) != _DIGEST + 1 or found[:1] not in (_MESSAGE, _PART, _LEAF, _GONE):
        raise SessionRowError(f"{digest!r} is no digest of what was redacted")
    if is_part and not (_is_list(value) and len(value) == 2 and isinstance(value[0], str)):
        raise SessionRowError(f"the redacted entry {digest!r} does not name a part and its value")
    return found, raw


def replace_messages(name: str, part: Any, new: Mask) -> None:
    """Replace, in place, the messages that a part of a row holds beside the history: they may enter it later.

    They are a journal's lines, what a run in the background has still to say, and a turn that waits for a person. Parts
    of other shapes stay as they are.

    Args:
        name: The part's name.
        part: Its value.
        new: What shall stand for a message; None: it stays.
    """
    for holder, key in _places(name, part):
        replaced = new(holder[key])
        if replaced is not None:
            holder[key] = replaced


def _places(name: str, part: Any) -> Iterator[tuple[Any, Any]]:
    """Where the messages of a part stand: what holds each, and under which index or key."""
    if name == "journal" and _is_dict(part):
        yield from _each(part.get("lines"))
    elif name == "data.task_inputs" and _is_list(part):
        for entry in part:
            if _is_dict(entry):
                yield from _each(entry.get("messages"))
    elif name == "data.interrupt_state" and _is_dict(part) and _is_dict(context := part.get("context")):
        if _is_dict(context.get("tool_use_message")):
            yield context, "tool_use_message"
        yield from _each(context.get("prompt"))


def _each(found: Any) -> Iterator[tuple[Any, Any]]:
    if _is_list(found):
        for index in range(len(found)):
            yield found, index


def _is_list(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def _is_dict(value: Any) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)
