"""Gemini Live on loopback: the protocol with its rules, and a script of what is heard and said."""

from __future__ import annotations

import asyncio
import json
import re
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import count
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self
from urllib.parse import parse_qs, urlsplit

from antiphon.testing.servers.gemini_live_rules import (
    BACKEND,
    INVALID,
    POLICY,
    Refused,
    check_setup,
    invalid,
    message_at,
    parsed,
)
from antiphon.testing.servers.gemini_live_session import GeminiLiveSession, WireStyle, usage

if TYPE_CHECKING:
    from websockets.asyncio.server import Server, ServerConnection
    from websockets.http11 import Request, Response

    from antiphon.testing.servers.certificates import LoopbackAuthority

ErrorKind = Literal[
    "context", "internal", "invalid_argument", "key_leaked", "policy", "quota", "throttled", "unavailable"
]

DEADLINE = "Deadline expired before operation could complete."
QUOTA = "You exceeded your current quota, please check your plan and billing details."
ERRORS: Mapping[ErrorKind, tuple[int, str]] = {
    "context": (INVALID, "The input token count exceeds the maximum number of tokens allowed 131072."),
    "internal": (BACKEND, "Internal error encountered."),
    "invalid_argument": (INVALID, "Request contains an invalid argument."),
    "key_leaked": (POLICY, "Your API key was reported as leaked. Please use another API key."),
    "policy": (POLICY, "Operation is not implemented, or supported, or enabled."),
    "quota": (BACKEND, QUOTA),
    "throttled": (BACKEND, "Resource has been exhausted (e.g. check quota)."),
    "unavailable": (BACKEND, "The service is currently unavailable."),
}
"""How the service ends a session, by what is wrong."""

_GEMINI = re.compile(
    r"/+ws/google\.ai\.generativelanguage\.v1(?:alpha|beta)?\.GenerativeService\.BidiGenerateContent(Constrained)?"
)
_VERTEX = re.compile(r"/+ws/google\.cloud\.aiplatform\.v1(?:beta1)?\.LlmBidiService/BidiGenerateContent")
_UNTIL_S = 15.0
_LONGEST_REASON = 123


@dataclass(frozen=True, slots=True)
class _Step:
    """One step of the script: when it may begin, and what it does."""

    ready: Callable[[GeminiLiveSession], bool]
    play: Callable[[GeminiLiveSession], Awaitable[None]]


@dataclass(slots=True)
class _Script:
    """What is to be played, whether a step is under way, and what was wrong with one."""

    steps: deque[_Step] = field(default_factory=deque[_Step])
    playing: bool = False
    failure: BaseException | None = None


@dataclass(slots=True)
class _Moods:
    """What the next connection meets."""

    http: tuple[int, str] | None = None
    refuses_resume: tuple[int, str] | None = None
    slow: asyncio.Event | None = None
    gates: list[asyncio.Event] = field(default_factory=list[asyncio.Event])


