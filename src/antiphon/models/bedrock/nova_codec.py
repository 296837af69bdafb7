"""The protocol of Nova Sonic: events of JSON in messages of an event stream, both ways. Pure.

Sources: "Using the Amazon Nova Sonic Speech-to-Speech model: Input events, Output events, Handling errors", Amazon Nova User
Guide; `InvokeModelWithBidirectionalStream`, Amazon Bedrock API reference.
"""

from __future__ import annotations

import json
import logging
from base64 import b64encode
from binascii import a2b_base64
from collections.abc import Sequence
from typing import Any, cast

import msgspec

from antiphon.audio import bytes_for_ms, silence
from antiphon.content import AudioDelta, BidiMessage, ImageBlock, TextBlock, ToolResultBlock, ToolUseBlock
from antiphon.errors import (
    AntiphonError,
    AudioFormatError,
    ConnectionEndedError,
    ConnectionTimeoutError,
    InvalidInputError,
    ModelConnectionError,
    ModelProtocolError,
    TransportError,
)
from antiphon.events import OutputEvent
from antiphon.jsonable import clean_text
from antiphon.models.bedrock.failures import refusal
from antiphon.models.bedrock.nova_opening import LONGEST_MESSAGE, Opening, result_json, spoken_result
from antiphon.models.bedrock.nova_output import Output
from antiphon.models.live import CONTINUE, Codec, Owed, Sightings
from antiphon.transports.base import Frame
from antiphon.transports.eventstream import Decoder, Message, encode_headers, framed

LONGEST_PIECE_MS = 100.0
"""Sound that is sent in one event; the model wants it in small pieces."""
LATE_RESULT_S = 30.0
"""How long a result that can only be told in words waits for the model to have finished speaking."""
_WAITING = 16
_SILENCE, _LATE, _FAILURE = "silence", "late", "failure"
_TIME_IS_UP = ("InternalErrorCode=531", "System instability detected", "Timed out waiting")
_NOT_FATAL = "Tool Response parsing error"

_log = logging.getLogger(__name__)


