"""The contract between deciding what to save of an agent and how that lies at rest."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Sequence
from dataclasses import dataclass
from typing import Any, ParamSpec, Protocol, TypeVar

from antiphon.content import Messages
from antiphon.conversation.journal import Journal
from antiphon.errors import SnapshotException
from antiphon.session.redaction import Redaction
from antiphon.snapshot.envelope import Snapshot

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Moment:
    """An agent at one moment.

    Attributes:
        number: Greater than that of every earlier moment of this agent.
        messages: Its history. The messages are shared with the agent, the list is not.
        rest: Everything else that is in its snapshot.
        journal: What is open, as checked data (`Journal.to_dict`).
        mark: The journal's mark.
        journal_empty: Whether nothing is open.
    """

    number: int
    messages: Messages
    rest: Snapshot
    journal: dict[str, Any]
    mark: int
    journal_empty: bool


@dataclass(frozen=True, slots=True)
class Found:
    """A snapshot that was read, and what was open beside it.

    Attributes:
        name: What to call it in errors.
        snapshot: None: there is only a journal.
        journal: What is open and not in the snapshot; nothing for a checkpoint, but its mark.
        restored: To be called when the agent is as it says: with its history, before what was open is appended.
        damage: What is wrong with the journal, which is left aside then.
    """

    name: str
    snapshot: Snapshot | None
    journal: Journal
    restored: Callable[[Messages], None]
    damage: SnapshotException | None = None


class Draft(Protocol):
    """A moment that is ready to be written. An older one never overwrites a newer one, whoever is late.

    Its methods run on the target's thread (`Target.run`, `Target.call`), and wait for one another there.
    """

    async def checkpoint(self) -> str:
        """Write it so that it is never overwritten, and return its id."""
        ...

    async def latest(self) -> None:
        """Make it what the next process goes on from."""
        ...

    async def journal(self) -> None:
        """Keep what is open, if that has changed; and the history, where that is not at rest as it is."""
        ...

    async def redact(self, redactions: Sequence[Redaction]) -> None:
        """Make it what the next process goes on from, and bring redactions to everything else that is at rest.

        Older moments that are still on their way are redacted before they are written. What fails may have been done in
        part; call it again.
        """
        ...


class Target(Protocol):
    """One agent of a session at rest.

    What is a coroutine here is run by `run` or `call`, on a thread of its own: so a synchronous save inside a running
    event loop waits for nobody who waits for that loop, saves from several loops keep their order, and a write whose
    caller was cancelled is still made whole.
    """

    @property
    def place(self) -> object:
        """The storage or store."""
        ...

    @property
    def journal_open(self) -> bool:
        """Whether a journal is at rest that latest must take with it."""
        ...

    def draft(self, moment: Moment) -> Generator[None, None, Draft]:
        """Find out what is new, and encode that: in slices of at most about 1 ms, on the caller's thread.

        Raises:
            SnapshotException: If a value cannot be stored; the message names its path.
        """
        ...

    async def find_latest(self) -> Found | None:
        """What the next process goes on from.

        Raises:
            SnapshotException: If it is damaged.
            AntiphonError: What the storage or store raised.
        """
        ...

    async def find(self, snapshot_id: str) -> Found | None:
        """A checkpoint. Raises as `find_latest` does."""
        ...

    async def ids(self) -> list[str]:
        """The ids of all checkpoints, oldest first. None is read."""
        ...

    async def delete_session(self) -> None:
        """Delete the whole session, whatever agents it has."""
        ...

    def check_id(self, snapshot_id: object) -> str:
        """`snapshot_id`, when it can name a checkpoint.

        Raises:
            InvalidInputError: If it cannot.
        """
        ...

    def begin_anew(self) -> None:
        """Know that nothing is at rest any more."""
        ...

    async def run(self, operation: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a coroutine of this target without holding up the caller's event loop."""
        ...

    def call(self, operation: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a coroutine of this target and block until it is done."""
        ...
