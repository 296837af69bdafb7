"""What follows from an event of a live call: decided by `antiphon.conversation.history`, carried out by the agent."""

from __future__ import annotations

from dataclasses import dataclass

from antiphon.content import Message
from antiphon.events import OutputEvent


@dataclass(frozen=True, slots=True)
class Commit:
    """Append these messages to the history, together."""

    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Replace:
    """Put `new` in the place of `old`, a message that was committed earlier (known by identity)."""

    old: Message
    new: Message


@dataclass(frozen=True, slots=True)
class Insert:
    """Put `message` in front of `before`, which was committed earlier (known by identity).

    Of an answer nothing was known to be heard; a report that came late, after something else was committed, says otherwise.
    """

    message: Message
    before: Message


@dataclass(frozen=True, slots=True)
class Remove:
    """Take `message` (known by identity) out: a report that came late says that nothing of it was heard."""

    message: Message


@dataclass(frozen=True, slots=True)
class Truncate:
    """Tell the model that only `played_ms` of this response were heard."""

    response_id: str
    played_ms: float


@dataclass(frozen=True, slots=True)
class Emit:
    """Hand this event to the application."""

    event: OutputEvent


Effect = Commit | Replace | Insert | Remove | Truncate | Emit
