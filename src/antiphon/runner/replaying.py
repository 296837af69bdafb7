"""What a run came to, as its row tells."""

from __future__ import annotations

from typing import Any

from antiphon.artifacts import read_artifacts
from antiphon.content import Message, Messages
from antiphon.conversation.journal import Journal
from antiphon.interrupts import Interrupt, InterruptState
from antiphon.runner.outputs import RunError, RunOutput, finish_of_row
from antiphon.store.base import SessionSnapshot


def output_of_row(row: SessionSnapshot) -> RunOutput:
    """The output of the run that wrote a settled row last.

    Raises:
        InvalidInputError: If its state is malformed.
        SnapshotException: If its journal is.
    """
    snapshot = row.loaded()
    data: dict[str, Any] = {} if snapshot is None else snapshot.data
    finish = finish_of_row(row)
    failed = row.status == "failed"
    questions = InterruptState.from_dict(data.get("interrupt_state") or {})
    messages: Messages = data.get("messages") or []
    said: Message | None = questions.context.get("tool_use_message") if finish == "interrupted" else None
    if said is None and messages:
        said = messages[-1]
    return RunOutput(
        session_id=row.session_id,
        snapshot_id=row.snapshot_id,
        message=None if failed or said is None or said["role"] != "assistant" else said,
        artifacts=() if failed else tuple(read_artifacts(data.get("artifacts"))),
        finish_reason=finish,
        error=None if row.error is None else RunError.from_dict(row.error),
        usage=row.usage or {},
        # A run that failed because it went on past questions has left them open.
        interrupts=_open_questions(row, questions) if finish == "interrupted" or questions.activated else (),
    )


def _open_questions(row: SessionSnapshot, state: InterruptState) -> tuple[Interrupt, ...]:
    """What waits for a person: of a typed turn in its state, of a talk in the journal beside it."""
    if state.activated or row.journal is None:
        return tuple(state.open())
    calls = Journal.from_dict(row.journal).calls
    return tuple(call.question for call in calls if call.question is not None and call.result is None)