class GeminiLiveServer:
    """Gemini Live on a free port of loopback while its context is open.

    It takes what the service takes and closes the session with the service's code and words otherwise (see
    `gemini_live_rules`). What it hears and says follows a script: each method adds a step, and the steps are played in order,
    over however many connections. A step begins when the client has done what the service waits for; until then it waits, for
    the next connection if need be. Sound comes faster than it is played, as from the service.

    Args:
        key: The API key, or ephemeral token (`auth_tokens/...`), that is right.
        model_id: The model that there is.
        tls: Serve TLS with a certificate of this authority. The vendor's client wants it.
        vertex: `(project, location)`: be Vertex AI, with `key` as the bearer token.
        style: How messages are written.

    Attributes:
        key: See above.
        model_id: See above.
        sessions: The connections that sent anything, in order, with what they sent.
        refused: HTTP statuses with which connections were refused.
    """

    def __init__(
        self,
        *,
        key: str = "loopback-key",
        model_id: str = "gemini-3.8-live",
        tls: LoopbackAuthority | None = None,
        vertex: tuple[str, str] | None = None,
        style: WireStyle | None = None,
    ) -> None:
        self.key = key
        self.model_id = model_id
        self.sessions: list[GeminiLiveSession] = []
        self.refused: list[int] = []
        self._tls = tls
        self._vertex = vertex
        self._style = style or WireStyle()
        self._script = _Script()
        self._moods = _Moods()
        self._numbers = count(1)
        self._handles: dict[str, tuple[str, list[tuple[str, str]]]] = {}
        self._waiting: list[asyncio.Future[None]] = []
        self._server: Server | None = None
        self.port = 0

    @property
    def url(self) -> str:
        """The base address, as `base_url` takes it."""
        return f"https://localhost:{self.port}" if self._tls is not None else f"http://127.0.0.1:{self.port}"

    @property
    def steps_left(self) -> int:
        """Steps that did not begin yet."""
        return len(self._script.steps)

    async def __aenter__(self) -> Self:
        from websockets.asyncio.server import serve

        self._server = await serve(
            self._serve,
            "127.0.0.1",
            self.port,
            ssl=None if self._tls is None else self._tls.server_context(),
            process_request=self._check_request,
            compression=None,
            max_size=None,
            ping_interval=None,
            close_timeout=2,
        )
        self.port = next(iter(self._server.sockets)).getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        server, self._server = self._server, None
        for gate in self._moods.gates:
            gate.set()
        if server is not None:
            server.close()
            await server.wait_closed()
        if self._script.failure is not None and error is None:
            raise self._script.failure

    # The script.

    def hear(self, text: str, *, late: bool = False, interim: bool = False) -> None:
        """The user said this. Begins when there is sound that was not taken as speech.

        Args:
            text: What was understood.
            late: Whether it is told only after the answer to it.
            interim: Whether a guess is told before.
        """
        self._add(lambda session: session.hears, lambda session: session.understood(text, late=late, interim=interim))

    def say(self, text: str, *, seconds: float = 1.0) -> None:
        """An answer of this length. Begins when one is owed: after speech, typed text, or the results of all tools."""
        self._add(lambda session: session.owes, lambda session: session.say(session.spoken(text, seconds), text))

    def say_and_hold(self, text: str, seconds: float = 2.0, *, after: float | None = None) -> None:
        """Begin an answer like `say`, and stay in the middle: until `go_on`, speech over it, or an end.

        Args:
            text: What is said.
            seconds: How long all of it is.
            after: How much sound is sent; half of it if left out.
        """

        async def play(session: GeminiLiveSession) -> None:
            messages = session.spoken(text, seconds)
            share = len(messages) * (0.5 if after is None else after / seconds)
            cut = round(share)
            await session.hold(messages[:cut], messages[cut:], text)

        self._add(lambda session: session.owes, play)

    def go_on(self) -> None:
        """The answer that is held goes on to its end; nothing, if it was cut. Begins at once."""
        self._now(lambda session: session.finish())

    def barge_in(self, text: str) -> None:
        """The user says this over the answer (or over tools at work, whose calls are taken back). Begins with new sound."""
        self._add(lambda session: session.hears, lambda session: session.speak_over(text))

    def call_tools(self, calls: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        """Call tools by name, with arguments. Begins when an answer is owed."""
        self._add(lambda session: session.owes, lambda session: session.call(calls))

    def usage(self, read: int = 10, made: int = 5) -> None:
        """Tell of tokens. Begins at once."""
        self._now(lambda session: session.emit({"usageMetadata": usage(read, made)}))

    def go_away(self, seconds: float = 50.0) -> None:
        """Announce the end of the connection. Begins at once; `expire` brings it about."""
        self._now(lambda session: session.emit({"goAway": {"timeLeft": f"{seconds:g}s"}}))

    def expire(self) -> None:
        """End the connection at its limit. Begins at once."""
        self._end(BACKEND, DEADLINE)

    def error(self, kind: ErrorKind) -> None:
        """End the session with one of `ERRORS`. Begins at once."""
        self._end(*ERRORS[kind])

    def cut(self) -> None:
        """Let the connection die without a word. Begins at once."""

        async def play(session: GeminiLiveSession) -> None:
            raise _CutError

        self._now(play)

    def close(self, code: int = 1000, reason: str = "") -> None:
        """End the connection with any code. Begins at once."""
        self._end(code, reason)

    def unknown_event(self) -> None:
        """Say something that no client knows. Begins at once."""
        self._now(
            lambda session: session.emit(
                {"moodRing": {"colour": "blue"}},
                {"serverContent": {"humming": True}},
                {"serverContent": {"modelTurn": {"role": "model", "parts": [{"scent": "lavender"}]}}},
            )
        )

    def malformed(self, frame: str | bytes = b'{"serverContent":') -> None:
        """Send a frame as it is. Begins at once."""
        self._now(lambda session: session.send_frame(frame))

    def emit(self, *messages: dict[str, Any]) -> None:
        """Send messages as they are. Begins at once."""
        self._now(lambda session: session.emit(*messages))

    # What the next connection meets.

    def refuse_resume(self, code: int = POLICY, reason: str = "BidiGenerateContent session not found") -> None:
        """Do not resume the next session that is asked for."""
        self._moods.refuses_resume = code, reason

    def throttle(self) -> None:
        """Refuse the next connection: too many at once."""
        self._moods.http = 429, "Resource has been exhausted (e.g. check quota)."

    def break_down(self) -> None:
        """Refuse the next connection: the service is down."""
        self._moods.http = 503, "The service is currently unavailable."

    def slow(self) -> Callable[[], None]:
        """Leave the next setup without an answer, until the function that is returned is called."""
        gate = self._moods.slow = asyncio.Event()
        self._moods.gates.append(gate)
        return gate.set

    # What tests look at.

    @property
    def session(self) -> GeminiLiveSession:
        """The latest session."""
        return self.sessions[-1]

    def seeded(self) -> list[tuple[str, str]]:
        """The conversation that the latest session was opened with, as role and text."""
        return [
            ("assistant" if turn["role"] == "model" else "user", part.get("text", ""))
            for turn in self.session.history
            for part in turn["parts"]
        ]

    def told(self) -> list[tuple[str, str]]:
        """What the latest session was told in words, before and during the talk, as role and text."""
        return [*self.seeded(), *(("user", text) for text in self.session.texts)]

    def heard(self) -> list[bytes]:
        """The sound that came over each connection."""
        return [bytes(session.sound) for session in self.sessions]

    def owes(self) -> bool:
        """Whether the latest session waits for an answer that no step has begun."""
        return bool(self.sessions) and self.session.open and self.session.owes

    def complaints(self) -> list[str]:
        """The rules that clients broke: what they were told."""
        return [told for session in self.sessions for told in session.complaints]

    def connections(self) -> int:
        """How many connections sent anything."""
        return len(self.sessions)

    async def until(self, what: Callable[[Self], object], wanted: str = "") -> None:
        """Wait until clients have done something.

        Raises:
            AssertionError: If they have not within 15 real seconds.
        """
        try:
            async with asyncio.timeout(_UNTIL_S):
                while not what(self):
                    await self._change()
        except TimeoutError:
            came = [[next(iter(message)) for message in session.received[-20:]] for session in self.sessions]
            raise AssertionError(f"the clients did not do it: {wanted}; they sent {came}") from None

    async def played(self) -> None:
        """Wait until the script is at its end.

        Raises:
            AssertionError: If it is not within 15 real seconds.
        """
        await self.until(lambda _: not self._script.steps and not self._script.playing, "the end of the script")

    async def _change(self) -> None:
        if self._script.failure is not None:
            raise self._script.failure
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        await waiting

    def _changed(self) -> None:
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.done():
                one.set_result(None)

    def _add(
        self, ready: Callable[[GeminiLiveSession], bool], play: Callable[[GeminiLiveSession], Awaitable[None]]
    ) -> None:
        self._script.steps.append(_Step(ready, play))
        self._changed()

    def _now(self, play: Callable[[GeminiLiveSession], Awaitable[None]]) -> None:
        self._add(lambda session: session.seeded, play)

    def _end(self, code: int, reason: str) -> None:
        async def play(session: GeminiLiveSession) -> None:
            raise Refused(code, reason)

        self._now(play)

    # Connections.

    def _check_request(self, connection: ServerConnection, request: Request) -> Response | None:
        address = urlsplit(request.path)
        if self._moods.http is not None:
            (status, words), self._moods.http = self._moods.http, None
            return self._refuse(connection, status, words)
        if self._vertex is not None:
            if not _VERTEX.fullmatch(address.path):
                return self._refuse(connection, 404, "Not found.")
            if request.headers.get("authorization") != f"Bearer {self.key}":
                return self._refuse(connection, 401, "Request had invalid authentication credentials.")
            return None
        if not (found := _GEMINI.fullmatch(address.path)):
            return self._refuse(connection, 404, "Not found.")
        if found[1]:
            if not request.headers.get("authorization", "").startswith("Token "):
                return self._refuse(connection, 401, "Request is missing required authentication credential.")
        elif not request.headers.get("x-goog-api-key") and "key" not in parse_qs(address.query):
            return self._refuse(
                connection, 403, "Method doesn't allow unregistered callers (callers without established identity)."
            )
        return None

    def _refuse(self, connection: ServerConnection, status: int, words: str) -> Response:
        self.refused.append(status)
        self._changed()
        error = {"error": {"code": status, "message": words, "status": HTTPStatus(status).phrase}}
        return connection.respond(status, json.dumps(error))

    def _has_right_key(self, request: Request) -> bool:
        if self._vertex is not None:
            return True
        given = request.headers.get("x-goog-api-key") or next(
            iter(parse_qs(urlsplit(request.path).query).get("key", [])), ""
        )
        return self.key in {given, request.headers.get("authorization", "").removeprefix("Token ")}

    async def _serve(self, connection: ServerConnection) -> None:
        from websockets.exceptions import ConnectionClosed

        session = GeminiLiveSession(
            connection.send,
            style=self._style,
            generation=_generation(self.model_id),
            lineage=f"session-{next(self._numbers)}",
            numbers=self._numbers,
            on_handle=self._keep,
        )
        try:
            async with asyncio.TaskGroup() as group:
                reading = group.create_task(self._read(connection, session))
                playing = group.create_task(self._play(session))
                await reading
                playing.cancel()
        except* ConnectionClosed:
            pass
        except* Refused as refusals:
            refused = _first(refusals)
            session.closed = refused.code, refused.reason
            reason = refused.reason.encode()[:_LONGEST_REASON].decode(errors="ignore")
            session.open = False
            self._changed()
            await connection.close(refused.code, reason)
        except* _CutError:
            connection.transport.abort()
        except* Exception as errors:  # noqa: BLE001 - a script that is wrong fails the test, not the server
            self._script.failure = errors.exceptions[0]
            connection.transport.abort()
        finally:
            session.open = False
            self._changed()

    async def _read(self, connection: ServerConnection, session: GeminiLiveSession) -> None:
        try:
            async for frame in connection:
                await self._take(connection, session, frame)
                self._changed()
        except Refused as refused:
            if not isinstance(refused, _WantedError):
                session.complaints.append(str(refused))
            raise

    async def _take(self, connection: ServerConnection, session: GeminiLiveSession, frame: str | bytes) -> None:
        if session not in self.sessions:
            self.sessions.append(session)
            self._changed()
        message = parsed(frame)
        if "audio" not in message_at(message, "realtimeInput"):
            session.received.append(message)
        if session.ready:
            await session.take(message)
        else:
            await self._begin(connection, session, message)

    async def _begin(self, connection: ServerConnection, session: GeminiLiveSession, message: dict[str, Any]) -> None:
        if not (request := connection.request) or not self._has_right_key(request):
            raise Refused(INVALID, "API key not valid. Please pass a valid API key.")
        if "setup" not in message:
            raise invalid("The first message must be setup.")
        setup = message_at(message, "setup")
        check_setup(setup, model=self._resource, vertex=self._vertex is not None)
        self._resume(session, setup.get("sessionResumption", {}).get("handle"))
        slow, self._moods.slow = self._moods.slow, None
        if slow is not None:
            await slow.wait()
        session.accept(setup)
        await session.emit({"setupComplete": {"sessionId": session.lineage}})
        await session.offer_handle()

    def _resume(self, session: GeminiLiveSession, handle: str | None) -> None:
        if not handle:
            return
        if self._moods.refuses_resume is not None:
            (code, reason), self._moods.refuses_resume = self._moods.refuses_resume, None
            raise _WantedError(code, reason)
        if handle not in self._handles:
            raise Refused(POLICY, "BidiGenerateContent session not found")
        lineage, knows = self._handles[handle]
        if any(other.open and other.lineage == lineage for other in self.sessions if other is not session):
            raise Refused(BACKEND, "Internal error encountered.")  # it is connected elsewhere
        session.lineage, session.resumed, session.knows = lineage, handle, list(knows)

    @property
    def _resource(self) -> str:
        if self._vertex is None:
            return f"models/{self.model_id}"
        project, location = self._vertex
        return f"projects/{project}/locations/{location}/publishers/google/models/{self.model_id}"

    def _keep(self, handle: str, session: GeminiLiveSession) -> None:
        self._handles[handle] = session.lineage, list(session.knows)

    async def _play(self, session: GeminiLiveSession) -> None:
        while True:
            while not (session.ready and self._script.steps and self._script.steps[0].ready(session)):
                await self._change()
            step = self._script.steps.popleft()
            self._script.playing = True
            try:
                await step.play(session)
            finally:
                self._script.playing = False
                self._changed()
            await asyncio.sleep(0)


class _WantedError(Refused):
    """A refusal that the script asked for."""


class _CutError(Exception):
    """The connection is to die."""


def _generation(model_id: str) -> int:
    """Of `gemini-3.8-live`, 3."""
    found = re.search(r"gemini-(?:live-)?(\d+)", model_id)
    return int(found[1]) if found else 3


def _first(group: BaseExceptionGroup[Refused]) -> Refused:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, Refused)
    return error
