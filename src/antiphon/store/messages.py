"""The messages of a row that was read: a sequence that nobody can change, and that knows where it comes from."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple, overload

from antiphon.content import Message
from antiphon.errors import CorruptStoreError
from antiphon.jsonable import decode_json, encode_json, private_copy
from antiphon.store.compact import compact

_BLOCK = 32  # messages decoded between two looks at the event loop
_READ = 64  # messages decoded by one call where nobody is kept waiting


class Origin(NamedTuple):
    """The state of a row that messages were read from.

    Attributes:
        tenant: Whose row.
        snapshot_id: Which row.
        revision: Which state of it; never the same twice.
        redactions: How many redactions the session had seen. After another one the messages may read differently.
    """

    tenant: str
    snapshot_id: str
    revision: int
    redactions: int


class StoredMessages(Sequence[Message]):
    """Messages as a store holds them, immutable.

    What is looked at is decoded anew each time and belongs to the caller: editing it changes nothing here. Slices, and
    `messages + [message]`, are such sequences too and still know which of them are stored: saving them compares nothing.
    `list(messages)` gives a plain list.

    >>> messages = StoredMessages.of([{"role": "user", "content": [{"text": "Hi"}]}])
    >>> (messages + messages[:1])[1]["content"]
    [{'text': 'Hi'}]
    """

    __slots__ = ("_copies", "_raws", "known", "origin", "start")

    def __init__(
        self,
        raws: Sequence[bytes] | None,
        copies: list[Any] | None,
        origin: Origin | None = None,
        *,
        start: int = 0,
        known: int = 0,
    ) -> None:
        """Not for users: `raws` (JSON of each message) or `copies` (private copies) is given, and belongs to this now.

        The first `known` messages are those of `origin` from `start` on.
        """
        self._raws, self._copies = raws, copies
        self.origin, self.start, self.known = origin, start, known

    @classmethod
    def of(cls, messages: Iterable[Any]) -> StoredMessages:
        """A sequence of private copies of any messages; it comes from nowhere.

        Raises:
            NotJsonError: If a message cannot be stored.
        """
        return cls(None, [private_copy(message, f"messages[{index}]") for index, message in enumerate(messages)])

    def __len__(self) -> int:
        held = self._copies if self._raws is None else self._raws
        return 0 if held is None else len(held)

    @overload
    def __getitem__(self, index: int) -> Message: ...

    @overload
    def __getitem__(self, index: slice) -> StoredMessages: ...

    def __getitem__(self, index: int | slice) -> Message | StoredMessages:
        if not isinstance(index, slice):
            at = range(len(self))[index]
            message: Message = self._decoded(at, at + 1)[0]
            return message
        start, stop, step = index.indices(len(self))
        raws = None if self._raws is None else self._raws[index]
        copies = None if self._copies is None else self._copies[index]
        if step != 1:
            return StoredMessages(raws, copies)
        known = max(0, min(stop, self.known) - start)
        return StoredMessages(raws, copies, self.origin, start=self.start + start, known=known)

    def __iter__(self) -> Iterator[Message]:
        # In blocks: one text of all of them would be larger than what the allocator keeps at hand.
        return chain.from_iterable(self._decoded(start, start + _READ) for start in range(0, len(self), _READ))

    def __add__(self, more: Sequence[Any]) -> StoredMessages:
        if isinstance(more, StoredMessages):
            tail = [private_copy(message) for message in more]
        else:
            tail = [private_copy(message, f"messages[{len(self) + at}]") for at, message in enumerate(more)]
        raws = None if self._raws is None else [*self._raws, *map(encode_json, tail)]
        copies = None if self._copies is None else self._copies + tail
        return StoredMessages(raws, copies, self.origin, start=self.start, known=self.known)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (list, StoredMessages)):
            return NotImplemented
        return list(self) == list(other)  # pyright: ignore[reportUnknownArgumentType]

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        # No words: a repr ends up in logs.
        return f"<StoredMessages of {len(self)}>"

    def raw(self, index: int) -> bytes:
        """One message as JSON (`jsonable.encode_json`)."""
        if self._raws is not None:
            return self._raws[index]
        return encode_json((self._copies or [])[index])

    def came_from(self, origin: Origin) -> StoredMessages:
        """The same messages, as those of a row just written."""
        return StoredMessages(self._raws, self._copies, origin, known=len(self))

    def private(self) -> Generator[None, None, list[Any]]:
        """A private copy of each message. Works in slices of about 1 ms; kept for the next time. Not to be changed."""
        if self._copies is None:
            copies: list[Any] = []
            raws = self._raws or []
            for start in range(0, len(raws), _BLOCK):
                copies += [compact(private_copy(message)) for message in self._decoded(start, start + _BLOCK)]
                if len(copies) < len(raws):
                    yield
            self._copies = copies
        return self._copies

    def _decoded(self, start: int, stop: int) -> list[Any]:
        """Some of the messages, the caller's own.

        Raises:
            CorruptStoreError: If what is stored of one cannot be read; names it.
        """
        if self._raws is None:
            return [decode_json(encode_json(copy)) for copy in (self._copies or [])[start:stop]]
        raws = self._raws[start:stop]
        try:
            found: list[Any] = decode_json(b"[%b]" % b",".join(raws))
            if len(found) == len(raws):
                return found
        except ValueError:
            pass  # which of them is it?
        return [self._decoded_alone(at, raw) for at, raw in enumerate(raws, start)]

    def _decoded_alone(self, at: int, raw: bytes) -> Any:
        try:
            return decode_json(raw)
        except ValueError as error:
            where = "" if self.origin is None else f" of snapshot {self.origin.snapshot_id!r}"
            number = at + (self.start if at < self.known else 0)
            raise CorruptStoreError(f"message {number}{where} cannot be read: {error}") from error
