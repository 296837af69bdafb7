"""Bringing an agent to what a run goes on from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from antiphon.agent.live import BidiAgent
from antiphon.agent.turns import Agent
from antiphon.artifacts import Artifact, read_artifacts
from antiphon.errors import StateValidationError
from antiphon.runner.ground import Ground
from antiphon.runner.state_type import StateType


def load_ground(
    agent: Agent | BidiAgent,
    ground: Ground,
    state_type: StateType[Any] | None,
    initial_state: Callable[[], dict[str, Any]] | None,
) -> list[Artifact]:
    """Load the state, and what was open beside it. Returns the session's artifacts.

    Raises:
        SnapshotException: If the state cannot be loaded.
        StateValidationError: If the session's state does not fit its type.
    """
    artifacts: list[Artifact] = []
    if ground.snapshot is not None:
        data = dict(ground.snapshot.data)
        artifacts = read_artifacts(data.get("artifacts"))
        if state_type is not None and data.get("state"):
            version = data.get("state_version", 1)
            if type(version) is not int or version < 1:
                raise StateValidationError("state_version", f"is {version!r}, not a positive number")
            data["state"] = state_type.migrated(data["state"], version)
        if agent.model.stateful:
            data["messages"] = []  # its provider has them
        agent.load_snapshot(replace(ground.snapshot, data=data))
        if ground.journal is not None:
            agent.load_journal(ground.journal)
    if initial_state is not None and not agent.state.get():
        agent.state.replace(initial_state())
    if state_type is not None and (state := agent.state.get()):
        state_type.read(state)
    return artifacts
