"""A turn-based provider on loopback that follows a script: what the servers of several providers share."""

from __future__ import annotations

import asyncio
import ssl
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from antiphon.testing.servers.http import HTTPRequest, HTTPResponse, HTTPServer

ANSWER = "Let me think about that for a moment, and then tell you."
"""What is said where a step has no words of its own."""

Call = tuple[str, Any] | tuple[str, Any, str]
"""A call of a tool: its name, its input, and its id, which is made up when it is left out."""


class Gate:
    """An answer that waits in its middle."""

    def __init__(self) -> None:
        self._reached = asyncio.Event()
        self._released = asyncio.Event()

    async def reached(self) -> None:
        """Wait until the first half of the answer has been sent."""
        await self._reached.wait()

    def release(self) -> None:
        """Let the answer go on."""
        self._released.set()

    async def pass_through(self) -> None:
        """Say that the middle is reached, and wait there."""
        self._reached.set()
        await self._released.wait()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a provider says.

    Attributes:
        text: Its words.
        reasoning: What it thought before.
        hidden_reasoning: Reasoning that only the provider can read.
        calls: Calls of tools: id, name, input.
        usage: Tokens, in the provider's own names; they replace those that are counted.
        stop: Why it ended, in the provider's words; None: what follows from the answer.
        details: More of the end, in the provider's form.
    """

    text: str | None = None
    reasoning: str | None = None
    hidden_reasoning: str | None = None
    calls: tuple[tuple[str, str, Any], ...] = ()
    usage: dict[str, Any] = field(default_factory=dict[str, Any])
    stop: str | None = None
    details: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What is done with one request.

    Attributes:
        answer: What is said.
        refusal: What is answered instead.
        cut_after: After so many events the connection breaks.
        gate: The answer waits there, in its middle.
        broken: An event in the middle is not JSON.
        strange: Events, fields and blocks that no client knows stand between the others.
        failure: The provider fails in the middle, and says this.
    """

    answer: Answer = Answer(text=ANSWER)
    refusal: HTTPResponse | None = None
    cut_after: int | None = None
    gate: Gate | None = None
    broken: bool = False
    strange: bool = False
    failure: Any = None


