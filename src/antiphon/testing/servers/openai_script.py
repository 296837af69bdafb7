"""What OpenAI's two turn-based protocols share on loopback: a key, a model, errors in the provider's words, and a script."""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self, cast

from antiphon.testing.servers.http import HTTPRequest, HTTPResponse, HTTPServer, json_response

CHARACTERS_PER_TOKEN = 4
"""How long a token is for these servers."""

Call = tuple[str, Mapping[str, Any] | str] | tuple[str, Mapping[str, Any] | str, str]
"""A call: its name, its input (or the JSON text of it, which need not be JSON), and its id, if that matters."""


class HeldAnswer:
    """An answer that waits in its middle until it is released."""

    def __init__(self) -> None:
        self._reached = asyncio.Event()
        self._released = asyncio.Event()

    def release(self) -> None:
        """Let it go on."""
        self._released.set()

    async def reached(self) -> None:
        """Return when the answer has come so far."""
        await self._reached.wait()

    async def wait(self) -> None:
        """For the server: say that it is reached, and wait."""
        self._reached.set()
        await self._released.wait()


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """A call of a tool in an answer. `arguments` is JSON text, as far as the model got it right."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer of the model.

    Attributes:
        text: What it says.
        reasoning: What it thinks before.
        refusal: What it says in place of an answer that it will not give.
        calls: What it calls after.
        mixed: Whether pieces of parallel calls come by turns.
        usage: `(tokens in, tokens out)`; None: counted.
        stop: Why it ends: `max_tokens`, `content_filtered`, or the provider's own word; None: as the answer is.
        error: `(code, message)` of a failure after `after` pieces.
        cut: Whether the connection breaks after `after` pieces.
        garbage: Whether what comes after `after` pieces is not JSON.
        hold: Waits after `after` pieces.
        after: Pieces of its text. Negative numbers reach back into what is sent before the first of them.
    """

    text: str = ""
    reasoning: str = ""
    refusal: str = ""
    calls: tuple[Called, ...] = ()
    mixed: bool = False
    usage: tuple[int, int] | None = None
    stop: str | None = None
    error: tuple[str, str] | None = None
    cut: bool = False
    garbage: bool = False
    hold: HeldAnswer | None = None
    after: int = 0


