"""Where a turn stands in its session: what tools and hooks are told by whoever runs the agent."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from antiphon.artifacts import Artifacts
from antiphon.state import AgentState, TypedState


def _no_state() -> TypedState[Any]:
    return TypedState.plain(AgentState())


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One turn of a session.

    Attributes:
        session_id: The conversation.
        snapshot_id: The row that this turn will be saved under, known before the turn begins: name work trees, branches
            and files after it. None where no store keeps the session. A turn that comes to nothing leaves it unused.
        parent_id: The row that the turn goes on from; None for the first.
        index: The turn's number within its run, from 0.
        state: The session's state, by its type.
        artifacts: The session's artifacts.
    """

    session_id: str
    snapshot_id: str | None = None
    parent_id: str | None = None
    index: int = 0
    state: TypedState[Any] = field(default_factory=_no_state, repr=False)
    artifacts: Artifacts = field(default_factory=Artifacts, repr=False)