class TurnServer(ABC):
    """Serves one provider's protocol on loopback while its context is open, and answers by a script.

    Steps are queued; each request that keeps the provider's rules takes the next one. A request that breaks a rule gets
    the provider's error and takes none, and so does a request when the script is used up.

    Args:
        key: The key that is accepted.
        model_id: The model that is known.
        context_tokens: How long a conversation may be; about four characters are a token.
        piece_bytes: Send the stream in pieces of so many bytes, wherever its events end; None: an event a piece.
        tls: Serve TLS with this context.
    """

    def __init__(
        self,
        *,
        key: str,
        model_id: str,
        context_tokens: int,
        piece_bytes: int | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.key = key
        self.model_id = model_id
        self.context_tokens = context_tokens
        self._piece_bytes = piece_bytes
        self._steps: deque[Step] = deque()
        self._calls = 0
        self._http = HTTPServer(self._respond, tls=tls)

    async def __aenter__(self) -> Self:
        await self._http.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.__aexit__(kind, error, trace)

    @property
    def url(self) -> str:
        """The base URL for the provider's SDK."""
        return self._http.url

    @property
    def requests(self) -> list[HTTPRequest]:
        """What was asked, in order; refused requests too."""
        return self._http.requests

    @property
    def bodies(self) -> list[Any]:
        """What was asked, as JSON."""
        return [request.json() for request in self.requests if request.body]

    @property
    def steps_left(self) -> int:
        """Steps of the script that no request has taken yet."""
        return len(self._steps)

    def say(self, text: str, *, reasoning: str | None = None, usage: dict[str, Any] | None = None) -> None:
        """Answer with a text, after thinking aloud where `reasoning` is given."""
        self.queue(Step(answer=Answer(text=text, reasoning=reasoning, usage=usage or {})))

    def call_tools(self, calls: Sequence[Call], text: str | None = None, *, reasoning: str | None = None) -> None:
        """Answer with calls of tools, after a text where one is given."""
        self.queue(Step(answer=Answer(text=text, reasoning=reasoning, calls=tuple(self._numbered(calls)))))

    @abstractmethod
    def throttle(self, retry_after: float | None = None) -> None:
        """Refuse a request because there are too many; `retry_after` is in seconds."""

    @abstractmethod
    def overflow(self) -> None:
        """Refuse a request because the conversation is too long."""

    def cut(self, after_chunks: int = 1) -> None:
        """Begin an answer, and break the connection after so many events."""
        self.queue(Step(cut_after=after_chunks))

    def hold(self, text: str = ANSWER) -> Gate:
        """Answer with a text, and wait in its middle until the gate is released."""
        gate = Gate()
        self.queue(Step(answer=Answer(text=text), gate=gate))
        return gate

    def malformed(self) -> None:
        """Answer, with an event in the middle that is not JSON."""
        self.queue(Step(broken=True))

    def unknown_events(self, text: str = ANSWER) -> None:
        """Answer with a text, and send events, fields and blocks that no client knows."""
        self.queue(Step(answer=Answer(text=text), strange=True))

    def stop(self, reason: str, *, text: str | None = ANSWER) -> None:
        """Answer, and end for a reason: `max_tokens`, or one in the provider's own words."""
        self.queue(Step(answer=Answer(text=text, stop=self.stop_word(reason))))

    def queue(self, step: Step) -> None:
        """Add a step."""
        self._steps.append(step)

    @abstractmethod
    def stop_word(self, reason: str) -> str:
        """The provider's word for a reason."""

    @abstractmethod
    def check(self, request: HTTPRequest) -> HTTPResponse | None:
        """The provider's error, when a request breaks a rule."""

    @abstractmethod
    def used_up(self) -> HTTPResponse:
        """What a request gets that the script has no step for."""

    @abstractmethod
    def events(self, answer: Answer, request: HTTPRequest, *, strange: bool) -> list[bytes]:
        """An answer as the events of a stream."""

    @abstractmethod
    def failure_event(self, failure: Any) -> bytes:
        """The event that tells of a failure in the middle."""

    def broken_event(self) -> bytes:
        """An event that is not JSON."""
        return b'data: {"half of it": \n\n'

    def whole(self, answer: Answer, request: HTTPRequest) -> HTTPResponse | None:
        """The answer to a request that asks for no stream; None for one that does."""
        return None

    def _numbered(self, calls: Sequence[Call]) -> list[tuple[str, str, Any]]:
        numbered: list[tuple[str, str, Any]] = []
        for name, content, *given in calls:
            self._calls += 1
            numbered.append((given[0] if given else self.call_id(self._calls), name, content))
        return numbered

    @abstractmethod
    def call_id(self, number: int) -> str:
        """An id for a call, as the provider makes them."""

    async def _respond(self, request: HTTPRequest) -> HTTPResponse:
        refusal = self.check(request)
        if refusal is not None:
            return refusal
        if not self._steps:
            return self.used_up()
        step = self._steps.popleft()
        if step.refusal is not None:
            return step.refusal
        whole = self.whole(step.answer, request)
        if whole is not None:
            return whole
        events = self.events(step.answer, request, strange=step.strange)
        middle = max(1, len(events) // 2)
        if step.broken:
            events.insert(middle, self.broken_event())
        if step.failure is not None:
            said = middle if step.answer.text else 1
            events = [*events[:said], self.failure_event(step.failure)]
        return HTTPResponse(headers={"content-type": "text/event-stream"}, body=self._stream(step, events, middle))

    async def _stream(self, step: Step, events: list[bytes], middle: int) -> AsyncIterator[bytes | None]:
        if step.cut_after is not None:
            for piece in self._pieces(events[: step.cut_after]):
                yield piece
            yield None
        if step.gate is not None:
            for piece in self._pieces(events[:middle]):
                yield piece
            await step.gate.pass_through()
            events = events[middle:]
        for piece in self._pieces(events):
            yield piece

    def _pieces(self, events: list[bytes]) -> list[bytes]:
        if self._piece_bytes is None:
            return events
        whole = b"".join(events)
        return [whole[at : at + self._piece_bytes] for at in range(0, len(whole), self._piece_bytes)]
