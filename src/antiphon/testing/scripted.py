"""Models that follow a script and remember what they were asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from antiphon.clock import SYSTEM_CLOCK, Clock
from antiphon.content import AudioDelta, BidiMessage, Messages, SystemContentBlock, ToolSpec
from antiphon.errors import ConnectionEndedError
from antiphon.events import OutputEvent
from antiphon.models.base import StreamEvent
from antiphon.models.bidi import AudioConfig, BidiModel, ConnectionConfig
from antiphon.models.embedded.line import Line
from antiphon.models.embedded.mouth import Voice
from antiphon.models.embedded.player import Player
from antiphon.models.embedded.script import ScriptedAnswer, Step
from antiphon.models.embedded.speech import SilentVoice
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """With what a live model was started; all of it a copy, as it was at that moment."""

    system_prompt: str | None
    tools: list[ToolSpec] | None
    messages: Messages | None
    config: dict[str, Any]


class ScriptedBidiModel(BidiModel):
    """A live model that follows a script, and that a test can drive by hand.

    The script is played once, over however many connections: after an `Expire`, an `End` or a `stop()` the next
    connection goes on with the next step. When it is used up, the connection stays open and silent.

    Args:
        script: The steps (`antiphon.models.embedded.script`).
        clock: Paces the steps.
        voice: Speaks; left out, sound is silence of the right length at 24 kHz, three words a second.
        restartable: Whether the model offers `restart` (is `Restartable`).
        truncatable: Whether it offers `truncate` (is `Truncatable`).
        stateful: Whether it keeps the history.
        connection: What `get_connection_config()` gives.
        start_errors: What the first, second, ... `start` or `restart` raises; None is success.
        keep_audio: Whether `sent` keeps sound.

    Attributes:
        sent: What was sent, in order.
        starts: With what it was started, restarts included.
        restarts: With what it was restarted.
        truncations: `(response_id, played_ms)` of each `truncate`.
        stops: How often it was stopped.
    """

    restart: Callable[..., Awaitable[None]]
    truncate: Callable[[str, float], Awaitable[None]]

    def __init__(
        self,
        script: Sequence[Step] = (),
        *,
        clock: Clock = SYSTEM_CLOCK,
        voice: Voice | None = None,
        restartable: bool = False,
        truncatable: bool = True,
        stateful: bool = False,
        connection: ConnectionConfig | None = None,
        start_errors: Sequence[Exception | None] = (),
        keep_audio: bool = True,
    ) -> None:
        self._voice = voice or SilentVoice()
        self._player = Player(script, clock=clock, voice=self._voice)
        self._line = Line()
        self._line.end()
        self._task: asyncio.Task[None] | None = None
        self._stateful = stateful
        self._keep_audio = keep_audio
        self._start_errors = list(start_errors)
        self._config: dict[str, Any] = {"model_id": "scripted", "connection": connection or {}}
        self.sent: list[BidiMessage | AudioDelta] = []
        self.starts: list[Start] = []
        self.restarts: list[Start] = []
        self.truncations: list[tuple[str, float]] = []
        self.stops = 0
        # `Restartable` and `Truncatable` are told by the presence of the method.
        if restartable:
            self.restart = self._restart
        if truncatable:
            self.truncate = self._truncate

    @property
    def stateful(self) -> bool:
        return self._stateful

    @property
    def connected(self) -> bool:
        """Whether a connection is open."""
        return not self._line.over

    @property
    def steps_left(self) -> int:
        """Steps of the script that did not begin yet."""
        return self._player.steps_left

    def get_config(self) -> dict[str, Any]:
        return deepcopy(self._config)

    def update_config(self, **config: Any) -> None:
        self._config.update(config)

    def get_audio_config(self) -> AudioConfig:
        """16 kHz in; out, what the voice gives."""
        return {
            "input": {"sample_rate": 16000, "channels": 1, "format": "pcm"},
            "output": {"sample_rate": self._voice.sample_rate, "channels": 1, "format": "pcm"},
        }

    async def start(
        self,
        system_prompt: str | None = None,
        tools: list[ToolSpec] | None = None,
        messages: Messages | None = None,
        **kwargs: Any,
    ) -> None:
        start = Start(
            system_prompt=system_prompt, tools=deepcopy(tools), messages=deepcopy(messages), config=deepcopy(kwargs)
        )
        self.starts.append(start)
        error = self._start_errors.pop(0) if self._start_errors else None
        if error is not None:
            raise error
        await self._hang_up()
        self._line = line = Line()
        # The supervised task of this connection; `stop` ends it.
        self._task = asyncio.create_task(self._play(line), name="script")  # noqa: TID251

    async def _play(self, line: Line) -> None:
        try:
            await self._player.play(line)
        except* Exception as errors:  # noqa: BLE001 - whatever breaks the script, the call must end
            line.end(errors.exceptions[0])

    async def _restart(
        self,
        system_prompt: str | None = None,
        tools: list[ToolSpec] | None = None,
        messages: Messages | None = None,
        **restart_config: Any,
    ) -> None:
        await self.start(system_prompt=system_prompt, tools=tools, messages=messages, **restart_config)
        self.restarts.append(self.starts[-1])

    async def stop(self) -> None:
        self.stops += 1
        await self._hang_up()

    async def _hang_up(self) -> None:
        self._line.end()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def send(self, content: BidiMessage | AudioDelta, /) -> None:
        if self._line.over:
            raise ConnectionEndedError("the scripted model is not connected: start it first")
        if self._keep_audio or not isinstance(content, AudioDelta):
            self.sent.append(content)
        self._player.note_sent(content)

    def receive(self) -> AsyncIterator[OutputEvent]:
        return self._line.events()

    async def _truncate(self, response_id: str, played_ms: float) -> None:
        self.truncations.append((response_id, played_ms))
        self._player.note("truncate")

    def add(self, *steps: Step) -> None:
        """Make the script longer. Call it on the loop's thread."""
        self._player.add(*steps)

    def feed(self, *events: OutputEvent) -> None:
        """Send events now, past the script. Call it on the loop's thread."""
        self._line.post(*events)

    def fail(self, error: Exception) -> None:
        """Let the connection fail after what was sent."""
        self._line.end(error)

    def end(self) -> None:
        """Let the connection end after what was sent."""
        self._line.end()

    def barge_in(self, response_id: str | None = None) -> None:
        """Cut a response, the latest when none is named: nothing more of it is sent."""
        self._player.barge_in(self._line, response_id)
