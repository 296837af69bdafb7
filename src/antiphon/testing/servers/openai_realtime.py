"""OpenAI's Realtime API on loopback: its rules, a script, and misbehaviour on demand."""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64decode
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from antiphon.clock import SYSTEM_CLOCK, Clock
from antiphon.errors import NotSupportedError
from antiphon.jsonable import encode_json
from antiphon.testing.servers.openai_realtime_forms import Event, RefusedError
from antiphon.testing.servers.openai_realtime_rules import RealtimeSession

PATIENCE_S = 15.0
"""Real seconds that `until` waits."""
_EXPIRED = "Your session hit the maximum duration of 60 minutes."
_ERRORS: dict[str, tuple[str, str]] = {
    "session_expired": ("invalid_request_error", _EXPIRED),
    "server_error": ("server_error", "The server had an error while processing your request. Sorry about that!"),
    "insufficient_quota": (
        "insufficient_quota",
        "You exceeded your current quota, please check your plan and billing details.",
    ),
    "credit_balance_exhausted": ("invalid_request_error", "Your credit balance is exhausted."),
    "invalid_api_key": ("invalid_request_error", "Incorrect API key provided."),
    "account_deactivated": ("invalid_request_error", "The account is deactivated."),
    "rate_limit_exceeded": ("rate_limit_error", "Rate limit reached for requests. Please try again in 2s."),
    "response_cancel_not_active": ("invalid_request_error", "Cancellation failed: no active response found"),
}
_STATUSES = {"invalid_api_key": 401, "account_deactivated": 401, "insufficient_quota": 429, "rate_limit_exceeded": 429}


class _Link:
    """One connection.

    Attributes:
        used: How much of the sound that came a step has used.
        rest: What is still to come of an answer that is held.
        late: What is to be sent after the next answer.
        cut_in: How many more messages are sent before the line is cut.
    """

    __slots__ = ("connection", "cut_in", "late", "rest", "sending", "session", "used")

    def __init__(self, connection: ServerConnection, session: RealtimeSession) -> None:
        self.connection = connection
        self.session = session
        self.used = 0
        self.rest: Iterator[Event] | None = None
        self.late: list[Event] = []
        self.cut_in: int | None = None
        self.sending = asyncio.Lock()

    @property
    def spoken_to(self) -> bool:
        """Whether sound has come that no step has used."""
        return self.session.updated and self.session.heard > self.used

    @property
    def is_asked(self) -> bool:
        """Whether an answer is due."""
        return self.session.response is not None and self.rest is None


@dataclass(frozen=True, slots=True)
class _Step:
    ready: Callable[[_Link], bool]
    act: Callable[[_Link], Awaitable[None]]