class NovaSonicCodec(Codec):
    """One session.

    Args:
        opening: What it begins with.
        prompt: A name for its prompt, new for each session.
        region: Told in errors.
        silence_s: Send so much silence whenever nobody has sent sound for so long; None: never.

    Attributes:
        unknown: Events that are none of the protocol's as we know it, by name. They are counted, not errors: providers add
            events.
    """

    def __init__(self, opening: Opening, prompt: str, *, region: str = "", silence_s: float | None = 0.2) -> None:
        super().__init__()
        self.unknown = Sightings()
        self._opening = opening
        self._prompt = prompt
        self._region = region
        self._silence_s = silence_s
        self._decoder = Decoder()
        self._output = Output(prompt, opening.output_rate, self.unknown)
        self._blocks = 0
        self._spoken_to = False  # sound was sent since the last alarm
        self._late: list[str] = []  # results to be told in words
        self._asked: dict[str, tuple[str, Any]] = {}  # calls that another connection knew
        self._last_result = ""
        self._failure: Exception | None = None

    @property
    def owed(self) -> Owed:
        owed = self._output.owed
        if owed == "said" and self._opening.asks == CONTINUE and not self._output.has_begun:
            return "cut"
        return owed or ("said" if self._late else "")

    def open(self) -> None:
        opening = self._opening
        self._emit(opening.session_start())
        self._emit(opening.prompt_start(self._prompt))
        self._text(opening.system_prompt, "SYSTEM", interactive=False)
        for role, text in opening.history:
            self._text(text, role.upper(), interactive=False)
        self._emit(opening.audio_start(self._prompt, self._audio_name))
        if opening.asks:
            self._text(opening.asks, "USER", interactive=True)
        self.ready = True
        if self._silence_s is not None:
            self.alarms[_SILENCE] = self._silence_s

    def send(self, content: BidiMessage | AudioDelta, /) -> None:
        if isinstance(content, AudioDelta):
            self._sound(content)
            return
        words: list[str] = []
        for block in content.content:
            match block:
                case TextBlock(text):
                    words.append(text)
                case ImageBlock():
                    raise InvalidInputError("Nova Sonic takes no images: send text, or use a model that sees")
                case ToolUseBlock(tool_use_id, name, asked):
                    self._asked[tool_use_id] = name, asked
                case ToolResultBlock():
                    pass
        text = "\n".join(words)
        if text.strip():
            self._typed(text)
        for block in content.content:
            if isinstance(block, ToolResultBlock):
                self._result(block)

    def receive(self, frame: Frame, /) -> Sequence[OutputEvent]:
        if self._failure is not None:
            raise self._failure
        events: list[OutputEvent] = []
        try:
            for message in self._decoder.feed(frame.encode() if isinstance(frame, str) else frame):
                events += self._event(message)
            self._decoder.feed(b"")  # raises if the bytes broke behind these messages
        except AntiphonError as error:
            failure = self._unreadable(error) if isinstance(error, TransportError) else error
            if not events:
                raise failure from error
            # What came before it is told first.
            self._failure = failure
            self.alarms[_FAILURE] = 0.0
        if self._late and self._output.idle:
            self._tell_late()
        return events

    def close(self) -> None:
        self._emit({"contentEnd": {"promptName": self._prompt, "contentName": self._audio_name}})
        self._emit({"promptEnd": {"promptName": self._prompt}})
        self._emit({"sessionEnd": {}})

    def ring(self, name: str, /) -> None:
        if name == _FAILURE and self._failure is not None:
            raise self._failure
        if name == _LATE:
            self._tell_late()
        elif self._silence_s is not None:
            if not self._spoken_to and len(self.outbox) < _WAITING:  # else the network takes nothing now
                self._pcm(silence(self._silence_s * 1000, self._opening.input_rate))
            self._spoken_to = False
            self.alarms[_SILENCE] = self._silence_s

    def explain(self, error: TransportError | None, /) -> Exception:
        if self._failure is not None:
            return self._failure
        if error is None:
            try:
                self._decoder.end()
            except TransportError as broken:
                return self._unreadable(broken)
            return ConnectionEndedError(f"Bedrock ended the session of {self._opening.model_id!r} without a word")
        if not error.opened:
            return ModelConnectionError(
                f"Amazon Bedrock in region {self._region!r} cannot be reached: {error}: check the network, the region, "
                "endpoint_url and tls"
            )
        if error.code:
            code, _, told = error.reason.partition(": ")
            return self._refused(code, told)
        if error.reason.startswith("RST_STREAM"):
            # The servers of the service come and go; the session goes on with another one.
            return ConnectionTimeoutError(f"Bedrock dropped the session: {error}")
        return ConnectionEndedError(f"the connection to Bedrock was lost: {error}")

    # What goes out.

    @property
    def _audio_name(self) -> str:
        return f"{self._prompt}-audio"

    def _emit(self, event: dict[str, Any]) -> None:
        self._put(json.dumps({"event": event}).encode())

    def _put(self, event: bytes) -> None:
        self.outbox.append(framed(_HEAD, b'{"bytes":"' + b64encode(event) + b'"}'))

    def _block(self) -> str:
        self._blocks += 1
        return f"{self._prompt}-{self._blocks}"

    def _text(self, text: str, role: str, *, interactive: bool) -> None:
        if interactive:
            self._output.prompted()
        names = {"promptName": self._prompt, "contentName": self._block()}
        start = {"type": "TEXT", "interactive": interactive, "role": role, "textInputConfiguration": _PLAIN}
        self._emit({"contentStart": {**names, **start}})
        self._emit({"textInput": {**names, "content": clean_text(text)}})
        self._emit({"contentEnd": names})

    def _typed(self, text: str) -> None:
        if self._opening.is_first_generation:
            raise InvalidInputError(
                f"{self._opening.model_id!r} takes no typed text during a talk: use amazon.nova-2-sonic-v1:0"
            )
        size = len(text.encode("utf-8", "replace"))
        if size > LONGEST_MESSAGE:
            raise InvalidInputError(
                f"a text of {size} bytes is longer than the {LONGEST_MESSAGE} that Nova Sonic takes"
            )
        self._text(text, "USER", interactive=True)

    def _sound(self, sound: AudioDelta) -> None:
        if sound.format != "pcm":
            raise AudioFormatError(
                f"format={sound.format!r}: Nova Sonic takes 'pcm', {self._opening.input_rate} Hz, mono"
            )
        if len(sound.audio) % 2:
            raise AudioFormatError(f"{len(sound.audio)} bytes are not whole 16-bit samples")
        self._spoken_to = True
        self._pcm(sound.audio)

    def _pcm(self, pcm: bytes) -> None:
        step = bytes_for_ms(LONGEST_PIECE_MS, self._opening.input_rate)
        for start in range(0, len(pcm), step):
            # By hand: it is the most frequent thing that is sent, and nothing in it needs to be escaped.
            content = b64encode(pcm[start : start + step])
            head = f'{{"event":{{"audioInput":{{"promptName":"{self._prompt}","contentName":"{self._audio_name}","content":"'
            self._put(head.encode() + content + b'"}}}')

    def _result(self, block: ToolResultBlock) -> None:
        name, asked = self._output.calls.get(block.tool_use_id) or self._asked.get(block.tool_use_id) or ("", None)
        self._asked.pop(block.tool_use_id, None)
        told = spoken_result(name, asked, block.status, block.content)
        if self._output.calls.pop(block.tool_use_id, None) is None:
            self._tell_later(told)
            return
        self._last_result = told
        self._output.prompted()
        names = {"promptName": self._prompt, "contentName": self._block()}
        start = {
            "type": "TOOL",
            "interactive": False,
            "role": "TOOL",
            "toolResultInputConfiguration": {
                "toolUseId": block.tool_use_id,
                "type": "TEXT",
                "textInputConfiguration": _PLAIN,
            },
        }
        self._emit({"contentStart": {**names, **start}})
        self._emit({"toolResult": {**names, "content": result_json(block.content, block.status)}})
        self._emit({"contentEnd": names})

    def _tell_later(self, told: str) -> None:
        """Tell a result in words: of a call that this session does not know, it takes no other."""
        self._late.append(told)
        if self._output.idle:
            self._tell_late()
        else:
            self.alarms[_LATE] = LATE_RESULT_S

    def _tell_late(self) -> None:
        told, self._late = "\n".join(self._late), []
        self.alarms[_LATE] = None
        if told and self._opening.is_first_generation:
            _log.warning("Nova Sonic 1 cannot be told a result that comes after a restart: it is in the history only")
        elif told:
            self._text(told, "USER", interactive=True)

    # What comes in.

    def _event(self, message: Message) -> Sequence[OutputEvent]:
        match message.text_header(":message-type"):
            case "exception":
                return self._exception(message.text_header(":exception-type"), _said(message.payload))
            case "error":
                raise self._refused(message.text_header(":error-code"), message.text_header(":error-message"))
            case "event" if message.text_header(":event-type") == "chunk":
                return self._output.take(_body(message.payload))
            case _:
                self.unknown.note(message.text_header(":event-type") or "?")
                return ()

    def _exception(self, kind: str, told: str) -> Sequence[OutputEvent]:
        if _NOT_FATAL in told:
            # The session goes on, and the model waits for a result that it could not read: tell it in words.
            _log.warning("Nova Sonic could not read the result of a tool: %s", told)
            if self._last_result:
                self._tell_later(self._last_result)
                self._last_result = ""
            return ()
        raise self._refused(kind, told)

    def _refused(self, kind: str, told: str) -> Exception:
        if kind.lower() == "modeltimeoutexception" or any(words in told for words in _TIME_IS_UP):
            return ConnectionTimeoutError(f"Bedrock says {kind}: {told}")
        return refusal(kind, told, model_id=self._opening.model_id, region=self._region)

    def _unreadable(self, error: Exception) -> ModelProtocolError:
        return ModelProtocolError(f"what came from Bedrock for {self._opening.model_id!r} cannot be read: {error}")


