"""What a run tells while it works, and what it comes to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, cast

from antiphon.artifacts import Artifact
from antiphon.content import ContentBlock, Message, Role, text_of
from antiphon.errors import AntiphonError
from antiphon.interrupts import Interrupt
from antiphon.jsonable import clean_text
from antiphon.results import StopReason
from antiphon.store.base import SessionSnapshot

FinishReason = Literal["stop", "length", "blocked", "interrupted", "aborted", "failed", "detached", "other"]
"""Why a turn ended. `interrupted`: a person is asked; `detached`: it goes on in the background."""

_FINISHES: Mapping[StopReason, FinishReason] = {
    "cancelled": "aborted",
    "content_filtered": "blocked",
    "end_turn": "stop",
    "guardrail_intervened": "blocked",
    "interrupt": "interrupted",
    "limit_output_tokens": "length",
    "limit_total_tokens": "length",
    "limit_turns": "aborted",
    "max_tokens": "length",
    "stop_sequence": "stop",
    "tool_use": "other",
}


def finish_of(stop_reason: StopReason) -> FinishReason:
    """The finish reason that an agent's stop reason stands for."""
    return _FINISHES[stop_reason]


@dataclass(frozen=True, slots=True)
class RunError:
    """What went wrong.

    Attributes:
        status: The kind of failure (`antiphon.errors.Status`).
        message: For people.
        details: JSON; `type` is the name of the error's class.
    """

    status: str
    message: str
    details: dict[str, Any] | None = None

    @classmethod
    def of(cls, error: BaseException) -> RunError:
        """What an exception tells."""
        status = error.status if isinstance(error, AntiphonError) else "INTERNAL"
        name = type(error).__name__
        return cls(status, clean_text(str(error)) or name, {"type": name})

    def to_dict(self) -> dict[str, Any]:
        told: dict[str, Any] = {"status": self.status, "message": self.message}
        return told if self.details is None else {**told, "details": self.details}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RunError:
        """The error that a row or `to_dict` holds."""
        details = data.get("details")
        return cls(
            str(data.get("status", "INTERNAL")),
            str(data.get("message", "")),
            dict(cast("Mapping[str, Any]", details)) if isinstance(details, Mapping) else None,
        )


@dataclass(frozen=True, slots=True)
class ModelChunk:
    """A piece of what the model says, or what a tool gave it.

    Attributes:
        role: `assistant` for the model, `user` for results of tools.
        content: Blocks: a piece of text or reasoning; the calls of an answer, once they are complete; a tool's result.
        index: Counts the model's answers within the turn, from 0.
        replaces: What was told before of this answer (for `user`: of the prompt) is void: a redaction, or a model that is
            asked again.
    """

    type: ClassVar[str] = "model_chunk"
    role: Role
    content: list[ContentBlock]
    index: int = 0
    replaces: bool = False

    def to_dict(self) -> dict[str, Any]:
        told: dict[str, Any] = {"role": self.role, "content": self.content, "index": self.index}
        return {self.type: {**told, "replaces": True} if self.replaces else told}


@dataclass(frozen=True, slots=True)
class CustomPatch:
    """How the session's state changed.

    Attributes:
        patch: RFC 6902 operations. The first of a turn puts the whole state in place of what there was (`path` is `""`).
    """

    type: ClassVar[str] = "custom_patch"
    patch: list[dict[str, Any]]

    def to_dict(self) -> dict[str, Any]:
        return {self.type: self.patch}


@dataclass(frozen=True, slots=True)
class ArtifactChunk:
    """An artifact was added, or took the place of the one of its name."""

    type: ClassVar[str] = "artifact"
    artifact: Artifact

    def to_dict(self) -> dict[str, Any]:
        return {self.type: self.artifact.to_dict()}


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """A turn is over; there is one of these for each.

    Attributes:
        snapshot_id: The row it was saved under; None where nothing was saved.
        finish_reason: Why it ended.
    """

    type: ClassVar[str] = "turn_end"
    snapshot_id: str | None
    finish_reason: FinishReason

    def to_dict(self) -> dict[str, Any]:
        told: dict[str, Any] = {} if self.snapshot_id is None else {"snapshot_id": self.snapshot_id}
        return {self.type: {**told, "finish_reason": self.finish_reason}}


RunChunk = ModelChunk | CustomPatch | ArtifactChunk | TurnEnd


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutput:
    """What a run comes to.

    Attributes:
        session_id: The conversation.
        snapshot_id: The row of the last turn that was saved: go on from here. After a failure that saved nothing, the row
            that the run went on from. None where no store keeps the session.
        message: The model's last message; None after a failure.
        artifacts: All artifacts of the session; none after a failure.
        finish_reason: Why the last turn ended.
        error: What went wrong.
        usage: Tokens of the whole session so far, by name.
        interrupts: The questions that wait for a person: when `finish_reason` is `interrupted`, and of a turn that failed
            because it did not answer them.
        state: Where the client keeps the session: what to send with the next run.
        forked: Whether another run had moved the session on, so that this one became a branch beside it.
        replayed: Whether this is the outcome of an earlier request with the same idempotency key.
        unsaved: Why the last turn could not be saved, where a run goes on all the same (`durability="best_effort"`).
    """

    session_id: str
    snapshot_id: str | None = None
    message: Message | None = None
    artifacts: tuple[Artifact, ...] = ()
    finish_reason: FinishReason = "stop"
    error: RunError | None = None
    usage: dict[str, Any] = field(default_factory=dict[str, Any])
    interrupts: tuple[Interrupt, ...] = ()
    state: dict[str, Any] | None = None
    forked: bool = False
    replayed: bool = False
    unsaved: RunError | None = None

    def __str__(self) -> str:
        """The words of the message; of an interrupted run its questions, of a failed one the error."""
        if self.error is not None:
            return self.error.message
        if self.interrupts:
            return "\n".join(f"{question.name}: {question.reason}" for question in self.interrupts)
        return "" if self.message is None else text_of(self.message)

    def to_dict(self) -> dict[str, Any]:
        """What there is of it, by name; JSON and bytes."""
        told: dict[str, Any] = {"session_id": self.session_id, "finish_reason": self.finish_reason}
        if self.snapshot_id is not None:
            told["snapshot_id"] = self.snapshot_id
        if self.message is not None:
            told["message"] = self.message
        if self.artifacts:
            told["artifacts"] = [artifact.to_dict() for artifact in self.artifacts]
        for name in ("error", "unsaved"):
            if (error := cast("RunError | None", getattr(self, name))) is not None:
                told[name] = error.to_dict()
        if self.usage:
            told["usage"] = self.usage
        if self.interrupts:
            told["interrupts"] = [question.to_dict() for question in self.interrupts]
        if self.state is not None:
            told["state"] = self.state
        told |= {name: True for name in ("forked", "replayed") if getattr(self, name)}
        return told


def finish_of_row(row: SessionSnapshot) -> FinishReason:
    """Why a stored turn ended."""
    known: FinishReason
    for known in ("stop", "length", "blocked", "interrupted", "aborted", "failed", "detached"):
        if row.finish_reason == known:
            return known
    return "failed" if row.status == "failed" else "aborted" if row.status == "aborted" else "other"
