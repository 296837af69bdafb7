"""The wire protocol of Gemini Live: one connection, without I/O. Pure.

JSON goes out in text frames and comes in binary ones. Source: ai.google.dev/api/live (`BidiGenerateContent`).
"""

from __future__ import annotations

import json
import logging
from base64 import b64encode
from binascii import Error as Base64Error
from binascii import a2b_base64
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

import msgspec

from antiphon.content import (
    AudioDelta,
    BidiMessage,
    ImageBlock,
    Messages,
    TextBlock,
    ToolResultBlock,
    ToolSpec,
    ToolUse,
    ToolUseBlock,
)
from antiphon.errors import (
    AudioFormatError,
    ConnectionEndedError,
    ConnectionTimeoutError,
    InvalidInputError,
    ModelProtocolError,
    TransportError,
)
from antiphon.events import (
    BidiConnectionStartEvent,
    BidiConnectionWarningEvent,
    BidiToolUseCancelEvent,
    BidiUsageEvent,
    OutputEvent,
)
from antiphon.jsonable import clean_text
from antiphon.models.google.live_errors import BACKEND, REFUSALS, by_words, failure, is_limit, told_failure
from antiphon.models.google.live_setup import (
    LiveSettings,
    as_json,
    camel_keys,
    history_turns,
    result_text,
    setup_message,
)
from antiphon.models.google.live_turns import Turns
from antiphon.models.live import Codec
from antiphon.transports.base import Frame

_log = logging.getLogger(__name__)

LATE_WORDS_S = 10.0
"""How long after an answer the words that it answers may come."""
TAIL_S = 1.5
"""How long no more words of the user have come, while they are answered, when they are complete."""
OUTPUT_RATE = 24000
_NO_EVENT = frozenset({"groundingMetadata", "urlContextMetadata", "waitingForInput", "interactionStatus"})
_CONTENT = frozenset(
    {
        "generationComplete",
        "inputTranscription",
        "interimInputTranscription",
        "interrupted",
        "modelTurn",
        "outputTranscription",
        "turnComplete",
        "turnCompleteReason",
    }
)
_PLAIN_REASONS = frozenset({"", "TURN_COMPLETE_REASON_UNSPECIFIED", "NEED_MORE_INPUT"})


