"""The embedded model for conversations in turns."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from antiphon.clock import SYSTEM_CLOCK, Clock
from antiphon.content import Messages, SystemContentBlock, ToolSpec
from antiphon.errors import InvalidInputError, ModelError
from antiphon.models.base import Model, StreamEvent
from antiphon.models.embedded.mind import decide
from antiphon.models.embedded.script import Answer, ScriptedAnswer
from antiphon.models.embedded.stream import count_calls, stream_answer


class EmbeddedModel(Model):
    """A model that needs no key and no network: a function of the history and the tools.

    Args:
        script: Answers to give in turn, instead of thinking.
        clock: Paces the words.
        word_seconds: Seconds before each word of an answer.
        stateful: Whether the model keeps the history (the agent then sends only what is new).
    """

    def __init__(
        self,
        *,
        script: Sequence[ScriptedAnswer] | None = None,
        clock: Clock = SYSTEM_CLOCK,
        word_seconds: float = 0.0,
        stateful: bool = False,
    ) -> None:
        self._script = None if script is None else list(script)
        self._clock = clock
        self._stateful = stateful
        self._config: dict[str, Any] = {"model_id": "embedded", "word_seconds": word_seconds}
        self._asked = 0
        self._calls = 0

    @property
    def stateful(self) -> bool:
        return self._stateful

    def get_config(self) -> dict[str, Any]:
        return dict(self._config)

    def update_config(self, **config: Any) -> None:
        """Change `word_seconds` or `model_id`.

        Raises:
            InvalidInputError: If the name is another.
        """
        unknown = sorted(set(config) - set(self._config))
        if unknown:
            raise InvalidInputError(f"config={unknown!r} is unknown: the embedded model has {sorted(self._config)}")
        self._config.update(config)

    async def stream(
        self,
        messages: Messages,
        tool_specs: list[ToolSpec] | None = None,
        system_prompt: str | list[SystemContentBlock] | None = None,
        *,
        model_state: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[StreamEvent]:
        answer = (
            self._think(messages, tool_specs) if self._script is None else self._next_answer(self._script, messages)
        )
        if self._stateful and model_state is not None:
            model_state["response_id"] = f"response-{self._asked}"
        # The history may be older than this object: an id that stands in it must not come again.
        first_call = 1 + max(self._calls, count_calls(messages))
        self._calls = first_call - 1 + len(answer.tool_uses)
        async for event in stream_answer(
            answer,
            messages=messages,
            first_call=first_call,
            clock=self._clock,
            word_seconds=self._config["word_seconds"],
        ):
            yield event

    def _think(self, messages: Messages, tool_specs: list[ToolSpec] | None) -> Answer:
        self._asked += 1
        decision = decide(messages, tool_specs)
        return Answer(text=decision.text, tool_uses=decision.calls)

    def _next_answer(self, script: Sequence[ScriptedAnswer], messages: Messages) -> Answer:
        self._asked += 1
        if self._asked > len(script):
            raise ModelError(
                f"the script of {len(script)} answers is used up, and this is request {self._asked}: give it more"
            )
        answer = script[self._asked - 1]
        if callable(answer):
            answer = answer(messages)
        if isinstance(answer, Exception):
            raise answer
        return Answer(text=answer) if isinstance(answer, str) else answer
