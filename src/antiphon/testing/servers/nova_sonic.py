"""A server on loopback that speaks the protocol of Amazon Nova Sonic, follows a script, and misbehaves on demand."""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from base64 import b64encode
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Any, Self

from antiphon.audio import bytes_for_ms
from antiphon.clock import SYSTEM_CLOCK, Clock
from antiphon.ids import new_uuid7
from antiphon.testing.servers.nova_line import PROTOCOL_ERRORS, Line, Manners, Refusal, model_of, verify
from antiphon.testing.servers.nova_rules import NovaSession
from antiphon.transports.sigv4 import Credentials

CREDENTIALS = Credentials(
    access_key_id="AKIALOOPBACK",
    secret_access_key="loopback-secret-0123456789",  # noqa: S106 - of no account
)
MODEL_ID = "amazon.nova-2-sonic-v1:0"
SIGNALS = ("marker", "text", "audio")
"""How the service says that the user speaks over the model; it may say it in any of these ways, or all."""

_PIECE_MS = 100.0
_EXPIRED = "InternalErrorCode=531::RST_STREAM closed stream. HTTP/2 error code: NO_ERROR"
_WAVE = (1000).to_bytes(2, "little", signed=True) + (-1000).to_bytes(2, "little", signed=True)


@dataclass(slots=True)
class _Held:
    """An answer in the middle of its sound."""

    audio_id: str
    sentence: str
    share: float  # of the sentence that was sent
    rest: list[tuple[str, float]]  # what is not sent: the rest of this sentence, and those behind it


@dataclass(frozen=True, slots=True)
class _Step:
    ready: Callable[[_Play], bool]
    play: Callable[[_Play], Awaitable[None]]


