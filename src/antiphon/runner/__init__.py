"""Sessions that a server owns: `Runner`, what it takes, and what it gives."""

from antiphon.runner.inputs import Respond, Restart, Resume, TurnInput
from antiphon.runner.outputs import ArtifactChunk, CustomPatch, ModelChunk, RunChunk, RunError, RunOutput, TurnEnd
from antiphon.runner.presenting import StateTransform, TransformContext
from antiphon.runner.runner import Runner
from antiphon.runner.state_type import StateType
from antiphon.runner.task import Task

__all__ = [
    "ArtifactChunk",
    "CustomPatch",
    "ModelChunk",
    "Respond",
    "Restart",
    "Resume",
    "RunChunk",
    "RunError",
    "RunOutput",
    "Runner",
    "StateTransform",
    "StateType",
    "Task",
    "TransformContext",
    "TurnEnd",
    "TurnInput",
]
