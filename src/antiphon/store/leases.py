"""The queue for a session, as a value: who holds the lease, and who waits for it in which order."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import msgspec

from antiphon.errors import CorruptStoreError


class Ticket(NamedTuple):
    """A place in a queue.

    Attributes:
        number: Greater than that of every ticket drawn before.
        owner: Who drew it.
        expires_at: Until when its owner is believed to be alive, in microseconds since 1970.
        nonce: What its owner calls it before its number is known.
    """

    number: int
    owner: str
    expires_at: int
    nonce: str = ""


class Queue(msgspec.Struct, frozen=True, array_like=True):
    """Tickets in the order in which they were drawn; the first holds the lease.

    Attributes:
        drawn: The number of the last ticket.
        tickets: Those still there.
    """

    drawn: int = 0
    tickets: tuple[Ticket, ...] = ()

    @property
    def holder(self) -> Ticket | None:
        """Whose turn it is."""
        return self.tickets[0] if self.tickets else None

    def at(self, now: int) -> Queue:
        """Without those whose time is over."""
        return Queue(self.drawn, tuple(ticket for ticket in self.tickets if ticket.expires_at > now))

    def find(self, number: int) -> Ticket | None:
        """A ticket that is still there."""
        return next((ticket for ticket in self.tickets if ticket.number == number), None)

    def draw(self, owner: str, expires_at: int, nonce: str = "") -> tuple[Queue, Ticket]:
        """With a new ticket at the end."""
        ticket = Ticket(self.drawn + 1, owner, expires_at, nonce)
        return Queue(ticket.number, (*self.tickets, ticket)), ticket

    def renew(self, number: int, expires_at: int) -> Queue:
        """With a later end for a ticket."""
        return Queue(
            self.drawn,
            tuple(
                ticket._replace(expires_at=expires_at) if ticket.number == number else ticket for ticket in self.tickets
            ),
        )

    def leave(self, called: int | str) -> Queue:
        """Without a ticket, given by its number or its nonce."""
        return Queue(
            self.drawn, tuple(ticket for ticket in self.tickets if called not in (ticket.number, ticket.nonce))
        )


def lease_key(session_id: str) -> str:
    """The note that holds a session's queue, and what watchers of it wait for: no row has such an id.

    A digest, because the note outlives the session for the number of the next ticket.
    """
    return f"lease/{hashlib.sha256(session_id.encode()).hexdigest()[:32]}"


_decoder = msgspec.json.Decoder(Queue)


def load(data: bytes | None) -> Queue:
    """The queue that `dump` wrote; an empty one for None.

    Raises:
        CorruptStoreError: If `data` is something else.
    """
    if data is None:
        return Queue()
    try:
        return _decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise CorruptStoreError(f"a session's queue cannot be read: {error}") from error


def dump(queue: Queue) -> bytes:
    """A queue as JSON. An empty one is kept too, for the number of the next ticket."""
    return msgspec.json.encode(queue)