class GeminiLiveCodec(Codec):
    """One connection's protocol.

    Args:
        settings: How the session is set up.
        system_prompt: The system prompt.
        tools: What may be called.
        messages: The history, for a new session.
        handle: Resumes the session that it stands for; the history is not told then.
        cut: Whether an answer of that session was spoken over.
        prefix: Begins the ids of answers; another one for each connection.
        hidden: Takes secrets out of the service's words.

    Attributes:
        handle: The newest handle that stands for a state of the session.
        current: Whether that state holds all that was said.
        cut: Whether the user spoke over an answer: the session then remembers more of it than was heard.
        refused: Whether the service would not resume the session.
        unknown: What came and is not understood, and how often.
    """

    def __init__(
        self,
        settings: LiveSettings,
        *,
        system_prompt: str | None = None,
        tools: Sequence[ToolSpec] = (),
        messages: Messages | None = None,
        handle: str | None = None,
        cut: bool = False,
        prefix: str = "",
        hidden: Callable[[str], str] = str,
    ) -> None:
        super().__init__()
        self.handle = handle
        self.current = handle is not None
        self.cut = cut
        self.refused = False
        self.unknown: Counter[str] = Counter()
        self._settings = settings
        turns = [] if handle is not None else history_turns(messages or [], settings.history_chars)
        self._setup = setup_message(settings, system_prompt, list(tools), handle=handle, seeds=bool(turns))
        self._seed = turns
        self._session = _Session(manual=_is_manual(self._setup["setup"]), resumed=handle is not None)
        self._turns = Turns(prefix, settings.output_rate)
        self._calls = _Calls()
        self._hidden = hidden
        self._audio_end = f'","mimeType":"audio/pcm;rate={settings.input_rate}"}}}}}}'

    # What goes out.

    def open(self) -> None:
        self._post(self._setup)

    def close(self) -> None:
        """Nothing: closing the wire ends the session."""

    def send(self, content: BidiMessage | AudioDelta, /) -> None:
        if isinstance(content, AudioDelta):
            self._send_sound(content)
            return
        texts: list[str] = []
        responses: list[dict[str, Any]] = []
        foreign: dict[str, ToolUseBlock] = {}
        for block in content.content:
            match block:
                case TextBlock():
                    texts.append(block.text)
                case ImageBlock():
                    self._send_image(block)
                case ToolUseBlock():
                    foreign[block.tool_use_id] = block
                case ToolResultBlock():
                    if self._calls.is_cancelled(block.tool_use_id):
                        continue
                    response = self._calls.response(block, self._settings)
                    if response is None:
                        texts.append(_told_result(block, foreign.get(block.tool_use_id)))
                    else:
                        responses.append(response)
        if responses:
            self._post({"toolResponse": {"functionResponses": responses}})
        if texts:
            self._post({"realtimeInput": {"text": "\n".join(texts)}})
        if responses or texts:
            self._turns.asked()
            self.current = False

    def _send_sound(self, sound: AudioDelta) -> None:
        if sound.format != "pcm":
            raise AudioFormatError(
                f"Gemini Live takes sound as 'pcm', not as {sound.format!r}: 16-bit little-endian, mono"
            )
        audio = sound.audio
        if len(audio) % 2:
            raise AudioFormatError(f"{len(audio)} bytes are not whole 16-bit samples: send an even number of bytes")
        if audio:
            self._turns.sound_in = True
            self.outbox.append('{"realtimeInput":{"audio":{"data":"' + b64encode(audio).decode() + self._audio_end)

    def _send_image(self, image: ImageBlock) -> None:
        data = image.source.get("bytes")
        if not data:
            raise InvalidInputError("Gemini Live takes images as bytes: give source={'bytes': ...}")
        self._post(
            {"realtimeInput": {"video": {"data": b64encode(data).decode(), "mimeType": f"image/{image.format}"}}}
        )
        self.current = False

    def activity(self, *, begins: bool) -> None:
        """The user begins to speak, or has ended, where the application says so.

        Raises:
            InvalidInputError: If the service detects it, and does not take such signals.
        """
        if not self._session.manual:
            raise InvalidInputError(
                "Gemini Live detects speech itself: to tell it, start with params="
                '{"realtimeInputConfig": {"automaticActivityDetection": {"disabled": True}}}'
            )
        self._post({"realtimeInput": {"activityStart" if begins else "activityEnd": {}}})

    def audio_stream_end(self) -> None:
        """The microphone is switched off for a while: what was heard so far is all.

        Raises:
            InvalidInputError: If the application says when the user speaks: `activity` then tells the end.
        """
        if self._session.manual:
            raise InvalidInputError("the end of the sound is told by activity_end() where speech is not detected")
        self._post({"realtimeInput": {"audioStreamEnd": True}})

    def _note(self, what: str) -> None:
        """Something came that is not understood: counted, and logged once."""
        if what not in self.unknown:
            _log.warning("Gemini Live sent what is not understood: %s", what)
        self.unknown[what] += 1

    def _post(self, message: Mapping[str, Any]) -> None:
        text = json.dumps(message, ensure_ascii=False, separators=(",", ":"))
        self.outbox.append(text if text.isascii() else clean_text(text))

    # What comes in.

    def receive(self, frame: Frame, /) -> Sequence[OutputEvent]:
        message = _decoded(frame)
        out: list[OutputEvent] = []
        turns = self._turns
        waited, tail = turns.waits_for_words, turns.tail
        for key in message:
            if key not in _KNOWN:
                self._note(key)
        if "setupComplete" in message:
            self._accepted(_object(message, "setupComplete"), out)
        if "error" in message:
            told = told_failure(self._settings.model, message["error"])
            raise type(told)(self._hidden(str(told)))
        if ("voiceActivity" in message or "voiceActivityDetectionSignal" in message) and _starts(message):
            turns.speech_begins(out)
        if "serverContent" in message:
            self._content(_object(message, "serverContent"), message, out)
        else:
            if "toolCall" in message:
                self._tools(message, out)
            if "toolCallCancellation" in message:
                self._taken_back(message, out)
        if "usageMetadata" in message:
            out.append(_usage(_object(message, "usageMetadata")))
        if "sessionResumptionUpdate" in message:
            turns.settle(out)
            self._resumable(_object(message, "sessionResumptionUpdate"))
        if "goAway" in message:
            self._session.warned = True
            out.append(BidiConnectionWarningEvent(time_left_s=_seconds(_object(message, "goAway").get("timeLeft"))))
        if (waits := turns.waits_for_words) != waited:
            self.alarms["late words"] = LATE_WORDS_S if waits else None
        if turns.tail == tail and self._session.tail_over:
            turns.end_tail(out)
        if turns.tail != tail:
            self._session.tail_over = False
            self.alarms["tail"] = TAIL_S if turns.tail is not None else None
        return out

    def ring(self, name: str, /) -> None:
        """The words that an answer answers did not come; or the last of them did, some time ago."""
        if name == "tail":
            self._session.tail_over = True  # said with what comes next: a ring makes no events
        else:
            self._turns.give_up_words()

    def _accepted(self, complete: dict[str, Any], out: list[OutputEvent]) -> None:
        if self.ready:
            return
        self.ready = True
        if self._seed:
            self._post({"clientContent": {"turns": self._seed, "turnComplete": True}})
        session_id = complete.get("sessionId")
        out.append(
            BidiConnectionStartEvent(
                connection_id=session_id if isinstance(session_id, str) else "", model=self._settings.model
            )
        )

    def _content(self, content: dict[str, Any], message: dict[str, Any], out: list[OutputEvent]) -> None:
        """What is said, in the order in which it makes sense when several things come at once."""
        turns = self._turns
        for key in content:
            if key in _CONTENT:
                self.current = False
            elif key not in _NO_EVENT:
                self._note(f"serverContent.{key}")
        interrupted = content.get("interrupted") is True
        if not interrupted:
            self._understood(content, out)
        if "modelTurn" in content:
            self._parts(_object(content, "modelTurn"), out)
        if "outputTranscription" in content:
            said = _object(content, "outputTranscription")
            if not turns.spoken_words(_text(said, "text"), out, finished=said.get("finished") is True):
                self._note("outputTranscription of an answer that was cut")
        if "toolCall" in message:
            self._tools(message, out)
        if interrupted:
            self.cut = turns.interrupted(out) or self.cut
        if "toolCallCancellation" in message:
            self._taken_back(message, out)
        if interrupted:
            self._understood(content, out)
        if content.get("generationComplete") is True:
            turns.generation_complete(out)
        if content.get("turnComplete") is True:
            reason = _text(content, "turnCompleteReason")
            turns.turn_complete(
                out,
                more=content.get("interactionStatus") == "IN_PROGRESS",
                reason="" if reason in _PLAIN_REASONS else reason,
            )

    def _understood(self, content: dict[str, Any], out: list[OutputEvent]) -> None:
        if "interimInputTranscription" in content:
            words = _text(_object(content, "interimInputTranscription"), "text")
            self._turns.user_words("", out, finished=False, partial=words)
        if "inputTranscription" in content:
            said = _object(content, "inputTranscription")
            self._turns.user_words(_text(said, "text"), out, finished=said.get("finished") is True)

    def _parts(self, turn: dict[str, Any], out: list[OutputEvent]) -> None:
        for part in _objects(turn, "parts"):
            if "inlineData" in part:
                data = _object(part, "inlineData")
                rate = _rate(_text(data, "mimeType"))
                if rate is None:
                    self._note(f"inlineData of {data.get('mimeType')!r}")
                else:
                    self._turns.sound(_bytes(data), rate, out)
            elif "text" in part:
                if text := _text(part, "text"):
                    self._turns.text(text, out, thought=part.get("thought") is True)
            else:
                for key in part:
                    self._note(f"part.{key}")

    def _tools(self, message: dict[str, Any], out: list[OutputEvent]) -> None:
        calls = _objects(_object(message, "toolCall"), "functionCalls")
        if calls:
            answer = self._turns.begin(out)
            uses = self._calls.register(calls, answer.id)
            goes_on = any(self._settings.does_not_block(use["name"]) for use in uses)
            self._turns.call_tools(uses, out, goes_on=goes_on)
            self.current = False

    def _taken_back(self, message: dict[str, Any], out: list[OutputEvent]) -> None:
        ids = _object(message, "toolCallCancellation").get("ids")
        if not isinstance(ids, list):
            raise ModelProtocolError(f"a toolCallCancellation without a list of ids: {ids!r}")
        named = [str(key) for key in cast("list[object]", ids)]
        self._calls.cancel(named)
        out.append(BidiToolUseCancelEvent(tool_use_ids=named))
        self.current = False

    def _resumable(self, update: dict[str, Any]) -> None:
        handle = update.get("newHandle")
        if update.get("resumable") is True and isinstance(handle, str) and handle:
            self.handle, self.current = handle, True

    # How it ends.

    def explain(self, error: TransportError | None, /) -> Exception:
        model, session = self._settings.model, self._session
        if error is None or not error.opened or error.code == 0:
            told = "it was closed" if error is None else self._hidden(str(error))
            if error is not None and not error.opened:
                return self._shown(failure(model, error))
            if self.ready and session.warned:
                return self._timeout(f"{model!r} ended the connection, as it had said it would")
            if self.ready:
                return ConnectionEndedError(f"the connection to {model!r} ended: {told}")
            return ConnectionEndedError(f"{model!r} ended the connection before it accepted the session: {told}")
        if not self.ready:
            self.refused = session.resumed and error.code in REFUSALS
            return self._shown(failure(model, error))
        passing = error.code == BACKEND and by_words(error.reason) is None
        if is_limit(error) or passing or session.warned:
            return self._timeout(f"{model!r} ended the session with code {error.code}: {self._hidden(error.reason)}")
        return self._shown(failure(model, error))

    def _shown(self, told: Exception) -> Exception:
        return type(told)(self._hidden(str(told)))

    def _timeout(self, told: str) -> ConnectionTimeoutError:
        return ConnectionTimeoutError(told) if self.handle is None else ConnectionTimeoutError(told, handle=self.handle)