_HEAD = encode_headers({":event-type": "chunk", ":message-type": "event", ":content-type": "application/json"})
_PLAIN = {"mediaType": "text/plain"}


class _Chunk(msgspec.Struct, frozen=True):
    """What a message holds."""

    content: bytes = msgspec.field(name="bytes")


_CHUNK = msgspec.json.Decoder(_Chunk)


def _said(payload: bytes) -> str:
    """The words of an exception: `{"message": ...}`, or whatever stands there instead."""
    try:
        value: Any = json.loads(payload)
    except (ValueError, RecursionError):
        return payload.decode("utf-8", "replace")[:2000]
    if not isinstance(value, dict):
        return str(value)
    fields = cast("dict[str, Any]", value)
    return str(fields.get("message") or fields.get("Message") or fields)


def _body(payload: bytes) -> dict[str, Any]:
    """The event in a chunk: JSON, in base64, in JSON.

    Raises:
        ModelProtocolError: If it is not that.
    """
    try:
        try:
            event: Any = msgspec.json.decode(_CHUNK.decode(payload).content)["event"]
        except (msgspec.DecodeError, UnicodeError):  # it is stricter: half a character, for instance, is no text to it
            event = json.loads(a2b_base64(json.loads(payload)["bytes"], strict_mode=True))["event"]
        if isinstance(event, dict):
            return cast("dict[str, Any]", event)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ModelProtocolError(f"an event of Nova Sonic cannot be read: {error}: {payload[:200]!r}") from error
    raise ModelProtocolError(f"an event of Nova Sonic is no object: {payload[:200]!r}")
