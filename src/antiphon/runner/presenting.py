"""What leaves the server: everything passes `state_transform`, and nothing leaves when that fails."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from antiphon.artifacts import Artifact, read_artifacts
from antiphon.content import ContentBlock, Message
from antiphon.errors import AntiphonError, StateTransformError
from antiphon.interrupts import Interrupt
from antiphon.jsonable import copy_json
from antiphon.runner.feed import StateChanged, Told, TurnBegins
from antiphon.runner.outputs import (
    ArtifactChunk,
    CustomPatch,
    ModelChunk,
    RunChunk,
    RunError,
    RunOutput,
    TurnEnd,
)
from antiphon.snapshot.patch import make_patch

Purpose = Literal["snapshot", "output", "state", "chunk"]


@dataclass(frozen=True, slots=True)
class TransformContext:
    """What a `state_transform` is told beside the view.

    Attributes:
        session_id: The conversation.
        snapshot_id: The row that is read or will be written; None where there is none.
        purpose: `snapshot`: a stored row is read; `output`: a run's output; `state`: the whole session, for a client that
            keeps it; `chunk`: a piece of a stream.
    """

    session_id: str
    snapshot_id: str | None
    purpose: Purpose


StateTransform = Callable[[dict[str, Any], TransformContext], dict[str, Any] | Awaitable[dict[str, Any] | None] | None]
"""Gets a view of what is about to leave the server, and returns what may: the view itself, changed or not, another one,
or None for nothing.

A view is an object with some of the keys `messages`, `state`, `artifacts`, `error` (`{"status", "message", "details"?}`),
`interrupts` (questions that wait for a person: `{"id", "name", "reason", "response"}`) and `app_data`: those that leave this
time. What is missing in the result does not leave. It may be asynchronous.
"""


async def shaped(
    transform: StateTransform | None, view: dict[str, Any], context: TransformContext
) -> dict[str, Any] | None:
    """What may leave of a view.

    Args:
        transform: None: all of it.
        view: It is left as it is.
        context: What it is for.

    Raises:
        StateTransformError: If the transform failed, or returned something else.
        AntiphonError: What the transform raised, if it is one.
    """
    if transform is None:
        return view
    try:
        result = transform(copy_json(view), context)
        if inspect.isawaitable(result):
            result = await result
    except AntiphonError:
        raise
    except Exception as error:
        raise StateTransformError(f"state_transform failed on the {context.purpose}, which is withheld") from error
    if result is not None and not isinstance(cast("object", result), dict):
        raise StateTransformError(f"state_transform returned {type(result).__name__}, not a dict or None")
    return result


class Presenter:
    """Makes what a run tells fit to leave the server, in its order.

    Args:
        transform: Shapes it.
        session_id: The run's session.
    """

    def __init__(self, transform: StateTransform | None, session_id: str) -> None:
        self._transform = transform
        self._context = TransformContext(session_id, None, "chunk")
        self._shown: Any = None
        self._is_based = False
        self._failure: AntiphonError | None = None

    async def chunk(self, told: Told) -> RunChunk | None:
        """What leaves of one thing; None: nothing. After a failure nothing more leaves."""
        if isinstance(told, TurnBegins):
            self._is_based = False
            self._context = replace(self._context, snapshot_id=told.snapshot_id)
            return None
        if isinstance(told, TurnEnd):
            return told
        if self._failure is not None:
            return None
        try:
            return await self._chunk(told)
        except AntiphonError as error:
            self._failure = error
            return None

    async def _chunk(self, told: StateChanged | ModelChunk | ArtifactChunk) -> RunChunk | None:
        if isinstance(told, ModelChunk):
            if self._transform is None:
                return told
            view = await self._shaped({"messages": [{"role": told.role, "content": told.content}]})
            messages = cast("list[Message]", (view or {}).get("messages") or [])
            if not messages:
                return replace(told, content=[]) if told.replaces else None
            content: list[ContentBlock] = [block for message in messages for block in message["content"]]
            return replace(told, content=content)
        if isinstance(told, ArtifactChunk):
            if self._transform is None:
                return told
            view = await self._shaped({"artifacts": [told.artifact.to_dict()]})
            artifacts = read_artifacts((view or {}).get("artifacts"), "artifacts of state_transform")
            return ArtifactChunk(artifacts[0]) if artifacts else None
        view = await self._shaped({"state": told.state})
        if view is None or "state" not in view:
            return None
        before, self._shown = self._shown, view["state"]
        whole = [{"op": "replace", "path": "", "value": self._shown}]
        patch = make_patch(before, self._shown) if self._is_based else whole
        self._is_based = True
        return CustomPatch(patch) if patch else None

    async def _shaped(self, view: dict[str, Any]) -> dict[str, Any] | None:
        return await shaped(self._transform, view, self._context)

    async def output(self, output: RunOutput, sign: Callable[[dict[str, Any]], dict[str, Any]]) -> RunOutput:
        """A run's output as it leaves. Where the transform failed, it is a failure without any of the content.

        Args:
            output: As the run made it.
            sign: Makes what a client keeps of a shaped `output.state`.
        """
        context = replace(self._context, snapshot_id=output.snapshot_id, purpose="output")
        try:
            if self._failure is not None:
                raise self._failure
            shown = output if self._transform is None else await self._output(output, context)
            if shown.state is not None:
                state = await shaped(self._transform, shown.state, replace(context, purpose="state"))
                shown = replace(shown, state=None if state is None else sign(state))
            return shown
        except AntiphonError as error:
            return RunOutput(
                session_id=output.session_id,
                snapshot_id=output.snapshot_id,
                finish_reason="failed",
                error=RunError(error.status, "what was to be returned could not be shaped, and is withheld"),
            )

    async def _output(self, output: RunOutput, context: TransformContext) -> RunOutput:
        view: dict[str, Any] = {
            "messages": [] if output.message is None else [output.message],
            "artifacts": [artifact.to_dict() for artifact in output.artifacts],
        }
        if output.error is not None:
            view["error"] = output.error.to_dict()
        if output.interrupts:
            view["interrupts"] = [question.to_dict() for question in output.interrupts]
        left = await shaped(self._transform, view, context) or {}
        messages = cast("list[Message]", left.get("messages") or [])
        artifacts: list[Artifact] = read_artifacts(left.get("artifacts"), "artifacts of state_transform")
        error = shaped_error(output.error, left)
        return replace(
            output,
            message=messages[-1] if messages else None,
            artifacts=tuple(artifacts),
            error=error,
            interrupts=_shaped_questions(output.interrupts, left.get("interrupts")),
            unsaved=None if output.unsaved is None else RunError(output.unsaved.status, "the turn could not be saved"),
        )


def _shaped_questions(questions: tuple[Interrupt, ...], left: Any) -> tuple[Interrupt, ...]:
    """Questions as they leave, by their ids: what is shown with them is what the transform left."""
    try:
        reasons = {entry["id"]: entry.get("reason") for entry in left or ()}
    except (TypeError, KeyError, AttributeError) as error:
        raise StateTransformError("interrupts of state_transform are no list of objects with an id") from error
    return tuple(replace(each, reason=reasons[each.id]) for each in questions if each.id in reasons)


def shaped_error(error: RunError | None, left: dict[str, Any]) -> RunError | None:
    """An error as it leaves: that there was one, and of which kind, is always told."""
    if error is None:
        return None
    told = left.get("error")
    return RunError.from_dict(cast("dict[str, Any]", told)) if isinstance(told, dict) else RunError(error.status, "")