class _Session:
    """What is known of a session beside what is said in it."""

    __slots__ = ("manual", "resumed", "tail_over", "warned")

    def __init__(self, *, manual: bool, resumed: bool) -> None:
        self.manual = manual
        self.resumed = resumed
        self.warned = False
        self.tail_over = False


class _Calls:
    """The tool calls of one connection: their names, which their results must repeat, and those that were taken back."""

    __slots__ = ("_cancelled", "_nameless", "_names")

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._nameless: set[str] = set()  # ids of ours, for calls that came without one
        self._cancelled: set[str] = set()

    def register(self, calls: Sequence[dict[str, Any]], answer_id: str) -> list[ToolUse]:
        """Calls as they came, as the agent knows them."""
        uses: list[ToolUse] = []
        for number, call in enumerate(calls, 1):
            given = call.get("id")
            if isinstance(given, str) and given:
                key = given
            else:
                key = f"{answer_id}-call-{number}"
                self._nameless.add(key)
            name = _text(call, "name")
            self._names[key] = name
            self._cancelled.discard(key)
            uses.append({"toolUseId": key, "name": name, "input": _arguments(call.get("args"))})
        return uses

    def cancel(self, ids: Sequence[str]) -> None:
        """The model takes these back."""
        for key in ids:
            self._names.pop(key, None)
            self._cancelled.add(key)

    def is_cancelled(self, key: str) -> bool:
        """Whether the model took this call back, and must not be answered."""
        return key in self._cancelled

    def response(self, result: ToolResultBlock, settings: LiveSettings) -> dict[str, Any] | None:
        """The result as the connection wants it; None if it does not know the call."""
        name = self._names.pop(result.tool_use_id, None)
        if name is None:
            return None
        response: dict[str, Any] = {"name": name, "response": _outcome(result)}
        if result.tool_use_id not in self._nameless:
            response["id"] = result.tool_use_id
        parts = [
            {
                "inlineData": {
                    "mimeType": f"image/{block['image']['format']}",
                    "data": b64encode(block["image"]["source"]["bytes"]).decode(),
                }
            }
            for block in result.content
            if "image" in block and "bytes" in block["image"].get("source", {})
        ]
        if parts:
            response["parts"] = parts
        if settings.scheduling is not None and settings.does_not_block(name):
            response["scheduling"] = settings.scheduling
        return response


