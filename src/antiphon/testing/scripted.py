"""Models that follow a script and remember what they were asked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from antiphon.clock import SYSTEM_CLOCK, Clock
from antiphon.content import Messages, SystemContentBlock, ToolSpec
from antiphon.models.base import StreamEvent
from antiphon.models.embedded.script import ScriptedAnswer
from antiphon.models.embedded.turns import EmbeddedModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a turn-based model was asked; all of it a copy, as it was at that moment."""

    messages: Messages
    tool_specs: list[ToolSpec] | None
    system_prompt: str | list[SystemContentBlock] | None
    model_state: dict[str, Any] | None


class ScriptedModel(EmbeddedModel):
    """The embedded model with a script.

    Args:
        script: The answers, one a request: a text, an `Answer`, an error to raise, or a function of the history that
            makes one of these. A request beyond the last one raises `ModelError`.
        word_seconds: Seconds before each word, on `clock`.
        clock: Paces the words.
        stateful: Whether the model keeps the history; it then writes `response_id` into the `model_state`.

    Attributes:
        requests: What was asked, in order.
    """

    def __init__(
        self,
        script: Sequence[ScriptedAnswer],
        *,
        word_seconds: float = 0.0,
        clock: Clock = SYSTEM_CLOCK,
        stateful: bool = False,
    ) -> None:
        super().__init__(script=script, clock=clock, word_seconds=word_seconds, stateful=stateful)
        self.requests: list[Request] = []

    async def stream(
        self,
        messages: Messages,
        tool_specs: list[ToolSpec] | None = None,
        system_prompt: str | list[SystemContentBlock] | None = None,
        *,
        model_state: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[StreamEvent]:
        self.requests.append(
            Request(
                messages=deepcopy(messages),
                tool_specs=deepcopy(tool_specs),
                system_prompt=deepcopy(system_prompt),
                model_state=deepcopy(model_state),
            )
        )
        async for event in super().stream(messages, tool_specs, system_prompt, model_state=model_state, **kwargs):
            yield event
