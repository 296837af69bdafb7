"""Ids: time-ordered UUIDs for what we name, rules for what users name, and chance."""

from __future__ import annotations

import os
import re
import threading
import time
import uuid

from antiphon.errors import InvalidIdError

_UUID7 = re.compile(r"\A[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\Z")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_LONGEST = 200  # with a suffix it still fits in the 255 bytes of a file name, when it is ASCII


class _Sequence:
    """The last id's time and counter, so that the next one is greater."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.ms = 0
        self.counter = 0

    def renew_lock(self) -> None:
        """In a forked child: the lock may be held by a thread that does not exist here."""
        self.lock = threading.Lock()


_sequence = _Sequence()
os.register_at_fork(after_in_child=_sequence.renew_lock)


def new_uuid7() -> str:
    """A new UUID version 7 in lower case: strictly greater than every earlier one of this process.

    RFC 9562, section 5.7, with the 12-bit counter of section 6.2 (method 1): it starts below 2048 in each millisecond and,
    when it overflows, borrows the next millisecond.
    """
    random = os.urandom(10)
    sequence = _sequence
    with sequence.lock:
        ms = time.time_ns() // 1_000_000
        if ms > sequence.ms:
            sequence.ms, sequence.counter = ms, int.from_bytes(random[8:], "big") & 0x7FF
        else:
            sequence.counter += 1
            if sequence.counter > 0xFFF:
                sequence.ms, sequence.counter = sequence.ms + 1, int.from_bytes(random[8:], "big") & 0x7FF
        ms, counter = sequence.ms, sequence.counter
    tail = int.from_bytes(random[:8], "big") & 0x3FFF_FFFF_FFFF_FFFF
    value = (ms & 0xFFFF_FFFF_FFFF) << 80 | 0x7 << 76 | counter << 64 | 0b10 << 62 | tail
    return str(uuid.UUID(int=value))


def chance() -> float:
    """A number from 0 to below 1, each as likely as any other; forked processes draw different ones.

    >>> 0 <= chance() < 1
    True
    """
    return (int.from_bytes(os.urandom(7)) >> 3) / 2**53


def is_uuid7(value: str) -> bool:
    """Whether `value` is a UUID version 7 in canonical lower-case form."""
    return _UUID7.match(value) is not None


def check_id(what: str, value: object) -> str:
    r"""`value`, when it can name a session or an agent.

    Args:
        what: The argument's name, for the error.
        value: A non-empty string of at most 200 characters, without `/`, `\\`, control characters or lone
            surrogates, not blank, not padded with blanks, and not made of dots only.

    Raises:
        InvalidIdError: If it cannot.
    """
    if not isinstance(value, str):
        raise InvalidIdError(what, value, "is not a string")
    if not value or not value.strip():
        raise InvalidIdError(what, value, "is empty")
    if "/" in value or "\\" in value:
        raise InvalidIdError(what, value, "cannot contain path separators")
    if _CONTROL.search(value):
        raise InvalidIdError(what, value, "cannot contain control characters or lone surrogates")
    if value != value.strip():
        raise InvalidIdError(what, value, "cannot begin or end with a blank")
    if not value.strip("."):
        raise InvalidIdError(what, value, "cannot be made of dots only")
    if len(value) > _LONGEST:
        raise InvalidIdError(what, value[:40] + "...", f"is longer than {_LONGEST} characters")
    return value
