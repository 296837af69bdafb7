"""What a guardrail's verdict takes back. Pure.

Shapes: "GuardrailTraceAssessment" of the Amazon Bedrock API reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from antiphon.models.base import StreamEvent


def redactions(config: Mapping[str, Any], *, intervened: bool, trace: Mapping[str, Any] | None) -> list[StreamEvent]:
    """The events that replace what a guardrail has blocked.

    Where the trace says which side was blocked, only that side is taken back. Where it says nothing of a block (the trace is
    disabled), an intervention counts for both sides, as far as the configuration wants them replaced. What a guardrail
    only masked stays as the guardrail left it.

    Args:
        config: The model's configuration.
        intervened: Whether the answer ended with `guardrail_intervened`.
        trace: `trace.guardrail` of the answer's metadata.
    """
    if trace is None:
        user = assistant = intervened
    else:
        user, assistant = _blocks(trace.get("inputAssessment")), _blocks(trace.get("outputAssessments"))
    events: list[StreamEvent] = []
    if user and config.get("guardrail_redact_input", True):
        text = config.get("guardrail_redact_input_message") or "[User input redacted.]"
        events.append({"redactContent": {"redactUserContentMessage": text}})
    if assistant and config.get("guardrail_redact_output", False):
        text = config.get("guardrail_redact_output_message") or "[Assistant output redacted.]"
        events.append({"redactContent": {"redactAssistantContentMessage": text}})
    return events


def _blocks(assessment: object) -> bool:
    """Whether a policy within has blocked: each says what it did in `action`."""
    if isinstance(assessment, Mapping):
        entries = cast("Mapping[str, object]", assessment)
        if entries.get("action") == "BLOCKED" and entries.get("detected", True) is not False:
            return True
        return any(_blocks(value) for value in entries.values())
    if isinstance(assessment, list):
        return any(_blocks(value) for value in cast("list[object]", assessment))
    return False