class Refused(Exception):
    """A request that the provider refuses; raised where a rule is broken, and a step of the script."""

    def __init__(
        self,
        *,
        status: int,
        message: str,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.headers = status, dict(headers or {})
        self._error = {"message": message, "type": kind, "param": param, "code": code}

    def response(self) -> HTTPResponse:
        """The answer, in the shape of OpenAI's errors."""
        return json_response({"error": self._error}, self.status, self.headers)


class OpenAIScriptServer(ABC):
    """A server on loopback that keeps the rules of an OpenAI protocol and answers by a script, one step a request.

    A request that breaks a rule gets the provider's error and uses up no step. A request beyond the script is refused.

    Args:
        key: The key that is let in.
        model_id: The model there is.
        context_tokens: How long a request may be, in tokens of 4 characters.
        slice_bytes: Send answers in pieces of so many bytes, whatever they hold; None: an event in each piece.
        strange: Mix in events, fields and comments that no client knows.
        tls: Serve TLS with this context.
    """

    _lead: int
    """Events before the first piece of an answer's text."""

    def __init__(
        self,
        *,
        key: str = "sk-loopback-0123456789",
        model_id: str = "gpt-loopback",
        context_tokens: int = 100_000,
        slice_bytes: int | None = None,
        strange: bool = False,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.key = key
        self.model_id = model_id
        self.context_tokens = context_tokens
        self.slice_bytes = slice_bytes
        self.strange = strange
        self._steps: deque[Reply | Refused] = deque()
        self._holds: list[HeldAnswer] = []
        self._counter = 0
        self._http = HTTPServer(self._handle, tls=tls)

    @property
    def url(self) -> str:
        """What clients take as `base_url`."""
        return f"{self._http.url}/v1"

    @property
    def requests(self) -> list[HTTPRequest]:
        """What was asked, in order."""
        return self._http.requests

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """The JSON of what was asked, in order."""
        return [request.json() for request in self.requests if request.method == "POST"]

    @property
    def steps_left(self) -> int:
        """Steps of the script that nobody asked for yet."""
        return len(self._steps)

    async def __aenter__(self) -> Self:
        await self._http.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for hold in self._holds:
            hold.release()
        await self._http.__aexit__(kind, error, trace)

    def say(self, text: str, *, reasoning: str | None = None, usage: tuple[int, int] | None = None) -> None:
        """Answer with a text."""
        self._steps.append(Reply(text=text, reasoning=reasoning or "", usage=usage))

    def call_tools(
        self,
        calls: Sequence[Call],
        text: str | None = None,
        *,
        reasoning: str | None = None,
        usage: tuple[int, int] | None = None,
        mixed: bool = False,
    ) -> None:
        """Answer with calls of tools; `mixed` sends pieces of them by turns."""
        self._steps.append(
            Reply(
                text=text or "",
                reasoning=reasoning or "",
                calls=tuple(self._called(call) for call in calls),
                usage=usage,
                mixed=mixed,
            )
        )

    def call_tool(self, name: str, tool_input: Mapping[str, Any] | str, call_id: str | None = None) -> None:
        """Answer with one call."""
        self.call_tools([(name, tool_input) if call_id is None else (name, tool_input, call_id)])

    def decline(self, text: str) -> None:
        """Answer with a refusal of the model."""
        self._steps.append(Reply(refusal=text))

    def stop(self, reason: str, text: str = "This is as far as") -> None:
        """Answer, and end for a reason: `max_tokens`, `content_filtered`, or the provider's own word."""
        self._steps.append(Reply(text=text, stop=reason))

    def stop_last(self, reason: str) -> None:
        """Let the answer that was queued last end for a reason, whatever it holds."""
        last = self._steps.pop()
        self._steps.append(replace(last, stop=reason) if isinstance(last, Reply) else last)

    def refuse(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        code: str | None = None,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Refuse with an error."""
        self._steps.append(
            Refused(status=status, message=message, kind=kind, code=code, param=param, headers=dict(headers or {}))
        )

    def throttle(self, retry_after: float | None = None) -> None:
        """Refuse because there are too many requests.

        Args:
            retry_after: Seconds to wait, told in `Retry-After`.
        """
        wait = "" if retry_after is None else f" Please try again in {retry_after:g}s."
        self.refuse(
            429,
            f"Rate limit reached for {self.model_id} in organization org-loopback on requests per min (RPM): "
            f"Limit 3, Used 3, Requested 1.{wait}",
            kind="requests",
            code="rate_limit_exceeded",
            headers={} if retry_after is None else {"retry-after": f"{retry_after:g}"},
        )

    def quota(self) -> None:
        """Refuse because the account is used up."""
        self.refuse(
            429,
            "You exceeded your current quota, please check your plan and billing details.",
            kind="insufficient_quota",
            code="insufficient_quota",
        )

    def overflow(self) -> None:
        """Refuse because the conversation is too long."""
        self._steps.append(self._too_long(self.context_tokens + 1))

    def fail(self, status: int = 500) -> None:
        """Refuse because the server failed."""
        self.refuse(
            status,
            "The server had an error while processing your request. Sorry about that!",
            kind="server_error",
        )

    def break_down(
        self, message: str = "The server had an error.", *, code: str = "server_error", after_chunks: int = 2
    ) -> None:
        """Begin an answer, and say in its stream that it failed."""
        self._steps.append(Reply(text="one two three four", error=(code, message), after=after_chunks))

    def cut(self, after_chunks: int = 1, text: str = "one two three four five") -> None:
        """Begin an answer, and break the connection after so many pieces of its text (negative: before the first)."""
        self._steps.append(Reply(text=text, cut=True, after=after_chunks))

    def hold(self, after_chunks: int = 2, text: str = "one two three four five") -> HeldAnswer:
        """Begin an answer, and wait after so many pieces of its text until it is released."""
        hold = HeldAnswer()
        self._holds.append(hold)
        self._steps.append(Reply(text=text, hold=hold, after=after_chunks))
        return hold

    def malformed(self, after_chunks: int = 1) -> None:
        """Begin an answer, and send what is no JSON after so many pieces of its text."""
        self._steps.append(Reply(text="one two three four five", garbage=True, after=after_chunks))

    def again(self, times: int) -> None:
        """Repeat the last step so often."""
        self._steps.extend([self._steps[-1]] * times)

    @abstractmethod
    async def _answer(self, request: HTTPRequest) -> HTTPResponse:
        """Answer a request that has the right key.

        Raises:
            Refused: If it breaks a rule.
        """

    @abstractmethod
    def _too_long(self, tokens: int) -> Refused:
        """What is said of a request of so many tokens."""

    def _next(self, tokens: int) -> Reply:
        """The step of a request that breaks no rule.

        Raises:
            Refused: If that is what the script says.
        """
        if tokens > self.context_tokens:
            raise self._too_long(tokens)
        if not self._steps:
            raise Refused(status=400, message="The script of this server is over.", code="script_is_over")
        step = self._steps.popleft()
        if isinstance(step, Refused):
            raise step
        if step.usage is None:
            written = len(step.text + step.reasoning + "".join(call.arguments for call in step.calls))
            step = replace(step, usage=(tokens, 1 + written // CHARACTERS_PER_TOKEN))
        return step

    def _number(self) -> int:
        self._counter += 1
        return self._counter

    def _called(self, call: Call) -> Called:
        name, given = call[0], call[1]
        arguments = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
        return Called(id=call[2] if len(call) == 3 else f"call_{self._number():08d}", name=name, arguments=arguments)

    async def _handle(self, request: HTTPRequest) -> HTTPResponse:
        try:
            scheme, _, key = request.headers.get("authorization", "").partition(" ")
            if scheme.lower() != "bearer" or not key:
                raise Refused(
                    status=401,
                    message="You didn't provide an API key. You need to provide your API key in an Authorization header "
                    "using Bearer auth (i.e. Authorization: Bearer YOUR_KEY).",
                )
            if key != self.key:
                raise Refused(
                    status=401, message=f"Incorrect API key provided: {key}.", code="invalid_api_key"
                )  # OpenAI masks the middle of the key; other servers do not
            return await self._answer(request)
        except Refused as refused:
            return refused.response()

    def _place(self, reply: Reply, frames: Sequence[bytes]) -> int:
        """How many events come before the place that the step names."""
        place = self._lead + reply.after
        return min(max(0, 1 + 2 * place if self.strange else place), len(frames))

    def _sent(self, frames: list[bytes], reply: Reply) -> HTTPResponse:
        return HTTPResponse(headers={"content-type": "text/event-stream"}, body=self._pieces(frames, reply))

    async def _pieces(self, frames: list[bytes], reply: Reply) -> AsyncIterator[bytes | None]:
        """The answer, with what the step does to it; None breaks the connection."""
        rest = b""
        after = self._place(reply, frames)
        for number, frame in enumerate([*frames, b""]):
            if number == after and (reply.hold is not None or reply.cut):
                if rest:
                    yield rest
                    rest = b""
                if reply.hold is not None:
                    await reply.hold.wait()
                if reply.cut:
                    yield None
                    return
            if number == after and reply.garbage:
                frame = b'data: {"id": "broken", "choices": [\n\n'  # noqa: PLW2901
            rest += frame
            size = self.slice_bytes or max(1, len(rest))
            while len(rest) >= size:
                yield rest[:size]
                rest = rest[size:]
        if rest:
            yield rest


def parsed(request: HTTPRequest) -> dict[str, Any]:
    """The body of a request.

    Raises:
        Refused: If it is not a JSON object.
    """
    try:
        body = json.loads(request.body)
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise Refused(
            status=400,
            message="We could not parse the JSON body of your request. (HINT: This likely means you aren't using your "
            "HTTP library correctly. The OpenAI API expects a JSON payload, but what was sent was not valid JSON.)",
        )
    return cast("dict[str, Any]", body)


def missing(param: str) -> Refused:
    """What is said of a parameter that is not there."""
    return Refused(
        status=400,
        message=f"Missing required parameter: '{param}'.",
        param=param,
        code="missing_required_parameter",
    )


def wrong_type(param: str, wanted: str, value: object) -> Refused:
    """What is said of a parameter of another type."""
    kinds = {"str": "a string", "bool": "a boolean", "int": "an integer", "list": "an array", "dict": "an object"}
    kind = "null" if value is None else kinds.get(type(value).__name__, "a number")
    return Refused(
        status=400,
        message=f"Invalid type for '{param}': expected {wanted}, but got {kind} instead.",
        param=param,
        code="invalid_type",
    )


def wrong_value(param: str, value: object, supported: Sequence[str]) -> Refused:
    """What is said of a value that is none of those there are."""
    named = [f"'{name}'" for name in supported]
    listed = named[0] if len(named) == 1 else ", ".join(named[:-1]) + f", and {named[-1]}"
    return Refused(
        status=400,
        message=f"Invalid value: '{value}'. Supported values are: {listed}.",
        param=param,
        code="invalid_value",
    )


def check_function(spec: Mapping[str, Any], at: str) -> None:
    """Check a tool's name and schema.

    Raises:
        Refused: If the provider would not take it.
    """
    name = spec.get("name")
    if not isinstance(name, str):
        raise missing(f"{at}.name")
    if not re.fullmatch(r"[a-zA-Z0-9_-]+", name):
        raise Refused(
            status=400,
            message=f"Invalid '{at}.name': string does not match pattern. Expected a string that matches the pattern "
            "'^[a-zA-Z0-9_-]+$'.",
            param=f"{at}.name",
            code="invalid_value",
        )
    check_length(name, f"{at}.name", 64)
    schema: Any = spec.get("parameters", {"type": "object"})
    kind: object = cast("dict[str, Any]", schema).get("type") if isinstance(schema, dict) else schema
    if kind != "object":
        raise Refused(
            status=400,
            message=f"Invalid schema for function '{name}': schema must be a JSON Schema of 'type: \"object\"', got "
            f"'type: \"{kind}\"'.",
            param=f"{at}.parameters",
            code="invalid_function_parameters",
        )
    wrong = _refused_schema(cast("dict[str, Any]", schema))
    if wrong is not None:
        raise Refused(
            status=400,
            message=f"Invalid schema for function '{name}': {wrong}.",
            param=f"{at}.parameters",
            code="invalid_function_parameters",
        )


def _refused_schema(schema: Mapping[str, Any]) -> str | None:
    """What is wrong with the schema of a tool's parameters, which is one of an object."""
    if {"oneOf", "anyOf", "allOf", "enum", "not"} & schema.keys():
        return "schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level"
    if "properties" not in schema:
        return "In context=(), object schema missing properties"
    return _without_items(schema, ())


def _without_items(schema: object, context: tuple[str, ...]) -> str | None:
    if not isinstance(schema, dict):
        return None
    entry = cast("dict[str, Any]", schema)
    if entry.get("type") == "array" and "items" not in entry:
        return f"In context={context!r}, array schema missing items"
    inner: list[tuple[tuple[str, ...], object]] = [(("items",), entry.get("items"))]
    inner += [((name, key), part) for name in ("properties", "$defs") for key, part in entry.get(name, {}).items()]
    inner += [
        ((name, str(at)), part) for name in ("anyOf", "oneOf", "allOf") for at, part in enumerate(entry.get(name, ()))
    ]
    return next((wrong for at, part in inner if (wrong := _without_items(part, (*context, *at))) is not None), None)


def check_length(value: str, param: str, longest: int) -> None:
    """Check how long a text is.

    Raises:
        Refused: If it is longer.
    """
    if len(value) > longest:
        raise Refused(
            status=400,
            message=f"Invalid '{param}': string too long. Expected a string with maximum length {longest}, but got a "
            f"string with length {len(value)} instead.",
            param=param,
            code="string_above_max_length",
        )


_IMAGES = ("data:image/png;base64,", "data:image/jpeg;base64,", "data:image/gif;base64,", "data:image/webp;base64,")


def check_image(address: object, param: str) -> None:
    """Check an image's address.

    Raises:
        Refused: If the provider would not take it.
    """
    if not isinstance(address, str):
        raise wrong_type(param, "an image URL", address)
    if not address.startswith((*_IMAGES, "https://", "http://")):
        raise Refused(
            status=400,
            message="You uploaded an unsupported image. Please make sure your image has of one the following formats: "
            "['png', 'jpeg', 'gif', 'webp'].",
            param=param,
            code="invalid_image_format",
        )


def words(text: str) -> list[str]:
    """A text in the pieces it is sent in; joined they are the text."""
    return re.findall(r"\s*\S+|\s+$", text)


def bits(text: str) -> list[str]:
    """A JSON text in the pieces it is sent in."""
    return [text[at : at + 5] for at in range(0, len(text), 5)]