class OpenAIRealtimeServer:
    """Speaks the Realtime API on a free port of 127.0.0.1 while its context is open.

    It follows a script over however many connections: methods such as `hear` and `say` put a step into it, at any time. A step
    begins when it is its turn and the client has done what the provider waits for. What the client does against the rules is
    refused with the provider's error, and kept in `complaints`.

    Needs the package `websockets`.

    Args:
        key: The key that is taken.
        model_id: The model that is known.
        tls: Serve TLS with this context.
        split: Cut each message into fragments of so many characters; 0: do not.
        pace_s: Pause before each message, in seconds of `clock`.
        clock: Measures pauses.

    Attributes:
        key: The key that is taken.
        model_id: The model that is known.
        sessions: All sessions, in order.
        handshakes: The headers of each handshake, in lower case.
    """

    def __init__(
        self,
        *,
        key: str = "sk-loopback-0123456789",
        model_id: str = "gpt-realtime-2",
        tls: ssl.SSLContext | None = None,
        split: int = 0,
        pace_s: float = 0.0,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.key = key
        self.model_id = model_id
        self.sessions: list[RealtimeSession] = []
        self.handshakes: list[dict[str, str]] = []
        self._tls = tls
        self._split = split
        self._pace_s = pace_s
        self._clock = clock
        self._server: Server | None = None
        self._links: list[_Link] = []
        self._steps: deque[_Step] = deque()
        self._asked_for: list[Event] = []  # errors that the script wanted
        self._handshake_refusals: deque[str] = deque()
        self._news = asyncio.Event()
        self._player: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """The API's address, with its version: the model's `base_url`, and the SDK's `websocket_base_url`."""
        if self._server is None:
            raise LookupError("the server is not open")
        port = next(iter(self._server.sockets)).getsockname()[1]
        return f"wss://localhost:{port}/v1" if self._tls else f"ws://127.0.0.1:{port}/v1"

    @property
    def session(self) -> RealtimeSession:
        """The latest session."""
        return self.sessions[-1]

    async def __aenter__(self) -> Self:
        self._server = await serve(
            self._serve,
            "127.0.0.1",
            0,
            ssl=self._tls,
            process_request=self._process_request,
            max_size=None,
            compression=None,
            close_timeout=1.0,
        )
        self._player = asyncio.create_task(self._play(), name="script")  # noqa: TID251 - ended by __aexit__
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        player, server = self._player, self._server
        if player is not None:
            player.cancel()
            await asyncio.wait({player})
        if server is not None:
            for link in self._links:
                link.connection.transport.abort()
            server.close()
            await server.wait_closed()
        if (
            player is not None
            and not player.cancelled()
            and (failure := player.exception()) is not None
            and error is None
        ):
            raise failure

    # What the tests look at.

    def seeded(self) -> list[tuple[str, str]]:
        """The conversation that the latest session was opened with, as role and text; calls and results left out."""
        told: list[tuple[str, str]] = []
        for event in self.session.received:
            if event["type"] == "response.create":
                break
            if event["type"] == "conversation.item.create" and event["item"].get("type") == "message":
                item = event["item"]
                told.append((item["role"], "".join(part.get("text", "") for part in item["content"])))
        return told

    def complaints(self) -> list[str]:
        """The errors that clients were told of, but for those that the script asked for."""
        return [
            f"{error['code']}: {error['message']}"
            for session in self.sessions
            for error in session.refusals
            if not any(error is wanted for wanted in self._asked_for)
        ]

    def told(self) -> list[tuple[str, str]]:
        """What the latest session was told in words, before and during the talk, as role and text."""
        created = _sent(self.session, "conversation.item.create")
        items = [event["item"] for event in created if event["item"].get("type") == "message"]
        return [(item["role"], "".join(part.get("text", "") for part in item["content"])) for item in items]

    def heard(self) -> list[bytes]:
        """The sound that came over each connection, as it travels."""
        return [
            b"".join(b64decode(event["audio"]) for event in _sent(session, "input_audio_buffer.append"))
            for session in self.sessions
        ]

    def owes(self) -> bool:
        """Whether the latest session waits for an answer that no step has begun."""
        link = self._links[-1] if self._links else None
        return link is not None and link.is_asked

    def connections(self) -> int:
        """How many connections were opened."""
        return len(self.sessions)

    def sent(self, kind: str) -> list[Event]:
        """What clients sent of a type, in all sessions, in order."""
        return [event for session in self.sessions for event in _sent(session, kind)]

    async def until(self, what: Callable[[Self], object], wanted: str = "") -> None:
        """Wait until clients have done something.

        Raises:
            AssertionError: If that takes longer than `PATIENCE_S` real seconds.
        """
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not what(self):
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            came = [[event["type"] for event in session.received[-20:]] for session in self.sessions]
            raise AssertionError(f"the client did not do it: {wanted}; it sent {came}") from None

    async def played(self) -> None:
        """Wait until the script is at its end."""
        await self.until(lambda server: not server._steps, "the end of the script")  # noqa: SLF001

    # The script.

    def hear(self, text: str, *, late: bool = False, failed: bool = False, noise: bool = False) -> None:
        """When sound has come: the user spoke, and is answered.

        Args:
            text: What the user said.
            late: The words are told after the next answer.
            failed: They cannot be made out.
            noise: The user begins to speak, and nothing comes of it: no item, no answer.
        """

        async def act(link: _Link) -> None:
            link.used = link.session.heard
            item_id, events = link.session.speech()
            if link.session.response is None:
                link.rest = None  # it was cut
            await self._send(link, *events)
            if noise:
                await self._send(link, *link.session.silence(item_id), *link.session.transcribed(item_id, ""))
                return
            await self._send(link, *link.session.silence(item_id))
            words = link.session.transcribed(item_id, text, failed=failed)
            if late:
                link.late += words
            else:
                await self._send(link, *words)
            if link.session.detection.get("create_response", True) and link.session.response is None:
                await self._send(link, *link.session.begin())

        self._add(lambda link: link.spoken_to, act)

    def barge_in(self, text: str) -> None:
        """When sound has come, and an answer was begun: the user speaks over it. It is cut, and the new words answered."""

        async def act(link: _Link) -> None:
            link.used, link.rest = link.session.heard, None
            item_id, events = link.session.speech()
            words = link.session.transcribed(item_id, text)
            await self._send(link, *events, *link.session.silence(item_id), *words, *link.session.begin())

        self._add(lambda link: link.spoken_to and bool(link.session.answered), act)

    def say(self, text: str, *, seconds: float = 1.0) -> None:
        """When an answer is due: speak, faster than real time."""

        async def act(link: _Link) -> None:
            for event in link.session.answer(text, seconds):
                await self._send(link, event)
            await self._finish(link)

        self._add(lambda link: link.is_asked, act)

    def say_and_hold(self, text: str, seconds: float = 2.0, *, after: float | None = None) -> None:
        """When an answer is due: begin it, and stay in the middle. `barge_in` cuts it, `go_on` ends it.

        Args:
            text: What is said.
            seconds: How long all of it is.
            after: How much sound is sent, in seconds; half of it if left out.
        """
        hold_ms = seconds * 500 if after is None else after * 1000

        async def act(link: _Link) -> None:
            link.rest = link.session.answer(text, seconds)
            ms = 0.0
            for event in link.rest:
                await self._send(link, event)
                if event["type"] == "response.output_audio.delta":
                    ms += 100
                if ms >= hold_ms and event["type"] != "response.output_item.added":
                    return

        self._add(lambda link: link.is_asked, act)

    def go_on(self) -> None:
        """The answer that is held goes on to its end; nothing, if it was cut. Begins at once."""

        async def act(link: _Link) -> None:
            rest, link.rest = link.rest, None
            if rest is not None:
                for event in rest:
                    await self._send(link, event)
                await self._finish(link)

        self._add(_open, act)

    def call_tools(
        self,
        calls: list[tuple[str, dict[str, Any] | str]],
        *,
        text: str = "",
        encoded: int = 1,
        status: str = "completed",
    ) -> None:
        """When an answer is due: call tools, all at once.

        Args:
            calls: Names and inputs; a text is sent as it is.
            text: What is said before.
            encoded: How often an input is encoded as JSON.
            status: Of the calls: `incomplete` for such as are cut off.
        """

        async def act(link: _Link) -> None:
            wanted: list[tuple[str, str]] = []
            for name, given in calls:
                value: Any = given
                for _ in range(encoded if not isinstance(given, str) else 0):
                    value = encode_json(value).decode()
                wanted.append((name, value))
            if text:
                for event in link.session.answer(text, 0.5):
                    await self._send(link, event)
            for event in link.session.calls(wanted, status):
                await self._send(link, event)
            await self._finish(link, "completed" if status == "completed" else "incomplete")

        self._add(lambda link: link.is_asked, act)

    async def _finish(self, link: _Link, status: str = "completed") -> None:
        details = None if status == "completed" else {"type": status, "reason": "max_output_tokens"}
        late, link.late = link.late, []
        await self._send(link, link.session.done(status, details), *late)

    def throttle(self, *, reset_seconds: float = 2.0) -> None:
        """When an answer is due: it fails, because there are too many requests."""

        async def act(link: _Link) -> None:
            limits = [{"name": "tokens", "limit": 50_000, "remaining": 0, "reset_seconds": reset_seconds}]
            _, message = _ERRORS["rate_limit_exceeded"]
            failed = link.session.failed("rate_limit_exceeded", message, "rate_limit_error")
            await self._send(link, link.session.event("rate_limits.updated", rate_limits=limits), *failed)

        self._add(lambda link: link.is_asked, act)

    def fail(self, code: str) -> None:
        """When an answer is due: it fails for another reason."""

        async def act(link: _Link) -> None:
            kind, message = _ERRORS.get(code, ("invalid_request_error", code))
            await self._send(link, *link.session.failed(code, message, kind))

        self._add(lambda link: link.is_asked, act)

    def usage(self, input_tokens: int, output_tokens: int) -> None:
        """What answers cost from here on."""

        async def act(link: _Link) -> None:
            link.session.usage = (input_tokens, output_tokens)

        self._add(_open, act)

    def expire(self) -> None:
        """The session has reached its hour: it is told so, and the line is closed."""

        async def act(link: _Link) -> None:
            await self._send(link, self._error(link, "session_expired"))
            await link.connection.close(1001, "session expired")

        self._add(_open, act)

    def error(self, code: str, *, message: str | None = None, kind: str | None = None) -> None:
        """An `error` event out of the blue."""

        async def act(link: _Link) -> None:
            await self._send(link, self._error(link, code, message, kind))

        self._add(_open, act)

    def cut(self, *, after: int = 0) -> None:
        """The line dies without a word, after so many more messages."""

        async def act(link: _Link) -> None:
            link.cut_in = after
            if not after:
                link.connection.transport.abort()

        self._add(_open, act)

    def unknown_event(self) -> None:
        """What a later version may send."""

        async def act(link: _Link) -> None:
            await self._send(link, link.session.event("response.sparkle.delta", delta="*", response_id="resp_x"))

        self._add(_open, act)

    def malformed(self, frame: str = '{"type": "response.output_audio.delta", "delta"') -> None:
        """A message that nobody can read."""

        async def act(link: _Link) -> None:
            await link.connection.send(frame)

        self._add(_open, act)

    def refuse(self, code: str) -> None:
        """Refuse the next handshake: `invalid_api_key`, `insufficient_quota`, `rate_limit_exceeded`, or `server_error`."""
        self._handshake_refusals.append(code)

    def go_away(self, seconds: float) -> None:
        """This provider announces nothing.

        Raises:
            NotSupportedError: Always.
        """
        raise NotSupportedError("the Realtime API does not say when it will end a session: use expire()")

    def refuse_resume(self) -> None:
        """This provider resumes nothing.

        Raises:
            NotSupportedError: Always.
        """
        raise NotSupportedError("the Realtime API has no handle to resume a session by")

    def _add(self, ready: Callable[[_Link], bool], act: Callable[[_Link], Awaitable[None]]) -> None:
        self._steps.append(_Step(ready, act))
        self._news.set()

    async def _play(self) -> None:
        while True:
            self._news.clear()
            link = self._links[-1] if self._links else None
            if link is None or not self._steps or not self._steps[0].ready(link):
                await self._news.wait()
                continue
            step = self._steps[0]
            with suppress(ConnectionClosed):
                await step.act(link)
            self._steps.popleft()
            self._news.set()
            await asyncio.sleep(0)

    def _error(self, link: _Link, code: str, message: str | None = None, kind: str | None = None) -> Event:
        known_kind, known_message = _ERRORS.get(code, ("invalid_request_error", code))
        event = link.session.refuse(RefusedError(code, message or known_message), kind=kind or known_kind)
        self._asked_for.append(event["error"])
        return event

    # The wire.

    def _process_request(self, connection: ServerConnection, request: Request) -> Response | None:
        headers = {name.lower(): value for name, value in request.headers.raw_items()}
        self.handshakes.append(headers)
        asked = urlsplit(request.path)
        if asked.path != "/v1/realtime":
            return _answer(connection, 404, "not_found", f"Invalid URL (GET {asked.path})")
        if self._handshake_refusals:
            code = self._handshake_refusals.popleft()
            return _answer(connection, _STATUSES.get(code, 500), code, _ERRORS.get(code, ("", code))[1])
        given = headers.get("authorization", "").removeprefix("Bearer ")
        if not given:
            return _answer(connection, 401, None, "Missing bearer or basic authentication in header")
        if given != self.key:
            shown = f"{given[:8]}{'*' * max(0, len(given) - 12)}{given[-4:]}"
            return _answer(connection, 401, "invalid_api_key", f"Incorrect API key provided: {shown}.")
        if "model" not in parse_qs(asked.query):
            return _answer(connection, 400, "missing_model", "You must provide a model parameter.")
        return None

    async def _serve(self, connection: ServerConnection) -> None:
        request = connection.request
        query = parse_qs(urlsplit(request.path if request is not None else "").query)
        session = RealtimeSession(len(self.sessions) + 1, query["model"][0])
        link = _Link(connection, session)
        with suppress(ConnectionClosed):
            if request is not None and "OpenAI-Beta" in request.headers:
                message = "The Realtime Beta API is no longer supported. Please use the GA API."
                await self._turn_away(link, RefusedError("beta_api_shape_disabled", message))
                return
            if session.model != self.model_id:
                message = f"The model `{session.model}` does not exist or you do not have access to it."
                await self._turn_away(link, RefusedError("model_not_found", message, "model"))
                return
            self.sessions.append(session)
            self._links.append(link)
            await self._send(link, session.created())
            async for frame in connection:
                await self._send(link, *session.receive(frame))
                self._news.set()
        if link in self._links:
            self._links.remove(link)
        self._news.set()

    async def _turn_away(self, link: _Link, refused: RefusedError) -> None:
        await self._send(link, link.session.refuse(refused))
        await link.connection.close(1008, refused.code or "")

    async def _send(self, link: _Link, *events: Event) -> None:
        async with link.sending:
            for event in events:
                if self._pace_s:
                    await self._clock.sleep(self._pace_s)
                text = encode_json(event).decode()
                step = self._split
                await link.connection.send(
                    text if not step else [text[start : start + step] for start in range(0, len(text), step)]
                )
                if link.cut_in is not None:
                    link.cut_in -= 1
                    if link.cut_in <= 0:
                        link.connection.transport.abort()


def _sent(session: RealtimeSession, kind: str) -> list[Event]:
    return [event for event in session.received if event["type"] == kind]


def _open(link: _Link) -> bool:
    return link.session.updated


def _answer(connection: ServerConnection, status: int, code: str | None, message: str) -> Response:
    body = {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": code}}
    response = connection.respond(status, encode_json(body).decode())
    del response.headers["Content-Type"]
    response.headers["Content-Type"] = "application/json"
    return response