def _outcome(result: ToolResultBlock) -> dict[str, Any]:
    if result.status == "error":
        return {"error": result_text(result.content)}
    values = [
        block["json"] if "json" in block else block["text"]
        for block in result.content
        if "json" in block or "text" in block
    ]
    return {"output": values[0] if len(values) == 1 else values or "done"}


def _told_result(result: ToolResultBlock, call: ToolUseBlock | None) -> str:
    """A result in words, for a connection that did not make the call."""
    made = "" if call is None else f" of {call.name} with {as_json(call.input)}"
    end = "failed" if result.status == "error" else "returned"
    return f"[An earlier tool call{made} has {end}: {result_text(result.content)}]"


# Reading JSON.

_KNOWN = frozenset(
    {
        "error",
        "goAway",
        "serverContent",
        "sessionResumptionUpdate",
        "setupComplete",
        "toolCall",
        "toolCallCancellation",
        "usageMetadata",
        "voiceActivity",
        "voiceActivityDetectionSignal",
    }
)


def _decoded(frame: Frame) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(frame)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ModelProtocolError(f"Gemini Live sent a frame that is not JSON: {frame[:80]!r}") from error
    if not isinstance(value, dict):
        raise ModelProtocolError(f"Gemini Live sent JSON that is not an object: {frame[:80]!r}")
    # Base64 has no underscore: sound is not copied.
    snake = b"_" in frame if isinstance(frame, bytes) else "_" in frame
    return cast("dict[str, Any]", camel_keys(value) if snake else value)


