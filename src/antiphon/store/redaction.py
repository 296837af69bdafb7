"""What was redacted stays redacted: digests of the old values, by which they are known when they come back."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from antiphon.jsonable import decode_json, encode_json, private_copy
from antiphon.store.matching import Mask

_MESSAGE = b"m"
_PART = b"p"


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
        return raw if found is None else encode_json(decode_json(found)[1])

    def add_message(self, old: bytes, new: bytes) -> None:
        """Remember that a message was replaced; both in JSON."""
        self.entries[self._digest(_MESSAGE, old)] = new

    def add_part(self, name: str, old: bytes, new: bytes) -> None:
        """Remember that a part was replaced; both in JSON."""
        self.entries[self._digest(_PART + name.encode() + b"\0", old)] = encode_json([name, decode_json(new)])

    def renewed(self, message: Callable[[Any], Any], part: Callable[[str, Any], Any]) -> Masks:
        """The same masks with their replacements redacted in turn."""
        entries: dict[bytes, bytes] = {}
        for digest, raw in self.entries.items():
            value = decode_json(raw)
            if digest.startswith(_MESSAGE):
                again = message(value)
                entries[digest] = raw if again is None else encode_json(private_copy(again))
            else:
                name, old = value
                entries[digest] = encode_json([name, private_copy(part(name, old))])
        return Masks(self._salt, entries)

    def _digest(self, kind: bytes, raw: bytes) -> bytes:
        # The order of keys is not part of a value: `==` does not see it either.
        value = msgspec.json.encode(msgspec.json.decode(raw), order="deterministic")
        return kind[:1] + hashlib.sha256(b"%d:%b%b%b" % (len(kind), kind, self._salt, value)).digest()[:16]


def mask_journal(journal: dict[str, Any], mask: Mask) -> dict[str, Any]:
    """A journal (a private copy) with the messages among its lines replaced where they were redacted."""
    masked: list[Any] = []
    for line in journal_lines(journal):
        replaced = mask(line)
        masked.append(line if replaced is None else replaced)
    return {**journal, "lines": masked} if masked else journal


def journal_lines(journal: dict[str, Any]) -> list[Any]:
    """A journal's messages, in the list that it holds; none where it has another shape."""
    found: Any = journal.get("lines")
    if not isinstance(found, list):
        return []
    return found  # pyright: ignore[reportUnknownVariableType]
