"""What was last saved of a conversation, so that a save encodes only what is new."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from antiphon.errors import NotJsonError, SnapshotException
from antiphon.jsonable import encode_json, private_copy

# A slice of work, in microseconds as estimated from what was measured on a slow core: half of the 2 ms that an event
# loop may be kept waiting.
_SLICE = 800.0
_COMPARE = 0.6  # one message that is as it was, with three numbers
_ENCODE = 18.0  # one message that is new, beside its length
_BYTE = 0.006

_BLOCK = 256  # messages compared by one `==`
_FREED = 1024  # messages let go without a pause
_SEARCHED = 512  # messages searched without a pause
_SEARCHES = 4  # passes over the known messages that may be spent on finding out how they moved


class MessageLedger:
    """A private copy of the messages last saved, and the JSON of each.

    Messages are plain dicts which anybody may have edited, so each update compares all of them with the copy (`==`,
    numbers by type and bits), and copies, checks and encodes only those that differ. Appends, edits, drops at either
    end or in the middle (a sliding window, a summary) and a replaced list are all found; a message that only moved is
    not encoded again.

    Attributes:
        encoded: The messages of the last update, each as one JSON object. Not to be changed.
        messages_encoded: How many messages were encoded since the ledger was made.

    >>> ledger = MessageLedger()
    >>> ledger.update_at_once([{"role": "user", "content": [{"text": "Hi"}]}])
    >>> ledger.encoded
    [b'{"role":"user","content":[{"text":"Hi"}]}']
    """

    __slots__ = ("_known", "encoded", "messages_encoded")

    def __init__(self) -> None:
        self._known: list[Any] = []
        self.encoded: list[bytes] = []
        self.messages_encoded = 0

    def update(self, messages: Sequence[Any], path: str = "data.messages") -> Iterator[None]:
        """Bring the ledger up to date, in slices of at most about 1 ms (a single huge message is one slice).

        Let the event loop run between two steps. The list is read once, at the first step, so messages that are
        appended meanwhile belong to the next update. The ledger changes at the end of the last step, all at once, or
        not at all; one update at a time.

        Raises:
            SnapshotException: If a message cannot be stored; the message names its path.
        """
        current = list(messages)
        known, encoded = self._known, self.encoded
        new_known: list[Any] = []
        new_encoded: list[bytes] = []
        searches = _SEARCHES * (len(known) + _BLOCK)
        spent = 0.0
        at = 0  # the known message that the next current one should be
        floor = 0  # first known message that is not matched or passed by a match
        count = 0
        while len(new_known) < len(current):
            index = len(new_known)
            block = known[at : at + min(_BLOCK, len(current) - index)]
            same = len(block) if block and _same(block, current[index : index + len(block)]) else None
            if same is None:
                same = _same_from_start(block, current, index)
            if same:
                new_known += known[at : at + same]
                new_encoded += encoded[at : at + same]
                at = floor = at + same
                spent += same * _COMPARE
            else:
                message = current[index]
                found = None
                start = floor
                while found is None and searches > 0 and start < len(known):
                    stop = min(start + _SEARCHED, len(known))
                    found = _find(message, known, start, stop)
                    searches -= stop - start
                    spent += (stop - start) * _COMPARE
                    start = stop
                    if spent >= _SLICE:
                        spent = 0.0
                        yield
                if found is not None:
                    at = found
                else:
                    copy, data = _stored(message, f"{path}[{index}]")
                    new_known.append(copy)
                    new_encoded.append(data)
                    count += 1
                    at = min(at + 1, len(known))  # most likely an edit: the next one stands where it stood
                    spent += _ENCODE + len(data) * _BYTE
            if spent >= _SLICE:
                spent = 0.0
                yield
        self._known, self.encoded = new_known, new_encoded
        self.messages_encoded += count
        while known:  # to free thousands of messages at once would hold the loop, too
            del known[-_FREED:]
            if known:
                yield

    def update_at_once(self, messages: Sequence[Any], path: str = "data.messages") -> None:
        """`update` without a pause, for synchronous code.

        Raises:
            SnapshotException: If a message cannot be stored; the message names its path.
        """
        for _ in self.update(messages, path):
            pass

    def forget(self) -> None:
        """Begin anew: the next update encodes everything."""
        self._known, self.encoded = [], []


def _same(one: Any, other: Any) -> bool:
    """Whether a private copy equals what users hand in; what cannot be compared differs, and is refused when stored."""
    try:
        return bool(one == other)
    except (TypeError, ValueError, RecursionError):  # for example an array, whose `==` is no truth
        return False


def _same_from_start(block: list[Any], current: list[Any], index: int) -> int:
    """How many messages of a block that differs somewhere are as they were before the first that is not."""
    for offset, known in enumerate(block):
        if not _same(known, current[index + offset]):
            return offset
    return 0


def _find(message: Any, known: list[Any], start: int, stop: int) -> int | None:
    """Where among some of the known messages one stands."""
    try:
        return known.index(message, start, stop)
    except (TypeError, ValueError, RecursionError):  # ValueError: not there; the others as in `_same`
        return None


def _stored(message: Any, path: str) -> tuple[Any, bytes]:
    try:
        copy = private_copy(message, path)
    except NotJsonError as error:
        raise SnapshotException(str(error)) from error
    return copy, encode_json(copy)
