"""The provider's events on the wire, typed. Source: the events of OpenAI's Realtime API, in its released form.

Fields that nobody here needs are left out, and those that a compatible server may leave out have defaults.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from antiphon.errors import ModelProtocolError

_TOLD = 200
"""Characters of a broken frame that an error shows."""


class Trouble(Struct):
    """What went wrong, in the provider's words; `event_id` is the client event that it answers."""

    message: str | None = None
    type: str | None = None
    code: str | None = None
    param: Any = None
    event_id: str | None = None


class Item(Struct):
    """A part of the conversation."""

    id: str | None = None
    type: str = ""
    status: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: Any = None


class StatusDetails(Struct):
    """Why a response is not complete."""

    type: str | None = None
    reason: str | None = None
    error: Trouble | None = None


class Response(Struct):
    """A response, as far as it is."""

    id: str | None = None
    status: str | None = None
    status_details: StatusDetails | None = None
    output: list[Item] | None = None
    usage: Any = None
    metadata: dict[str, Any] | None = None


class Session(Struct):
    """A session's configuration, of which only the names matter here."""

    id: str | None = None
    model: str | None = None


class RateLimit(Struct):
    """How much of a limit is left, and in how many seconds it is whole again."""

    remaining: float | None = None
    reset_seconds: float | None = None


class SessionCreated(Struct, tag="session.created"):
    """The connection has a session, with the provider's defaults."""

    session: Session


class SessionUpdated(Struct, tag="session.updated"):
    """The session is what it was told to be."""

    session: Session


class Failed(Struct, tag="error"):
    """Something went wrong; the session goes on."""

    error: Trouble


class SpeechStarted(Struct, tag="input_audio_buffer.speech_started"):
    """The user begins to speak."""

    item_id: str = ""


class Committed(Struct, tag="input_audio_buffer.committed"):
    """What the user said is an item now."""

    item_id: str = ""


class Cleared(Struct, tag="input_audio_buffer.cleared"):
    """The sound that was handed in is forgotten."""


class TimeoutTriggered(Struct, tag="input_audio_buffer.timeout_triggered"):
    """The user has been silent for long: the model speaks up."""

    item_id: str = ""


class HeardDelta(Struct, tag="conversation.item.input_audio_transcription.delta"):
    """Words of the user."""

    item_id: str
    delta: str | None = None


class HeardDone(Struct, tag="conversation.item.input_audio_transcription.completed"):
    """All words of the user."""

    item_id: str
    transcript: str | None = None


class HeardFailed(Struct, tag="conversation.item.input_audio_transcription.failed"):
    """The user's words will not be known."""

    item_id: str
    error: Trouble | None = None


class ItemAdded(Struct, tag="conversation.item.added"):
    """The conversation has this item."""

    item: Item


class ItemCreated(Struct, tag="conversation.item.created"):
    """The same, of servers of the API's first form."""

    item: Item


class ResponseCreated(Struct, tag="response.created"):
    """A response begins."""

    response: Response


class ResponseDone(Struct, tag="response.done"):
    """A response has ended, in whatever way."""

    response: Response


class OutputItemAdded(Struct, tag="response.output_item.added"):
    """A response has another part."""

    item: Item
    response_id: str = ""


class OutputItemDone(Struct, tag="response.output_item.done"):
    """A part of a response is complete, or cut off."""

    item: Item
    response_id: str = ""


class SoundDelta(Struct, tag="response.output_audio.delta", gc=False):
    """A piece of sound."""

    delta: bytes  # base64 on the wire
    response_id: str = ""
    item_id: str = ""


class SoundDone(Struct, tag="response.output_audio.done"):
    """The sound of a part is complete."""

    response_id: str = ""
    item_id: str = ""


class SpokenDelta(Struct, tag="response.output_audio_transcript.delta", gc=False):
    """Words that go with the sound."""

    delta: str
    response_id: str = ""
    item_id: str = ""


class SpokenDone(Struct, tag="response.output_audio_transcript.done"):
    """All words of a part."""

    response_id: str = ""
    item_id: str = ""
    transcript: str | None = None


class TextDelta(Struct, tag="response.output_text.delta", gc=False):
    """Written words."""

    delta: str
    response_id: str = ""
    item_id: str = ""


class TextDone(Struct, tag="response.output_text.done"):
    """All written words of a part."""

    response_id: str = ""
    item_id: str = ""
    text: str | None = None


class RateLimits(Struct, tag="rate_limits.updated"):
    """What is left of the account's limits."""

    rate_limits: Any = None

    def limits(self) -> list[RateLimit]:
        """Those that can be read: nothing depends on them but the length of a pause."""
        try:
            return msgspec.convert(self.rate_limits or [], list[RateLimit])
        except msgspec.ValidationError:
            return []


class Other(Struct):
    """An event that nothing here depends on."""

    type: str


ServerEvent = (
    SessionCreated
    | SessionUpdated
    | Failed
    | SpeechStarted
    | Committed
    | Cleared
    | TimeoutTriggered
    | HeardDelta
    | HeardDone
    | HeardFailed
    | ItemAdded
    | ItemCreated
    | ResponseCreated
    | ResponseDone
    | OutputItemAdded
    | OutputItemDone
    | SoundDelta
    | SoundDone
    | SpokenDelta
    | SpokenDone
    | TextDelta
    | TextDone
    | RateLimits
)

_EVENTS = msgspec.json.Decoder(ServerEvent)
_OTHERS = msgspec.json.Decoder(Other)
_READ = {event.__struct_config__.tag for event in ServerEvent.__args__}

EXPECTED = frozenset(
    {
        "conversation.created",
        "conversation.item.deleted",
        "conversation.item.done",
        "conversation.item.input_audio_transcription.segment",
        "conversation.item.retrieved",
        "conversation.item.truncated",
        "input_audio_buffer.dtmf_event_received",
        "input_audio_buffer.speech_stopped",
        "mcp_list_tools.completed",
        "mcp_list_tools.in_progress",
        "response.content_part.added",
        "response.content_part.done",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.mcp_call.completed",
        "response.mcp_call.in_progress",
        "response.mcp_call_arguments.delta",
        "response.mcp_call_arguments.done",
    }
)
"""Events that come in the course of things and say nothing that others do not say, too."""


def read_event(frame: str | bytes) -> ServerEvent | Other:
    """The event in a frame.

    Raises:
        ModelProtocolError: If it is none, or one of a known type that is not what it should be.
    """
    try:
        return _EVENTS.decode(frame)
    except msgspec.DecodeError as error:
        try:
            other = _OTHERS.decode(frame)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise ModelProtocolError(f"{_shown(frame)} is no event of the Realtime API: {error}") from error
        if other.type in _READ:
            raise ModelProtocolError(f"an event {other.type!r} cannot be read: {error}") from error
        return other
    except (UnicodeDecodeError, RecursionError) as error:
        raise ModelProtocolError(f"{_shown(frame)} is no event of the Realtime API: {error}") from error


def _shown(frame: str | bytes) -> str:
    return repr(frame if len(frame) <= _TOLD else frame[:_TOLD]) + ("" if len(frame) <= _TOLD else " (and so on)")