class _Play:
    """What a script has come to on one connection."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self.completion = ""
        self.held: _Held | None = None
        self.late = ""  # words of the user that are still to be told
        self.heard = False  # a `hear` or `barge_in` waits for its answer
        self.used: tuple[int, int] = (0, 0)
        self.typed_taken = 0
        self.results_taken = 0
        self.sound_taken = 0

    @property
    def session(self) -> NovaSession:
        return self.line.session

    @property
    def asked(self) -> bool:
        """Whether something waits for an answer."""
        session = self.session
        fed = len(session.results) > self.results_taken and not session.calls
        return self.heard or len(session.typed) > self.typed_taken or fed

    @property
    def spoken(self) -> bool:
        """Whether sound that is not silence has come since it was last taken."""
        return any(self.session.sound[self.sound_taken :])

    @property
    def talking(self) -> bool:
        """Whether the session is open for talk."""
        return self.line.open and self.session.stage == "talk"

    def take(self) -> None:
        """What was asked is being answered."""
        self.heard = False
        self.typed_taken, self.results_taken = len(self.session.typed), len(self.session.results)

    def take_sound(self) -> None:
        """What was said is being understood."""
        self.sound_taken = len(self.session.sound)
        self.heard = True


class NovaSonicServer:
    """Listens on a free port of 127.0.0.1 while its context is open.

    It holds the signature of the request and of every message against its credentials, and every event against the rules of the
    service (`nova_rules`); what breaks one gets the service's exception. The steps of its script are queued by the methods
    below, and played in order over however many connections, each once; a step that needs something of the client waits for
    it. Sound comes faster than it is spoken.

    Args:
        tls: Serve TLS with this context, which must offer `h2` by ALPN; None: HTTP/2 by prior knowledge.
        credentials: Whose signatures are good.
        region: In which region.
        model_id: The one model that there is.
        manners: How it treats the network.
        clock: Judges the dates of signatures, and paces `Manners.delay_s`.
        skew: Whether it judges dates at all.

    Attributes:
        sessions: What each connection has sent, in order.
        credentials: As given; a test may change them between connections.
        port: The port, while the context is open.
    """

    def __init__(
        self,
        *,
        tls: ssl.SSLContext | None = None,
        credentials: Credentials = CREDENTIALS,
        region: str = "us-east-1",
        model_id: str = MODEL_ID,
        manners: Manners | None = None,
        clock: Clock = SYSTEM_CLOCK,
        skew: bool = False,
    ) -> None:
        self._tls = tls
        self._manners = manners or Manners()
        self._clock = clock
        self._skew = skew
        self._steps: deque[_Step] = deque()
        self._refusals: deque[Refusal] = deque()
        self._server: asyncio.Server | None = None
        self._lines: set[Line] = set()
        self._played: list[_Play] = []  # of the lines that are open
        self._news = asyncio.Event()
        self.credentials = credentials
        self.region = region
        self.model_id = model_id
        self.sessions: list[NovaSession] = []
        self.port = 0

    @property
    def url(self) -> str:
        """The server's address, without a slash at its end."""
        return f"{'https' if self._tls else 'http'}://{'localhost' if self._tls else '127.0.0.1'}:{self.port}"

    endpoint = url

    @property
    def key(self) -> str:
        """The secret with which good signatures are made."""
        return self.credentials.secret_access_key

    def seeded(self) -> list[tuple[str, str]]:
        """The conversation that the latest connection was opened with, as role and text."""
        return [(role.lower(), text) for role, text in self.sessions[-1].history]

    def told(self) -> list[tuple[str, str]]:
        """What the latest session was told in words, before and during the talk, as role and text."""
        return [*self.seeded(), *(("user", text) for text in self.sessions[-1].typed)]

    def heard(self) -> list[bytes]:
        """The sound that came over each connection."""
        return [bytes(session.sound) for session in self.sessions]

    def owes(self) -> bool:
        """Whether the latest session waits for an answer that no step has begun."""
        return any(at.talking and at.asked for at in self._played if at.session is self.sessions[-1])

    def complaints(self) -> list[str]:
        """The exceptions that clients were told for breaking a rule."""
        return [told for session in self.sessions for told in session.complaints]

    def connections(self) -> int:
        """How many connections were opened."""
        return len(self.sessions)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()
            for line in list(self._lines):
                line.abort()
            await self.until(lambda _: not self._lines)
            await server.wait_closed()

    async def until(self, condition: Callable[[Self], bool]) -> None:
        """Return when `condition` holds of this server; it is asked whenever a client has sent something."""
        while not condition(self):
            await self._news.wait()

    @property
    def done(self) -> bool:
        """Whether every step has begun."""
        return not self._steps

    # The script.

    def hear(self, text: str, *, late: bool = False) -> Self:
        """The user's speech is understood. Waits for sound that is not silence.

        Args:
            text: The words.
            late: Tell them only after the next answer.
        """

        async def play(at: _Play) -> None:
            at.take_sound()
            if late:
                at.late = text
            else:
                await _heard(at, text)

        return self._add(lambda at: at.talking and at.spoken, play)

    def say(self, text: str, *, seconds: float = 1.0) -> Self:
        """A spoken answer: each sentence as it is planned, its sound, and as it was said. Waits for something to answer.

        That is a text, speech that was understood (`hear`), or the results of all calls.
        """
        return self._add(lambda at: at.talking and at.asked, lambda at: self._say(at, text, seconds, None))

    def say_and_hold(self, text: str, seconds: float = 2.0, *, after: float | None = None) -> Self:
        """As `say`, but stops when `after` seconds of sound were sent (None: half of it); the next step begins then."""
        hold = seconds / 2 if after is None else after
        return self._add(lambda at: at.talking and at.asked, lambda at: self._say(at, text, seconds, hold))

    def go_on(self) -> Self:
        """The answer that is held goes on to its end; nothing, if it was cut. Begins at once."""

        async def play(at: _Play) -> None:
            held, at.held = at.held, None
            if held is not None:
                await self._speak(at, held.rest, None, first=held)

        return self._soon(play)

    def barge_in(self, text: str, *, said: str | None = None, signals: Sequence[str] = SIGNALS) -> Self:
        """The user speaks over the answer, and is understood. Waits for sound that is not silence.

        Args:
            text: The user's words.
            said: What the model says it had said of the sentence; left out, in proportion to the sound that was sent.
            signals: How it says that it was interrupted.
        """

        async def play(at: _Play) -> None:
            at.take_sound()
            held, at.held = at.held, None
            if held is not None:
                await _cut(at, held, said, signals)
            elif "marker" in signals:
                await _text(at, "ASSISTANT", "FINAL", '{ "interrupted" : true }', "INTERRUPTED")
            await _heard(at, text)

        return self._add(lambda at: at.talking and at.spoken, play)

    def call_tools(self, calls: Sequence[tuple[str, Any]], *, twice: bool = False, apart: bool = False) -> Self:
        """The model calls tools. Waits for something to answer.

        Args:
            calls: `(name, input)` of each; an input that is a text is sent as it stands.
            twice: Encode the inputs twice, as the service does now and then.
            apart: Each in a block of its own, instead of all in one. The guide shows one call only.
        """

        async def play(at: _Play) -> None:
            at.take()
            await _begin(at)
            groups = [[call] for call in calls] if apart else [calls]
            for group in groups:
                await _calls(at, group, twice=twice)

        return self._add(lambda at: at.talking and at.asked, play)

    def usage(self, *, input_tokens: int = 0, output_tokens: int = 0) -> Self:
        """Tokens were used, all of them for speech."""

        async def play(at: _Play) -> None:
            await _begin(at)
            await _usage(at, input_tokens, output_tokens)

        return self._soon(play)

    def expire(self, *, timeout: bool = False) -> Self:
        """The session ends at its limit: `InternalErrorCode=531`, or a `modelTimeoutException`."""
        if timeout:
            return self.error(
                "modelTimeoutException", "Model has timed out in processing the request. Try your request again."
            )
        return self.error("validationException", _EXPIRED)

    def throttle(self) -> Self:
        """The session ends with a `throttlingException`."""
        return self.error("throttlingException", "Too many requests, please wait before trying again.")

    def error(self, kind: str, message: str = "The service says so.", *, fatal: bool = True) -> Self:
        """The session ends with an exception (`internalServerException`, ...), or goes on if it is not fatal."""
        return self._soon(lambda at: at.line.fail(kind, message, fatal=fatal))

    def unmodelled(self, code: str, message: str = "The service says so.") -> Self:
        """The session ends with an error that is none of the operation's exceptions."""
        return self._soon(lambda at: at.line.fail(code, message, modelled=False))

    def refuse(self, status: int, kind: str, message: str = "The service says so.") -> Self:
        """Answer the next request (or the first of several) with this instead of 200."""
        self._refusals.append(Refusal(status=status, kind=kind, message=message))
        return self

    def refuse_resume(self) -> Self:
        """Nothing: Nova Sonic resumes no session, and a client has nothing that could be refused."""
        return self

    def go_away(self, seconds: float = 0.0) -> Self:
        """The server of HTTP/2 says that it goes, and serves the session to its end: Nova Sonic itself warns of nothing."""
        return self._soon(lambda at: at.line.go_away())

    def end(self) -> Self:
        """The session ends in good order, unasked."""
        return self._soon(lambda at: at.line.end())

    def reset(self, code: str = "INTERNAL_ERROR") -> Self:
        """The stream is reset, with an error's name of HTTP/2."""
        return self._soon(lambda at: at.line.reset(code))

    def cut(self) -> Self:
        """The connection dies without a word."""

        async def play(at: _Play) -> None:
            at.line.abort()

        return self._soon(play)

    def unknown_event(self) -> Self:
        """An event, and a message, of which nobody has heard."""

        async def play(at: _Play) -> None:
            await at.line.event("futureEvent", {"promptName": "p", "value": 1})

        return self._soon(play)

    def malformed(self, raw: bytes = b"\0\0\0\x20\0\0\0\0not an event stream of AWS") -> Self:
        """Bytes that are no event stream, or whatever is given."""

        async def play(at: _Play) -> None:
            await at.line.message(raw)
            await at.line.send_merged()

        return self._soon(play)

    def event(self, name: str, body: dict[str, Any]) -> Self:
        """Any event of one's own."""
        return self._soon(lambda at: at.line.event(name, body))

    def _soon(self, play: Callable[[_Play], Awaitable[None]]) -> Self:
        """A step that waits for nothing but an open session."""
        return self._add(lambda at: at.talking, play)

    def _add(self, ready: Callable[[_Play], bool], play: Callable[[_Play], Awaitable[None]]) -> Self:
        self._steps.append(_Step(ready, play))
        self._note()
        return self

    # The server.

    def _note(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = Line(reader, writer, clock=self._clock, manners=self._manners, check=self._check, note=self._note)
        at = _Play(line)
        self._lines.add(line)
        self._played.append(at)
        try:
            async with asyncio.TaskGroup() as group:
                player = group.create_task(self._play(at))
                try:
                    await line.serve()
                finally:
                    player.cancel()
        except* PROTOCOL_ERRORS:
            pass  # the client is gone, or does not speak the protocol: nothing is owed to it
        finally:
            line.open = False
            self._lines.discard(line)
            self._played.remove(at)
            self._note()
            writer.close()

    async def _play(self, at: _Play) -> None:
        while True:
            news = self._news
            if self._steps and self._steps[0].ready(at):
                step = self._steps.popleft()
                await step.play(at)
                await at.line.send_merged()
                self._note()
            else:
                await news.wait()

    def _check(self, line: Line, headers: dict[str, str]) -> Refusal | None:
        self.sessions.append(line.session)
        scheme = "https" if self._tls else "http"
        now = self._clock.utc()
        if not self._skew:
            now = _dated(headers) or now
        verifier, refusal = verify(headers, self.credentials, now=now, region=self.region, scheme=scheme)
        if refusal is not None:
            return refusal
        model_id = model_of(headers.get(":path", ""))
        if model_id is None or headers.get(":method") != "POST":
            return Refusal(status=404, kind="UnknownOperationException", message="Unknown operation.")
        line.session.model_id = model_id
        if model_id != self.model_id:
            told = "The provided model identifier is invalid."
            return Refusal(status=400, kind="ValidationException", message=told)
        if headers.get("content-type") != "application/vnd.amazon.eventstream":
            told = "Content-Type must be application/vnd.amazon.eventstream."
            return Refusal(status=400, kind="ValidationException", message=told)
        if self._refusals:
            return self._refusals.popleft()
        if verifier is not None:
            line.trust(verifier)
        return None

    async def _say(self, at: _Play, text: str, seconds: float, hold: float | None) -> None:
        at.take()
        await _begin(at)
        sentences = re.findall(r"\S.*?(?:[.!?…]+(?=\s|$)|$)", text)
        chars = sum(map(len, sentences)) or 1
        parts = [(sentence, seconds * len(sentence) / chars) for sentence in sentences]
        await self._speak(at, parts, hold, first=None)

    async def _speak(
        self, at: _Play, parts: list[tuple[str, float]], hold: float | None, *, first: _Held | None
    ) -> None:
        """Send sentences, each with so many seconds of sound; stop after `hold` seconds."""
        rate = int(at.session.settings["promptStart"]["audioOutputConfiguration"]["sampleRateHertz"])
        for index, (sentence, seconds) in enumerate(parts):
            audio_id = new_uuid7()
            if first is not None and index == 0:
                audio_id = first.audio_id
            else:
                await _text(at, "ASSISTANT", "SPECULATIVE", sentence, "PARTIAL_TURN")
                await at.line.event("contentStart", _audio_start(at, audio_id, rate))
            sending = seconds if hold is None else min(seconds, hold)
            await _sound(at, audio_id, sending, rate)
            if hold is not None:
                hold -= sending
                if hold <= 0 and (sending < seconds or index + 1 < len(parts)):
                    rest = [(sentence, seconds - sending), *parts[index + 1 :]]
                    at.held = _Held(audio_id, sentence, sending / seconds if seconds else 1.0, rest)
                    return
            stopped = "PARTIAL_TURN" if index + 1 < len(parts) else "END_TURN"
            await at.line.event(
                "contentEnd", {**_names(at), "contentId": audio_id, "type": "AUDIO", "stopReason": stopped}
            )
            await _text(at, "ASSISTANT", "FINAL", sentence, stopped)
        await _usage(at, 0, 10 * len(parts))
        if at.late:
            await _heard(at, at.late)
            at.late = ""


def _dated(headers: dict[str, str]) -> datetime | None:
    try:
        return datetime.strptime(headers.get("x-amz-date", "") + "+0000", "%Y%m%dT%H%M%SZ%z")
    except ValueError:
        return None


def _names(at: _Play) -> dict[str, Any]:
    prompt = at.session.settings.get("promptStart", {}).get("promptName", "")
    return {"sessionId": "loopback", "promptName": prompt, "completionId": at.completion}


async def _begin(at: _Play) -> None:
    if not at.completion:
        at.completion = new_uuid7()
        await at.line.event("completionStart", _names(at))


async def _usage(at: _Play, given: int, made: int) -> None:
    side = {"speechTokens": given, "textTokens": 0}, {"speechTokens": made, "textTokens": 0}
    before = at.used
    at.used = before[0] + given, before[1] + made
    total = {"speechTokens": at.used[0], "textTokens": 0}, {"speechTokens": at.used[1], "textTokens": 0}
    await at.line.event(
        "usageEvent",
        {
            **_names(at),
            "totalInputTokens": at.used[0],
            "totalOutputTokens": at.used[1],
            "totalTokens": sum(at.used),
            "details": {
                "delta": {"input": side[0], "output": side[1]},
                "total": {"input": total[0], "output": total[1]},
            },
        },
    )


async def _text(at: _Play, role: str, stage: str, text: str, stopped: str) -> None:
    await _begin(at)
    names = {**_names(at), "contentId": new_uuid7()}
    start = {
        "type": "TEXT",
        "role": role,
        "additionalModelFields": json.dumps({"generationStage": stage}),
        "textOutputConfiguration": {"mediaType": "text/plain"},
    }
    await at.line.event("contentStart", {**names, **start})
    await at.line.event("textOutput", {**names, "role": role, "content": text})
    await at.line.event("contentEnd", {**names, "type": "TEXT", "stopReason": stopped})


async def _heard(at: _Play, text: str) -> None:
    await _text(at, "USER", "FINAL", text, "PARTIAL_TURN")


def _audio_start(at: _Play, audio_id: str, rate: int) -> dict[str, Any]:
    return {
        **_names(at),
        "contentId": audio_id,
        "type": "AUDIO",
        "role": "ASSISTANT",
        "audioOutputConfiguration": {
            "mediaType": "audio/lpcm",
            "sampleRateHertz": rate,
            "sampleSizeBits": 16,
            "encoding": "base64",
            "channelCount": 1,
        },
    }


async def _sound(at: _Play, audio_id: str, seconds: float, rate: int) -> None:
    left = bytes_for_ms(seconds * 1000, rate)
    while left > 0:
        size = min(left, bytes_for_ms(_PIECE_MS, rate))
        left -= size
        content = b64encode((_WAVE * (size // len(_WAVE) + 1))[:size]).decode()
        await at.line.event(
            "audioOutput", {**_names(at), "contentId": audio_id, "role": "ASSISTANT", "content": content}
        )


async def _cut(at: _Play, held: _Held, said: str | None, signals: Sequence[str]) -> None:
    words = held.sentence.split()
    told = " ".join(words[: round(len(words) * held.share)]) if said is None else said
    stopped = "INTERRUPTED" if "audio" in signals else "PARTIAL_TURN"
    await at.line.event(
        "contentEnd", {**_names(at), "contentId": held.audio_id, "type": "AUDIO", "stopReason": stopped}
    )
    await _text(at, "ASSISTANT", "FINAL", told, "INTERRUPTED" if "text" in signals else "PARTIAL_TURN")
    if "marker" in signals:
        await _text(at, "ASSISTANT", "FINAL", '{ "interrupted" : true }', "INTERRUPTED")


async def _calls(at: _Play, calls: Sequence[tuple[str, Any]], *, twice: bool) -> None:
    """One block with calls in it."""
    names = {**_names(at), "contentId": new_uuid7()}
    start = {"type": "TOOL", "role": "TOOL", "toolUseOutputConfiguration": {"mediaType": "application/json"}}
    await at.line.event("contentStart", {**names, **start})
    for name, value in calls:
        tool_use_id = new_uuid7()
        at.session.calls[tool_use_id] = name
        content = value if isinstance(value, str) else json.dumps(value)
        if twice:
            content = json.dumps(content)
        await at.line.event("toolUse", {**names, "toolName": name, "toolUseId": tool_use_id, "content": content})
    await at.line.event("contentEnd", {**names, "type": "TOOL", "stopReason": "TOOL_USE"})
