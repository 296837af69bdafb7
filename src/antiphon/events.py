"""Output events of a live call: what `BidiAgent.receive()` yields.

A model yields the same classes from its own `receive()`; the agent adds those marked *(agent)*. All are immutable,
sound is bytes (base64 exists only on wires), and every event has a `type` and a `to_dict()`.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, cast

import msgspec

from antiphon.content import Message, ToolResult, ToolUse

Role = Literal["user", "assistant"]


class Word(msgspec.Struct, frozen=True):
    """A word of an answer, placed in its sound.

    Attributes:
        text: The word as written, with its punctuation.
        end_ms: Where it ends, in milliseconds from the response's first sample.
        start_ms: Where it begins.
    """

    text: str
    end_ms: float
    start_ms: float = 0.0


class OutputEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all output events."""

    type: ClassVar[str] = "event"

    def to_dict(self) -> dict[str, Any]:
        """The event as JSON-ready data: its `type` and its fields, bytes as base64, errors as text."""
        return {"type": self.type, **{name: _plain(getattr(self, name)) for name in self.__struct_fields__}}


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return b64encode(value).decode("ascii")
    if isinstance(value, BaseException):
        return {"error": type(value).__name__, "message": str(value)}
    if isinstance(value, msgspec.Struct):
        return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in cast("Sequence[Any]", value)]
    return value


class BidiConnectionStartEvent(OutputEvent, frozen=True, kw_only=True):
    """The connection to the model is open."""

    type = "bidi_connection_start"
    connection_id: str = ""
    model: str = ""


class BidiConnectionRestartEvent(OutputEvent, frozen=True, kw_only=True):
    """*(agent)* The connection is about to be opened anew.

    Attributes:
        reason: `timeout` when the provider ended it, `scheduled` when the agent does so ahead of the limit.
        timeout_error: The provider's error, where there was one.
        turn_interrupted: Whether a response was under way or owed.
    """

    type = "bidi_connection_restart"
    reason: Literal["timeout", "scheduled"] = "timeout"
    timeout_error: Exception | None = None
    turn_interrupted: bool = False


class BidiConnectionWarningEvent(OutputEvent, frozen=True, kw_only=True):
    """The connection will end, or be restarted, in `time_left_s` seconds."""

    type = "bidi_connection_warning"
    time_left_s: float = 0.0


class BidiConnectionStopEvent(OutputEvent, frozen=True, kw_only=True):
    """*(agent)* The call was ended on request; `receive()` ends after it."""

    type = "bidi_connection_stop"
    connection_id: str = ""
    reason: Literal["user_request"] = "user_request"


class BidiResponseStartEvent(OutputEvent, frozen=True, kw_only=True):
    """The model begins a response."""

    type = "bidi_response_start"
    response_id: str


class BidiResponseStopEvent(OutputEvent, frozen=True, kw_only=True):
    """The model has delivered a response; its sound may still be playing.

    Attributes:
        response_id: The response.
        reason: Why there is no more of it, in the provider's words, when it did not simply end.
    """

    type = "bidi_response_stop"
    response_id: str
    reason: str = ""


class BidiAudioStartEvent(OutputEvent, frozen=True, kw_only=True):
    """Sound of a response begins."""

    type = "bidi_audio_start"
    content_id: str = ""
    response_id: str = ""


class BidiAudioDeltaEvent(OutputEvent, frozen=True, kw_only=True, gc=False):
    """A piece of sound: 16-bit little-endian PCM, `channels` interleaved, `sample_rate` in Hz."""

    type = "bidi_audio_delta"
    audio: bytes
    format: str = "pcm"
    sample_rate: int = 24000
    channels: int = 1
    content_id: str = ""
    response_id: str = ""


class BidiAudioStopEvent(OutputEvent, frozen=True, kw_only=True):
    """The sound of a response has been delivered."""

    type = "bidi_audio_stop"
    content_id: str = ""
    response_id: str = ""


class BidiTextStartEvent(OutputEvent, frozen=True, kw_only=True):
    """Written text begins."""

    type = "bidi_text_start"
    content_id: str = ""


class BidiTextDeltaEvent(OutputEvent, frozen=True, kw_only=True):
    """A piece of written text."""

    type = "bidi_text_delta"
    delta: str
    content_id: str = ""


class BidiTextStopEvent(OutputEvent, frozen=True, kw_only=True):
    """Written text is complete."""

    type = "bidi_text_stop"
    content_id: str = ""


class BidiTextBlockEvent(OutputEvent, frozen=True, kw_only=True):
    """*(agent)* The whole of a written text, after its stop event."""

    type = "bidi_text_block"
    text: str
    content_id: str = ""


