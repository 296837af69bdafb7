"""The wire protocol of Gemini Live: one connection, without I/O. Pure.

JSON goes out in text frames and comes in binary ones. Source: ai.google.dev/api/live (`BidiGenerateContent`).
"""

from __future__ import annotations

import json
import logging
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from antiphon.content import (
    AudioDelta,
    BidiMessage,
    ImageBlock,
    Messages,
    TextBlock,
    ToolResultBlock,
    ToolSpec,
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
    OutputEvent,
)
from antiphon.jsonable import clean_text
from antiphon.models.google.live_calls import Calls, told_result
from antiphon.models.google.live_errors import BACKEND, REFUSALS, by_words, failure, is_limit, told_failure
from antiphon.models.google.live_reading import (
    bytes_at,
    decoded,
    object_at,
    objects_at,
    pcm_rate,
    seconds,
    speech_starts,
    text_at,
    usage_event,
)
from antiphon.models.google.live_setup import LiveSettings, history_turns, setup_message, unanswered
from antiphon.models.google.live_turns import Turns
from antiphon.models.live import CONTINUE, Codec, Owed, Sightings
from antiphon.transports.base import Frame

_log = logging.getLogger(__name__)

LATE_WORDS_S = 10.0
"""How long after an answer the words that it answers may come."""
TAIL_S = 1.5
"""How long no more words of the user have come, while they are answered, when they are complete."""
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
        owed: What answer another session has not given: this one is asked for it.
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
        owed: Owed = "",
        prefix: str = "",
        hidden: Callable[[str], str] = str,
    ) -> None:
        super().__init__()
        self.handle = handle
        self.current = handle is not None
        self.cut = cut
        self.refused = False
        self.unknown = Sightings()
        self._settings = settings
        turns = history_turns(messages or [], settings.history_chars)
        asks = unanswered(turns, owed, resumed=handle is not None)
        if handle is not None:
            turns = []
        elif asks:
            turns = turns[:-1]  # it is asked instead
        elif owed == "cut" and turns:
            asks = CONTINUE
        self._setup = setup_message(settings, system_prompt, list(tools), handle=handle, seeds=bool(turns))
        self._seed = turns
        self._session = _Session(manual=_is_manual(self._setup["setup"]), resumed=handle is not None, asks=asks)
        self._turns = Turns(prefix, settings.output_rate)
        self._calls = Calls()
        self._hidden = hidden
        self._audio_end = f'","mimeType":"audio/pcm;rate={settings.input_rate}"}}}}}}'

    @property
    def owed(self) -> Owed:
        owed = self._turns.owed
        return "cut" if owed == "said" and self._session.asks == CONTINUE and not self._turns.has_begun else owed

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
                        texts.append(told_result(block, foreign.get(block.tool_use_id)))
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
        if self.unknown.note(what):
            _log.warning("Gemini Live sent what is not understood: %s", what)

    def _post(self, message: Mapping[str, Any]) -> None:
        text = json.dumps(message, ensure_ascii=False, separators=(",", ":"))
        self.outbox.append(text if text.isascii() else clean_text(text))

    # What comes in.

    def receive(self, frame: Frame, /) -> Sequence[OutputEvent]:
        message = decoded(frame)
        out: list[OutputEvent] = []
        turns = self._turns
        content = object_at(message, "serverContent") if len(message) == 1 else {}
        if turns.sounding and len(content) == 1 and "modelTurn" in content and not self._session.tail_over:
            # More sound of an answer that sounds already, which is nearly all that comes: it changes nothing else.
            self.current = False
            self._parts(object_at(content, "modelTurn"), out)
            return out
        waited, tail = turns.waits_for_words, turns.tail
        for key in message:
            if key not in _KNOWN:
                self._note(key)
        if "setupComplete" in message:
            self._accepted(object_at(message, "setupComplete"), out)
        if "error" in message:
            told = told_failure(self._settings.model, message["error"])
            raise type(told)(self._hidden(str(told)))
        if ("voiceActivity" in message or "voiceActivityDetectionSignal" in message) and speech_starts(message):
            turns.speech_begins(out)
        if "serverContent" in message:
            self._content(object_at(message, "serverContent"), message, out)
        else:
            if "toolCall" in message:
                self._tools(message, out)
            if "toolCallCancellation" in message:
                self._taken_back(message, out)
        if "usageMetadata" in message:
            out.append(usage_event(object_at(message, "usageMetadata")))
        if "sessionResumptionUpdate" in message:
            turns.settle(out)
            self._resumable(object_at(message, "sessionResumptionUpdate"))
        if "goAway" in message:
            self._session.warned = True
            out.append(BidiConnectionWarningEvent(time_left_s=seconds(object_at(message, "goAway").get("timeLeft"))))
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
        if self._session.asks:
            self._post({"realtimeInput": {"text": self._session.asks}})
            self._turns.asked()
            self.current = False
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
            self._parts(object_at(content, "modelTurn"), out)
        if "outputTranscription" in content:
            said = object_at(content, "outputTranscription")
            if not turns.spoken_words(text_at(said, "text"), out, finished=said.get("finished") is True):
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
            reason = text_at(content, "turnCompleteReason")
            turns.turn_complete(
                out,
                more=content.get("interactionStatus") == "IN_PROGRESS",
                reason="" if reason in _PLAIN_REASONS else reason,
            )

    def _understood(self, content: dict[str, Any], out: list[OutputEvent]) -> None:
        if "interimInputTranscription" in content:
            words = text_at(object_at(content, "interimInputTranscription"), "text")
            self._turns.user_words("", out, finished=False, partial=words)
        if "inputTranscription" in content:
            said = object_at(content, "inputTranscription")
            self._turns.user_words(text_at(said, "text"), out, finished=said.get("finished") is True)

    def _parts(self, turn: dict[str, Any], out: list[OutputEvent]) -> None:
        for part in objects_at(turn, "parts"):
            if "inlineData" in part:
                data = object_at(part, "inlineData")
                rate = pcm_rate(text_at(data, "mimeType"))
                if rate is None:
                    self._note(f"inlineData of {data.get('mimeType')!r}")
                else:
                    self._turns.sound(bytes_at(data), rate, out)
            elif "text" in part:
                if text := text_at(part, "text"):
                    self._turns.text(text, out, thought=part.get("thought") is True)
            else:
                for key in part:
                    self._note(f"part.{key}")

    def _tools(self, message: dict[str, Any], out: list[OutputEvent]) -> None:
        calls = objects_at(object_at(message, "toolCall"), "functionCalls")
        if calls:
            answer = self._turns.begin(out)
            uses = self._calls.register(calls, answer.id)
            goes_on = any(self._settings.does_not_block(use["name"]) for use in uses)
            self._turns.call_tools(uses, out, goes_on=goes_on)
            self.current = False

    def _taken_back(self, message: dict[str, Any], out: list[OutputEvent]) -> None:
        ids = object_at(message, "toolCallCancellation").get("ids")
        if not isinstance(ids, list):
            raise ModelProtocolError(f"a toolCallCancellation without a list of ids: {ids!r}")
        named = [str(key) for key in cast("list[object]", ids)]
        self._calls.cancel(named)
        out.append(BidiToolUseCancelEvent(tool_use_ids=named))
        self.current = False

    def _resumable(self, update: dict[str, Any]) -> None:
        handle = update.get("newHandle")
        if update.get("resumable") is True and isinstance(handle, str) and handle:
            # What was asked and is not answered may have crossed it on the way: it then stands for a state without that.
            self.handle, self.current = handle, not self._turns.owed

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

    __slots__ = ("asks", "manual", "resumed", "tail_over", "warned")

    def __init__(self, *, manual: bool, resumed: bool, asks: str) -> None:
        self.asks = asks
        self.manual = manual
        self.resumed = resumed
        self.warned = False
        self.tail_over = False


def _is_manual(setup: dict[str, Any]) -> bool:
    detection = setup.get("realtimeInputConfig", {}).get("automaticActivityDetection", {})
    return isinstance(detection, dict) and cast("dict[str, Any]", detection).get("disabled") is True