def _object(holder: dict[str, Any], key: str) -> dict[str, Any]:
    value = holder.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ModelProtocolError(f"Gemini Live sent {key!r} that is not an object: {value!r}"[:300])
    return cast("dict[str, Any]", value)


def _objects(holder: dict[str, Any], key: str) -> list[dict[str, Any]]:
    value = holder.get(key)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in cast("list[object]", value)):
        raise ModelProtocolError(f"Gemini Live sent {key!r} that is not a list of objects: {value!r}"[:300])
    return cast("list[dict[str, Any]]", value)


def _text(holder: dict[str, Any], key: str) -> str:
    value = holder.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ModelProtocolError(f"Gemini Live sent {key!r} that is not a text: {value!r}"[:300])
    return value


def _bytes(data: dict[str, Any]) -> bytes:
    try:
        return a2b_base64(_text(data, "data"))
    except (Base64Error, ValueError) as error:
        raise ModelProtocolError("Gemini Live sent sound that is not base64") from error


@lru_cache(maxsize=16)
def _rate(mime: str) -> int | None:
    """The rate of PCM, in Hz; None for what is no PCM.

    >>> _rate("audio/pcm;rate=24000"), _rate("audio/pcm"), _rate("image/png")
    (24000, 24000, None)
    """
    kind, _, rest = mime.partition(";")
    if kind.strip().lower() not in {"audio/pcm", "audio/l16"}:
        return None
    rate = rest.partition("rate=")[2].partition(";")[0].strip()
    return int(rate) if rate.isdecimal() and int(rate) > 0 else OUTPUT_RATE


def _arguments(args: Any) -> Any:
    """A call's arguments; those that were encoded twice are decoded."""
    if args is None:
        return {}
    if isinstance(args, str):
        try:
            decoded = msgspec.json.decode(args)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return args
        return cast("Any", decoded) if isinstance(decoded, dict) else args
    return args


def _seconds(value: Any) -> float:
    """A duration of protobuf's JSON, such as `"50s"`.

    >>> _seconds("50s"), _seconds("1.5s"), _seconds(None)
    (50.0, 1.5, 0.0)
    """
    try:
        return max(0.0, float(str(value).removesuffix("s")))
    except ValueError:
        return 0.0


def _starts(message: dict[str, Any]) -> bool:
    """Whether the service says that the user begins to speak."""
    activity = _object(message, "voiceActivity").get("voiceActivityType")
    signal = _object(message, "voiceActivityDetectionSignal").get("vadSignalType")
    return activity == "ACTIVITY_START" or signal == "VAD_SIGNAL_TYPE_SOS"


def _count(usage: dict[str, Any], *keys: str) -> int:
    return sum(value for key in keys if isinstance(value := usage.get(key), int))


def _usage(usage: dict[str, Any]) -> BidiUsageEvent:
    read = _count(usage, "promptTokenCount", "toolUsePromptTokenCount")
    made = _count(usage, "responseTokenCount", "thoughtsTokenCount")
    spent = {"cached": _count(usage, "cachedContentTokenCount")} if "cachedContentTokenCount" in usage else {}
    thought = {"thoughts": _count(usage, "thoughtsTokenCount")} if "thoughtsTokenCount" in usage else {}
    return BidiUsageEvent(
        input_tokens=read,
        output_tokens=made,
        total_tokens=_count(usage, "totalTokenCount") or read + made,
        input_token_details=_by_kind(usage, "promptTokensDetails") | spent or None,
        output_token_details=_by_kind(usage, "responseTokensDetails") | thought or None,
    )


def _by_kind(usage: dict[str, Any], key: str) -> dict[str, Any]:
    return {_text(entry, "modality").lower(): _count(entry, "tokenCount") for entry in _objects(usage, key)}


def _is_manual(setup: dict[str, Any]) -> bool:
    detection = setup.get("realtimeInputConfig", {}).get("automaticActivityDetection", {})
    return isinstance(detection, dict) and cast("dict[str, Any]", detection).get("disabled") is True
