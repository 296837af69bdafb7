"""The embedded model for live conversations."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from copy import deepcopy
from functools import partial
from typing import Any, cast

from antiphon.clock import SYSTEM_CLOCK, Clock
from antiphon.content import AudioDelta, BidiMessage, Messages, ToolResultBlock, ToolSpec
from antiphon.errors import ConnectionEndedError, InvalidInputError, MissingExtraError
from antiphon.events import BidiConnectionStartEvent, OutputEvent
from antiphon.iothread import run_in_worker
from antiphon.models.bidi import AudioConfig, BidiModel, ConnectionConfig
from antiphon.models.embedded.conversation import Conversation
from antiphon.models.embedded.ears import Ears, Heard, Partial, SpeechStart
from antiphon.models.embedded.grammar import Grammar, build_grammar
from antiphon.models.embedded.line import Line
from antiphon.models.embedded.mouth import Mouth, ToneMouth, Voice
from antiphon.models.embedded.phrases import phrases
from antiphon.models.embedded.player import Player
from antiphon.models.embedded.script import Step
from antiphon.models.embedded.speaker import Speaker
from antiphon.models.embedded.sphinx import knows_word, require
from antiphon.models.embedded.vad import SpeechStarted, Vad


class EmbeddedBidiModel(BidiModel):
    """A live model that needs no key and no network.

    What it says and which tools it calls is a function of the history and the tools (`mind`). It speaks at the pace of
    the clock and knows when each word ends. Whoever speaks, or writes, while it speaks, cuts it short. Results of tools
    that come while it speaks wait for the end of its sentence.

    With the extra `voice` it understands English and speaks it. What the tools may be told is a grammar; speech that is
    not surely of it is answered, and calls no tool. Without the extra it speaks in tones and hears only *that* somebody
    speaks.

    Args:
        voice: Whether to use the extra; None: where it is installed.
        script: Steps to play instead of thinking; over however many connections, each step once.
        clock: Paces speech.
        mouth: Another voice to speak with.
        sample_rate: Of the sound it hears, in Hz.
        endpoint_ms: How long the user must be quiet to have finished.
        connection: What `get_connection_config` gives.

    Raises:
        MissingExtraError: If `voice` is True and the extra is not installed.
    """

    def __init__(
        self,
        *,
        voice: bool | None = None,
        script: Sequence[Step] | None = None,
        clock: Clock = SYSTEM_CLOCK,
        mouth: Voice | None = None,
        sample_rate: int = 16000,
        endpoint_ms: float = 500,
        connection: ConnectionConfig | None = None,
    ) -> None:
        self._clock = clock
        self._voiced = _has_voice() if voice is None else voice
        if voice:
            _require_voice()
        self._mouth: Voice = mouth or (Mouth() if self._voiced else ToneMouth())
        self._player = None if script is None else Player(script, clock=clock, voice=self._mouth)
        self._config: dict[str, Any] = {
            "model_id": "embedded",
            "connection": connection or {},
            "sample_rate": sample_rate,
            "endpoint_ms": endpoint_ms,
        }
        self._numbers: Counter[str] = Counter()
        self._line = Line()
        self._line.end()
        self._conversation: Conversation | None = None
        self._ears: Ears | None = None
        self._vad: Vad | None = None
        self._task: asyncio.Task[None] | None = None

    def get_config(self) -> dict[str, Any]:
        return deepcopy(self._config)

    def update_config(self, **config: Any) -> None:
        """Change `connection`, `endpoint_ms`, `sample_rate` or `model_id` from the next connection on.

        Raises:
            InvalidInputError: If the name is another.
        """
        unknown = sorted(set(config) - set(self._config))
        if unknown:
            raise InvalidInputError(f"config={unknown!r} is unknown: the embedded model has {sorted(self._config)}")
        self._config.update(deepcopy(config))

    def get_audio_config(self) -> AudioConfig:
        """16-bit mono PCM both ways."""
        return {
            "input": {"sample_rate": self._config["sample_rate"], "channels": 1, "format": "pcm"},
            "output": {"sample_rate": self._mouth.sample_rate, "channels": 1, "format": "pcm"},
        }

    async def start(
        self,
        system_prompt: str | None = None,
        tools: list[ToolSpec] | None = None,
        messages: Messages | None = None,
        **kwargs: Any,
    ) -> None:
        await self._hang_up()
        self._line = line = Line()
        self._numbers["connection"] += 1
        line.post(
            BidiConnectionStartEvent(
                connection_id=f"connection-{self._numbers['connection']}", model=self._config["model_id"]
            )
        )
        if self._player is not None:
            work = partial(self._player.play, line)
        else:
            conversation = Conversation(line, messages or [], tools or [], self._numbers, knows_words=self._voiced)
            speaker = Speaker(line, self._mouth, self._clock, conversation.remember)
            conversation.speak_with(speaker)
            self._conversation = conversation
            if self._voiced:
                self._ears = Ears(
                    sample_rate=self._config["sample_rate"],
                    grammar=await run_in_worker(_grammar, tools or []),
                    endpoint_ms=self._config["endpoint_ms"],
                )
                await self._ears.start()
            else:
                self._vad = Vad(self._config["sample_rate"], end_ms=self._config["endpoint_ms"])
            work = partial(_converse, conversation, speaker, self._ears)
        # The supervised task of this connection; `stop` ends it.
        self._task = asyncio.create_task(_supervise(work, line), name="embedded-model")  # noqa: TID251

    async def stop(self) -> None:
        await self._hang_up()

    async def _hang_up(self) -> None:
        self._line.end()
        task, self._task = self._task, None
        ears, self._ears = self._ears, None
        self._conversation = self._vad = None
        try:
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        finally:
            if ears is not None:
                await ears.close()

    async def send(self, content: BidiMessage | AudioDelta, /) -> None:
        if self._line.over:
            raise ConnectionEndedError("the embedded model is not connected: start it first")
        if self._player is not None:
            self._player.note_sent(content)
        elif isinstance(content, AudioDelta):
            self._listen(content.audio)
        elif self._conversation is not None:
            results = [block for block in content.content if isinstance(block, ToolResultBlock)]
            words = [block.to_dict() for block in content.content if not isinstance(block, ToolResultBlock)]
            if results:
                self._conversation.results(results)
            if words:
                self._conversation.typed(words)

    def _listen(self, pcm: bytes) -> None:
        if self._ears is not None:
            self._ears.feed(pcm)
        elif self._vad is not None and self._conversation is not None:
            for event in self._vad.feed(pcm):
                if isinstance(event, SpeechStarted):
                    self._conversation.speech_started()
                else:
                    self._conversation.heard("", trusted=False)

    def receive(self) -> AsyncIterator[OutputEvent]:
        return self._line.events()

    async def truncate(self, response_id: str, played_ms: float) -> None:
        """The listener heard only the first `played_ms` of this response: the rest is forgotten."""
        if self._player is not None:
            self._player.note("truncate")
        elif self._conversation is not None:
            self._conversation.truncate(response_id, played_ms)


def _grammar(tools: list[ToolSpec]) -> Grammar:
    # In a thread: the first question for a word reads the dictionary.
    return build_grammar(phrases(tools), knows=knows_word)


def _require_voice() -> None:
    """Make sure that the extra is there.

    Raises:
        MissingExtraError: If not.
    """
    require()
    Mouth()


def _has_voice() -> bool:
    try:
        _require_voice()
    except MissingExtraError:
        return False
    return True


async def _supervise(work: Callable[[], Awaitable[None]], line: Line) -> None:
    """Run a connection's work; whatever breaks it ends the line with that error."""
    try:
        await work()
    except* Exception as errors:  # noqa: BLE001 - whatever breaks it, the call must end
        line.end(_first(errors))


def _first(error: Exception) -> Exception:
    if isinstance(error, ExceptionGroup):
        return _first(cast("ExceptionGroup[Exception]", error).exceptions[0])
    return error


async def _converse(conversation: Conversation, speaker: Speaker, ears: Ears | None) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(speaker.run())
        if ears is not None:
            async for event in ears:
                match event:
                    case SpeechStart():
                        conversation.speech_started()
                    case Partial(text):
                        conversation.understood(text)
                    case Heard(text, matched=matched):
                        conversation.heard(text, trusted=matched)
                    case _:
                        pass  # the end of speech says nothing that `Heard` does not