class BidiReasoningStartEvent(OutputEvent, frozen=True, kw_only=True):
    """The model's reasoning begins."""

    type = "bidi_reasoning_start"
    content_id: str = ""


class BidiReasoningDeltaEvent(OutputEvent, frozen=True, kw_only=True):
    """A piece of the model's reasoning."""

    type = "bidi_reasoning_delta"
    delta: str
    content_id: str = ""


class BidiReasoningStopEvent(OutputEvent, frozen=True, kw_only=True):
    """The model's reasoning is complete."""

    type = "bidi_reasoning_stop"
    content_id: str = ""


class BidiReasoningBlockEvent(OutputEvent, frozen=True, kw_only=True):
    """*(agent)* The whole of a piece of reasoning, after its stop event."""

    type = "bidi_reasoning_block"
    text: str
    content_id: str = ""


class BidiTranscriptStartEvent(OutputEvent, frozen=True, kw_only=True):
    """Speech begins: of the model, or of the user. It reserves the place in the history; the words may come late."""

    type = "bidi_transcript_start"
    content_id: str = ""
    role: Role = "assistant"


class BidiTranscriptDeltaEvent(OutputEvent, frozen=True, kw_only=True):
    """Words of a transcript.

    Attributes:
        delta: The text to append.
        words: The same words with their times, where the engine knows them.
        partial: What is understood so far of the words after `delta`, for people to see: later events replace it, and it
            is not part of the transcript.
    """

    type = "bidi_transcript_delta"
    delta: str
    role: Role = "assistant"
    content_id: str = ""
    words: tuple[Word, ...] = ()
    partial: str = ""


class BidiTranscriptStopEvent(OutputEvent, frozen=True, kw_only=True):
    """A transcript is complete.

    Attributes:
        said: What the provider says was said in the end, where that is something else than the words it had announced: they
            were only its plan. None: those words.
    """

    type = "bidi_transcript_stop"
    role: Role = "assistant"
    content_id: str = ""
    said: str | None = None


class BidiTranscriptBlockEvent(OutputEvent, frozen=True, kw_only=True):
    """*(agent)* The whole of a transcript, after its stop event."""

    type = "bidi_transcript_block"
    transcript: str
    role: Role = "assistant"
    content_id: str = ""


class BidiBargeInEvent(OutputEvent, frozen=True, kw_only=True):
    """The user speaks over the model: silence the loudspeaker now.

    Attributes:
        response_id: The response that is cut; empty when the model does not say, which means the current one.
    """

    type = "bidi_barge_in"
    response_id: str = ""


class BidiUsageEvent(OutputEvent, frozen=True, kw_only=True):
    """Tokens used since the last such event."""

    type = "bidi_usage"
    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    input_token_details: dict[str, Any] | None = None
    output_token_details: dict[str, Any] | None = None


class BidiToolUseBlocksEvent(OutputEvent, frozen=True, kw_only=True):
    """The model calls tools; calls of one event run at the same time."""

    type = "bidi_tool_use_blocks"
    tool_uses: list[ToolUse]


class BidiToolUseCancelEvent(OutputEvent, frozen=True, kw_only=True):
    """The model takes calls back, because the user spoke over it: it wants no result of them any more.

    Attributes:
        tool_use_ids: The model's ids of the calls.
    """

    type = "bidi_tool_use_cancel"
    tool_use_ids: list[str]


class BidiInterruptEvent(OutputEvent, frozen=True, kw_only=True):
    """*(agent)* A tool waits for a person; the talk goes on. Answer with `agent.send([{"interruptResponse": ...}])`."""

    type = "bidi_interrupt"
    interrupts: list[dict[str, Any]]


class ToolStreamEvent(OutputEvent, frozen=True, kw_only=True):
    """*(agent)* A tool reports progress: `{"tool_use": ..., "data": ...}`."""

    type = "tool_stream"
    tool_stream_event: dict[str, Any]


class ToolResultEvent(OutputEvent, frozen=True, kw_only=True):
    """*(agent)* A tool has finished."""

    type = "tool_result"
    tool_result: ToolResult


class ToolCancelEvent(OutputEvent, frozen=True, kw_only=True):
    """*(agent)* A hook refused a tool call."""

    type = "tool_cancel"
    tool_use: ToolUse
    message: str = ""


class ToolResultMessageEvent(OutputEvent, frozen=True, kw_only=True):
    """*(agent)* The results of a group of calls are in the history, in this message."""

    type = "tool_result_message"
    message: Message


BidiOutputEvent = OutputEvent
