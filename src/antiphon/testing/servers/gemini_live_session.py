"""One session of the Gemini Live loopback server: what the client sent, and what the service does with it."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, cast

from antiphon.audio import bytes_for_ms
from antiphon.testing.servers.gemini_live_rules import (
    POLICY,
    Refused,
    check_content,
    check_realtime,
    check_responses,
    declared,
    decoded,
    invalid,
    message_at,
)

OUTPUT_RATE = 24000
CHUNK_MS = 100.0
_VERBATIM = frozenset({"args"})


@dataclass(frozen=True, slots=True, kw_only=True)
class WireStyle:
    """How the server writes what it says; all of it is allowed by the protocol.

    Attributes:
        merged: Put several fields into one message wherever they have room in it.
        snake: Write names in snake case.
        text: Send text frames; the service itself sends binary ones.
        fragment: Cut each message into websocket fragments of so many bytes; 0: whole.
        words_first: Send the whole transcript before the sound; else it comes along.
        words_last: Send the whole transcript after the sound, before the turn is complete.
    """

    merged: bool = False
    snake: bool = False
    text: bool = False
    fragment: int = 0
    words_first: bool = False
    words_last: bool = False


@dataclass(slots=True)
class Held:
    """An answer that stays in the middle."""

    rest: list[dict[str, Any]]
    text: str


@dataclass(slots=True, kw_only=True)
class _Flow:
    """Where the talk stands.

    Attributes:
        ready: Whether the setup was accepted.
        sounds: In how many messages sound has come.
        owed: Whether the client waits for an answer.
        goes_on: Whether the model may speak once while tools work that it does not wait for.
        heard: How much of the sound was taken as speech.
        held: The answer that stays in the middle.
        late: Words of the user that are told after the answer to them.
        manual: Whether the client says when the user speaks, and `active`: that the user does.
        seeding: Whether a history is awaited.
    """

    ready: bool = False
    sounds: int = 0
    owed: bool = False
    goes_on: bool = False
    heard: int = 0
    held: Held | None = None
    late: list[str] = field(default_factory=list[str])
    manual: bool = False
    active: bool = False
    seeding: bool = False


class GeminiLiveSession:
    """One connection.

    Attributes:
        send_frame: Sends a frame as it is.
        lineage: Names the session over all its connections.
        received: What the client sent, decoded, with names in camel case; sound is left out.
        sound: What the client sent as sound.
        knows: What the service believes was said: `(role, text)`. A handle stands for a copy of it.
        resumed: The handle with which it began; empty: a new session.
        complaints: The rules that the client broke.
        closed: `(code, reason)` with which the server ended it.
        open: Whether the connection is.
        pending: Names of the calls that wait for a result, by id.
    """

    def __init__(
        self,
        send: Callable[[str | bytes | list[bytes]], Awaitable[None]],
        *,
        style: WireStyle,
        generation: int,
        lineage: str,
        numbers: Iterator[int],
        on_handle: Callable[[str, GeminiLiveSession], None],
    ) -> None:
        self.send_frame = send
        self._style = style
        self._flow = _Flow()
        self._generation = generation
        self._numbers = numbers
        self._on_handle = on_handle
        self.lineage = lineage
        self.received: list[dict[str, Any]] = []
        self.sound = bytearray()
        self.knows: list[tuple[str, str]] = []
        self.resumed = ""
        self.complaints: list[str] = []
        self.closed: tuple[int, str] | None = None
        self.open = True
        self.pending: dict[str, str] = {}

    # What the client has said.

    @property
    def setup(self) -> dict[str, Any]:
        """The first message."""
        for message in self.received:
            if "setup" in message:
                return message_at(message, "setup")
        return {}

    @property
    def texts(self) -> list[str]:
        """What was typed."""
        inputs = [message.get("realtimeInput", {}) for message in self.received]
        return [fields["text"] for fields in inputs if "text" in fields]

    @property
    def history(self) -> list[dict[str, Any]]:
        """The turns with which the session was seeded."""
        return [turn for message in self.received for turn in message.get("clientContent", {}).get("turns", [])]

    @property
    def tool_responses(self) -> list[dict[str, Any]]:
        """The results of tools, in order."""
        found = [message.get("toolResponse", {}).get("functionResponses", []) for message in self.received]
        return [response for responses in found for response in responses]

    @property
    def sound_messages(self) -> int:
        """In how many messages sound has come."""
        return self._flow.sounds

    @property
    def ready(self) -> bool:
        """Whether the setup was accepted."""
        return self._flow.ready

    # What the client says.

    def accept(self, setup: dict[str, Any]) -> None:
        """The setup was checked, and is accepted."""
        detection = setup.get("realtimeInputConfig", {}).get("automaticActivityDetection", {})
        self._flow.manual = detection.get("disabled") is True
        self._flow.seeding = setup.get("historyConfig", {}).get("initialHistoryInClientContent") is True
        self._flow.ready = True

    async def take(self, message: dict[str, Any]) -> None:
        """A message after the setup.

        Raises:
            Refused: If it breaks a rule.
        """
        (kind,) = message
        fields = message_at(message, kind)
        match kind:
            case "setup":
                raise invalid("setup must be the first message, and the only one.")
            case "realtimeInput":
                await self._take_realtime(fields)
            case "clientContent":
                await self._take_content(fields)
            case "toolResponse":
                for key in check_responses(fields, self.pending, declared(self.setup)):
                    del self.pending[key]
                self._flow.owed = self._flow.owed or not self.pending
            case _:
                raise Refused(POLICY, "Operation is not implemented, or supported, or enabled.")

    async def _take_realtime(self, fields: dict[str, Any]) -> None:
        flow = self._flow
        match check_realtime(fields, manual=flow.manual, active=flow.active):
            case "audio":
                self.sound += decoded(fields["audio"]["data"])
                self._flow.sounds += 1
            case "text":
                await self.interrupt()
                self._said("user", fields["text"])
                flow.owed = True
            case "activityStart":
                flow.active = True
                await self.interrupt()
            case "activityEnd":
                flow.active = False
            case _:
                pass

    async def _take_content(self, content: dict[str, Any]) -> None:
        flow = self._flow
        turns = check_content(content)
        complete = content.get("turnComplete", True) is True
        if not flow.seeding:
            if self._generation >= 3:
                raise invalid("client_content is only supported for initial history: use realtime_input.text.")
            await self.interrupt()
            flow.owed = complete
        for turn in turns:
            self._said(turn["role"], " ".join(part.get("text", "") for part in turn["parts"]))
        if flow.seeding:
            flow.seeding = not complete

    def _said(self, role: str, text: str) -> None:
        self.knows.append((role, text))

    # When the service speaks.

    @property
    def seeded(self) -> bool:
        """Whether nothing of the history is awaited."""
        return self.ready and not self._flow.seeding

    @property
    def hears(self) -> bool:
        """Whether there is sound that was not taken as speech yet; where the client says so, a whole utterance."""
        return self.seeded and self.sound_messages > self._flow.heard and not (self._flow.manual and self._flow.active)

    @property
    def owes(self) -> bool:
        """Whether the client waits for an answer, and no result of a tool is awaited."""
        functions = declared(self.setup)
        waits = any(functions[name].get("behavior") != "NON_BLOCKING" for name in self.pending.values())
        return self.seeded and (self._flow.owed or self._flow.goes_on) and not waits and self._flow.held is None

    @property
    def holds(self) -> bool:
        """Whether an answer stays in the middle."""
        return self._flow.held is not None

    # What the service says.

    async def emit(self, *messages: dict[str, Any]) -> None:
        """Send messages in the server's style."""
        for message in _merged(messages) if self._style.merged else messages:
            value = _snake_keys(message) if self._style.snake else message
            text = json.dumps(value, ensure_ascii=False)
            if self._style.text:
                await self.send_frame(text)
                continue
            data = text.encode()
            size = self._style.fragment
            pieces = [data[start : start + size] for start in range(0, len(data), size)] if size else []
            await self.send_frame(pieces if len(pieces) > 1 else data)

    async def understood(self, text: str, *, late: bool, interim: bool) -> None:
        """The user has spoken: the words are told, now or after the answer."""
        flow = self._flow
        flow.heard = self.sound_messages
        flow.owed = True
        self._said("user", text)
        signals = self.setup.get("explicitVadSignal") is True
        if signals:
            await self.emit({"voiceActivity": {"voiceActivityType": "ACTIVITY_START"}})
        if late:
            flow.late.append(text)
        else:
            await self._tell_words(text, interim=interim)
        if signals:
            await self.emit({"voiceActivity": {"voiceActivityType": "ACTIVITY_END"}})

    async def _tell_words(self, text: str, *, interim: bool = False) -> None:
        if "inputAudioTranscription" not in self.setup:
            return
        if interim:
            await self.emit({"serverContent": {"interimInputTranscription": {"text": text[: len(text) // 2]}}})
        half = len(text) // 2
        await self.emit(
            {"serverContent": {"inputTranscription": {"text": text[:half]}}},
            {"serverContent": {"inputTranscription": {"text": text[half:]}}},
        )

    def spoken(self, text: str, seconds: float) -> list[dict[str, Any]]:
        """The messages of a spoken answer, up to where all of it was sent."""
        if self.setup.get("generationConfig", {}).get("responseModalities") == ["TEXT"]:
            words = re.findall(r"\s*\S+", text)
            return [{"serverContent": {"modelTurn": {"role": "model", "parts": [{"text": word}]}}} for word in words]
        total = bytes_for_ms(seconds * 1000, OUTPUT_RATE)
        step = bytes_for_ms(CHUNK_MS, OUTPUT_RATE)
        pcm = (b"\x10\x00\xf0\xff" * (total // 4 + 1))[:total]
        sound = [
            {
                "serverContent": {
                    "modelTurn": {
                        "role": "model",
                        "parts": [
                            {
                                "inlineData": {
                                    "mimeType": f"audio/pcm;rate={OUTPUT_RATE}",
                                    "data": b64encode(pcm[start : start + step]).decode(),
                                }
                            }
                        ],
                    }
                }
            }
            for start in range(0, total, step)
        ]
        if "outputAudioTranscription" not in self.setup:
            return sound
        count = max(1, len(sound))
        style = self._style
        if style.words_first or style.words_last:
            words = [{"serverContent": {"outputTranscription": {"text": text}}}]
            return words + sound if style.words_first else sound + words
        messages: list[dict[str, Any]] = []
        bounds = [round(len(text) * index / count) for index in range(count + 1)]
        for piece, (start, end) in zip(sound, pairwise(bounds), strict=False):
            if start < end:
                messages.append({"serverContent": {"outputTranscription": {"text": text[start:end]}}})
            messages.append(piece)
        return messages

    async def say(self, messages: Sequence[dict[str, Any]], text: str) -> None:
        """Send an answer, or the rest of one, to its end."""
        flow = self._flow
        if flow.held is None:
            flow.owed = flow.goes_on = False
        flow.held = None
        flow.heard = self.sound_messages  # whoever speaks over it does so from now on
        read = sum(len(words.split()) for _, words in self.knows)
        self._said("model", text)
        await self.emit(
            *messages,
            {"serverContent": {"generationComplete": True}},
            {"serverContent": {"turnComplete": True}, "usageMetadata": usage(read, len(text.split()))},
        )
        late, flow.late = flow.late, []
        for words in late:
            await self._tell_words(words)
        await self.offer_handle()

    async def hold(self, messages: Sequence[dict[str, Any]], rest: list[dict[str, Any]], text: str) -> None:
        """Send the beginning of an answer."""
        self._flow.owed = self._flow.goes_on = False
        self._flow.heard = self.sound_messages  # whoever speaks over it does so from now on
        self._flow.held = Held(rest, text)
        await self.emit(*messages)

    async def finish(self) -> None:
        """Send the rest of the answer that is held, if one is."""
        held = self._flow.held
        if held is not None:
            await self.say(held.rest, held.text)

    async def interrupt(self) -> None:
        """Cut what is being said, and take back what was asked of tools."""
        flow = self._flow
        if flow.held is None and not self.pending:
            return
        if self.setup.get("realtimeInputConfig", {}).get("activityHandling") == "NO_INTERRUPTION":
            return
        if flow.held is not None:
            self._said("model", flow.held.text)  # the service knows what it generated, not what was heard
        flow.held = None
        ids, self.pending = list(self.pending), {}
        messages: list[dict[str, Any]] = [{"serverContent": {"interrupted": True}}]
        if ids:
            messages.append({"toolCallCancellation": {"ids": ids}})
        await self.emit(*messages, {"serverContent": {"turnComplete": True}})
        await self.offer_handle()

    async def speak_over(self, text: str) -> None:
        """The user speaks over what is being said, or was just said."""
        if self._flow.held is None and not self.pending:
            await self.emit({"serverContent": {"interrupted": True}})  # of what the service believes is still played
        await self.interrupt()
        await self.understood(text, late=False, interim=False)

    async def call(self, calls: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        """Call tools."""
        flow = self._flow
        functions = declared(self.setup)
        entries: list[dict[str, Any]] = []
        for name, args in calls:
            if name not in functions:
                raise AssertionError(
                    f"the script calls {name!r}, which the client did not declare: {sorted(functions)}"
                )
            key = f"{self.lineage}-call-{next(self._numbers)}"
            self.pending[key] = name
            entries.append({"id": key, "name": name, "args": dict(args)})
        flow.owed = False
        flow.goes_on = all(functions[name].get("behavior") == "NON_BLOCKING" for name in self.pending.values())
        await self.emit({"toolCall": {"functionCalls": entries}})
        if "sessionResumption" in self.setup:
            await self.emit({"sessionResumptionUpdate": {"resumable": False}})

    async def offer_handle(self) -> None:
        """Tell the client by what the session can be resumed as it is now."""
        if "sessionResumption" in self.setup:
            handle = f"{self.lineage}-handle-{next(self._numbers)}"
            self._on_handle(handle, self)
            await self.emit({"sessionResumptionUpdate": {"newHandle": handle, "resumable": True}})


def usage(read: int, made: int) -> dict[str, Any]:
    """Tokens, as the service tells of them."""
    return {
        "promptTokenCount": read,
        "responseTokenCount": made,
        "totalTokenCount": read + made,
        "promptTokensDetails": [{"modality": "AUDIO", "tokenCount": read}],
        "responseTokensDetails": [{"modality": "AUDIO", "tokenCount": made}],
    }


def _merged(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same with fewer messages: fields share one as long as none is there twice, and their order tells nothing."""
    merged: list[dict[str, Any]] = []
    for message in messages:
        if len(message) > 1:
            merged.append(message)
            continue
        ((key, value),) = message.items()
        last = merged[-1] if merged else None
        content = None if last is None else last.get("serverContent")
        if last is None or "serverContent" not in message or content is None:
            merged.append({key: dict(value)})
        elif "modelTurn" in value and "modelTurn" in content and len(content["modelTurn"]["parts"]) < 3:
            parts = [*content["modelTurn"]["parts"], *value["modelTurn"]["parts"]]
            content["modelTurn"] = {"role": "model", "parts": parts}
        elif set(value) & set(content) or "interrupted" in value or "turnComplete" in content:
            merged.append({key: dict(value)})
        else:
            content.update(value)
    return merged


def _snake_keys(value: Any) -> Any:
    if isinstance(value, Mapping):
        entries = cast("Mapping[str, Any]", value).items()
        named = [(key, re.sub(r"([A-Z])", lambda found: "_" + found[1].lower(), key), item) for key, item in entries]
        return {name: item if key in _VERBATIM else _snake_keys(item) for key, name, item in named}
    if isinstance(value, list):
        return [_snake_keys(item) for item in cast("list[object]", value)]
    return value
