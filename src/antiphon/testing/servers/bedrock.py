"""Amazon Bedrock's Converse API on loopback: its framing, its rules, its refusals, after a script."""

from __future__ import annotations

import asyncio
import re
import ssl
from base64 import b64encode
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote

from antiphon.jsonable import encode_json
from antiphon.testing.servers.bedrock_rules import Refused, check_request
from antiphon.testing.servers.http import HTTPRequest, HTTPResponse, HTTPServer, json_response
from antiphon.testing.servers.sigv4 import check_signature
from antiphon.transports.eventstream import HeaderValue, encode_message

_PATH = re.compile(r"/model/([^/]+)/(converse-stream|converse)")
_STATUSES = {
    "AccessDeniedException": 403,
    "InternalServerException": 500,
    "ModelErrorException": 424,
    "ModelNotReadyException": 429,
    "ModelTimeoutException": 408,
    "ResourceNotFoundException": 404,
    "ServiceQuotaExceededException": 400,
    "ServiceUnavailableException": 503,
    "ThrottlingException": 429,
    "ValidationException": 400,
}
_BLOCKED = "Sorry, the model cannot answer this question."

Frame = tuple[str, dict[str, Any]] | bytes | None
"""An event (its type and its payload), raw bytes, or None: the connection is cut."""


class Held:
    """An answer that begins and then waits until it is released."""

    def __init__(self) -> None:
        self._reached = asyncio.Event()
        self._released = asyncio.Event()

    async def reached(self) -> None:
        """Wait until the answer has begun."""
        await self._reached.wait()

    def release(self) -> None:
        """Let the answer go on. Call it on the server's loop."""
        self._released.set()

    async def wait(self) -> None:
        """For the server: tell that the answer has begun, and wait."""
        self._reached.set()
        await self._released.wait()


@dataclass(slots=True)
class _Answer:
    """One step: a refusal, or blocks and what goes wrong with them."""

    blocks: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    stop: str = "end_turn"
    usage: dict[str, int] | None = None
    trace: dict[str, Any] | None = None
    refusal: tuple[str, str, Mapping[str, str]] | None = None
    spoil: Callable[[list[Frame]], list[Frame]] | None = None
    held: Held | None = None


class BedrockServer:
    """A Bedrock runtime endpoint on a free port of 127.0.0.1, while its context is open.

    Requests must be signed (Signature Version 4) with `key`, and keep the rules of the Converse API; each refusal has the
    service's status, error type and words. What is answered is the next step of the script, one for each request that was
    not refused.

    Args:
        model_id: The model that exists; any other is refused.
        region: The region whose signatures are right.
        tls: Serve TLS with this context.
        session_token: The token that must come with the key; None: none is asked for.
        longest: The model's context, in characters of text; None: no bound.
        guardrails: Identifier and version of the guardrails that exist.

    Attributes:
        key_id: The access key id that is known.
        key: Its secret.
        model_id: The model that exists.
        requests: What was asked, in order.
        signatures: Signatures of reasoning that were given out; others are refused.
        piece: Bytes that are sent at once; None: a frame at a time.
    """

    def __init__(
        self,
        *,
        model_id: str = "anthropic.claude-loopback-v1:0",
        region: str = "us-east-1",
        tls: ssl.SSLContext | None = None,
        session_token: str | None = None,
        longest: int | None = None,
        guardrails: Sequence[tuple[str, str]] = (("gr4loopback", "1"), ("gr4loopback", "DRAFT")),
    ) -> None:
        self._http = HTTPServer(self._answer, tls=tls)
        self._region = region
        self._token = session_token
        self._longest = longest
        self._guardrails = list(guardrails)
        self._script: deque[_Answer] = deque()
        self._calls = 0
        self.key_id = "AKIALOOPBACKLOOPBACK"
        self.key = "loopback/secret+key/of/forty/characters1"
        self.model_id = model_id
        self.signatures: set[str] = set()
        self.piece: int | None = None

    async def __aenter__(self) -> Self:
        await self._http.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.__aexit__(kind, error, trace)

    @property
    def url(self) -> str:
        """The endpoint, for `endpoint_url`."""
        return self._http.url

    @property
    def requests(self) -> list[HTTPRequest]:
        """What was asked, in order."""
        return self._http.requests

    @property
    def environ(self) -> dict[str, str]:
        """The environment of a client that may ask: keys, token and region."""
        token = {"AWS_SESSION_TOKEN": self._token} if self._token is not None else {}
        keys = {"AWS_ACCESS_KEY_ID": self.key_id, "AWS_SECRET_ACCESS_KEY": self.key}
        return {**keys, **token, "AWS_REGION": self._region}

    def say(self, text: str, *, reasoning: str | None = None, usage: Mapping[str, int] | None = None) -> None:
        """Answer with a text, after reasoning with a signature if there is some.

        Args:
            text: The text; it is streamed word by word.
            reasoning: What was thought before.
            usage: Tokens, as in Converse: `inputTokens`, `cacheReadInputTokens` and so on; left out, they are counted.
        """
        blocks = [*self._thought(reasoning), *([{"text": text}] if text else [])]
        self._script.append(_Answer(blocks, usage=None if usage is None else dict(usage)))

    def call_tools(
        self, calls: Sequence[tuple[Any, ...]], text: str | None = None, *, reasoning: str | None = None
    ) -> None:
        """Call tools: `(name, input)` or `(name, input, id)` each; after a text if there is one."""
        blocks = [*self._thought(reasoning), *([{"text": text}] if text else [])]
        for name, value, *known in calls:
            self._calls += 1
            key = known[0] if known else f"tooluse_{self._calls:022}"
            blocks.append({"toolUse": {"toolUseId": key, "name": name, "input": value}})
        self._script.append(_Answer(blocks, stop="tool_use"))

    def refuse(self, code: str, message: str, *, headers: Mapping[str, str] | None = None) -> None:
        """Refuse a request with an exception of the service's."""
        self._script.append(_Answer(refusal=(code, message, headers or {})))

    def throttle(self, retry_after: float | None = None) -> None:
        """Refuse a request: too many."""
        self.refuse(
            "ThrottlingException",
            "Too many requests, please wait before trying again.",
            headers={} if retry_after is None else {"retry-after": f"{retry_after:g}"},
        )

    def overflow(self) -> None:
        """Refuse a request: too long."""
        self.refuse("ValidationException", "Input is too long for requested model.")

    def fail(self, exception: str, message: str, *, after_chunks: int = 2, text: str = "an answer that fails") -> None:
        """Answer, and break off with an exception in the stream, such as `modelStreamErrorException`."""
        headers: dict[str, HeaderValue] = {
            ":exception-type": exception,
            ":content-type": "application/json",
            ":message-type": "exception",
        }
        frame = encode_message(headers, encode_json({"message": message}))
        self._script.append(_Answer([{"text": text}], spoil=lambda frames: [*frames[:after_chunks], frame]))

    def cut(self, after_chunks: int = 2, *, text: str = "an answer that is cut off") -> None:
        """Answer, and cut the connection after so many frames."""
        self._script.append(_Answer([{"text": text}], spoil=lambda frames: [*frames[:after_chunks], None]))

    def end_early(self, after_chunks: int = 2, *, text: str = "an answer without an end") -> None:
        """Answer, and end the stream in good order, but before its last messages."""
        self._script.append(_Answer([{"text": text}], spoil=lambda frames: frames[:after_chunks]))

    def malformed(self, raw: bytes | None = None) -> None:
        """Answer, and send a frame with a wrong checksum (or other bytes) in the middle."""
        broken = bytearray(encode_message({":message-type": "event", ":event-type": "contentBlockDelta"}, b"{}"))
        broken[-1] ^= 0xFF
        wrong = bytes(broken) if raw is None else raw
        blocks = [{"text": "an answer that is spoiled"}]
        self._script.append(_Answer(blocks, spoil=lambda frames: [*frames[:2], wrong, *frames[2:]]))

    def unknown(self, text: str) -> None:
        """Answer, with an event between that no client knows yet."""
        event: Frame = ("somethingNew", {"value": 1})
        self._script.append(_Answer([{"text": text}], spoil=lambda frames: [*frames[:2], event, *frames[2:]]))

    def hold(self, text: str = "held and released") -> Held:
        """Answer, but wait after the first word until it is released."""
        held = Held()
        self._script.append(_Answer([{"text": text}], held=held))
        return held

    def stop(self, reason: str, text: str = "stopped") -> None:
        """Answer with a text that ends for another reason, such as `max_tokens`."""
        self._script.append(_Answer([{"text": text}], stop=reason))

    def guardrail(self, *, input: bool = True, output: bool = False, said: str | None = None) -> None:
        """Let the request's guardrail intervene: it must name one.

        Args:
            input: Whether the prompt is blocked.
            output: Whether the answer is.
            said: What had been sent before it was blocked, as with asynchronous processing.
        """
        found = {
            "topicPolicy": {"topics": [{"name": "loopback", "type": "DENY", "action": "BLOCKED", "detected": True}]}
        }
        trace: dict[str, Any] = {}
        if input:
            trace["inputAssessment"] = {"gr4loopback": found}
        if output:
            trace["outputAssessments"] = {"gr4loopback": [found]}
        blocks = [{"text": said or _BLOCKED}]
        self._script.append(_Answer(blocks, stop="guardrail_intervened", trace=trace))

    def _thought(self, reasoning: str | None) -> list[dict[str, Any]]:
        if reasoning is None:
            return []
        signature = b64encode(f"signature {len(self.signatures)}".encode()).decode()
        self.signatures.add(signature)
        return [{"reasoningContent": {"reasoningText": {"text": reasoning, "signature": signature}}}]

    async def _answer(self, request: HTTPRequest) -> HTTPResponse:
        match = _PATH.fullmatch(request.path)
        if match is None or request.method != "POST":
            return _refusal("UnknownOperationException", "", 404)
        unsigned = check_signature(
            method=request.method,
            target=request.target,
            headers=request.headers,
            body=request.body,
            secrets={self.key_id: self.key},
            region=self._region,
            service="bedrock",
        )
        if unsigned is not None:
            return _refusal(unsigned.code, unsigned.message, 403)
        if self._token is not None and request.headers.get("x-amz-security-token") != self._token:
            return _refusal("ExpiredTokenException", "The security token included in the request is expired", 403)
        if unquote(match[1]) != self.model_id:
            return _refusal("ValidationException", "The provided model identifier is invalid.")
        try:
            body = request.json()
            check_request(
                body,
                model_id=self.model_id,
                signatures=self.signatures,
                guardrails=self._guardrails,
                longest=self._longest,
            )
        except Refused as refused:
            return _refusal("ValidationException", str(refused))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            return _refusal("SerializationException", f"the body cannot be read: {error!r}", 400)
        if not self._script:
            return _refusal("InternalServerException", f"the script has no step for request {len(self.requests)}")
        return self._carry_out(self._script.popleft(), body, streamed=match[2] == "converse-stream")

    def _carry_out(self, step: _Answer, body: dict[str, Any], *, streamed: bool) -> HTTPResponse:
        if step.refusal is not None:
            code, message, headers = step.refusal
            return _refusal(code, message, headers=headers)
        guard = body.get("guardrailConfig")
        if step.trace is not None and guard is None:
            return _refusal("InternalServerException", "the script has a guardrail intervene that was not asked for")
        metadata: dict[str, Any] = {"usage": step.usage or _count(body, step.blocks), "metrics": {"latencyMs": 12}}
        if step.trace is not None and guard is not None and guard.get("trace") != "disabled":
            metadata["trace"] = {"guardrail": step.trace}
        if not streamed:
            output = {"message": {"role": "assistant", "content": step.blocks}}
            return json_response({"output": output, "stopReason": step.stop, **metadata})
        frames: list[Frame] = [
            ("messageStart", {"role": "assistant"}),
            *(frame for index, block in enumerate(step.blocks) for frame in _block_frames(index, block)),
            ("messageStop", {"stopReason": step.stop}),
            ("metadata", metadata),
        ]
        if step.spoil is not None:
            frames = step.spoil(frames)
        return HTTPResponse(
            headers={"content-type": "application/vnd.amazon.eventstream", "x-amzn-requestid": "loopback"},
            body=self._stream(frames, step.held),
        )

    async def _stream(self, frames: list[Frame], held: Held | None) -> AsyncIterator[bytes | None]:
        waiting = b""
        for index, frame in enumerate(frames):
            if frame is None:
                if waiting:
                    yield waiting
                yield None
                return
            waiting += frame if isinstance(frame, bytes) else _event(*frame)
            if self.piece is None:
                yield waiting
                waiting = b""
            while self.piece is not None and len(waiting) >= self.piece:
                yield waiting[: self.piece]
                waiting = waiting[self.piece :]
            if held is not None and index == 1:
                if waiting:
                    yield waiting
                    waiting = b""
                await held.wait()
        if waiting:
            yield waiting


def _refusal(
    code: str, message: str, status: int | None = None, *, headers: Mapping[str, str] | None = None
) -> HTTPResponse:
    return json_response(
        {"message": message},
        status or _STATUSES.get(code, 400),
        {"x-amzn-errortype": f"{code}:http://internal.amazon.com/coral/com.amazon.bedrock/", **(headers or {})},
    )


def _event(kind: str, payload: dict[str, Any]) -> bytes:
    headers: dict[str, HeaderValue] = {
        ":event-type": kind,
        ":content-type": "application/json",
        ":message-type": "event",
    }
    # The service pads its events, so that their lengths tell nothing of the words.
    return encode_message(headers, encode_json({**payload, "p": "abcdefghijklm"}))


def _block_frames(index: int, block: dict[str, Any]) -> list[Frame]:
    def delta(value: dict[str, Any]) -> Frame:
        return "contentBlockDelta", {"contentBlockIndex": index, "delta": value}

    frames: list[Frame] = []
    if "text" in block:
        frames += [delta({"text": piece}) for piece in _pieces(block["text"])]
    elif "reasoningContent" in block:
        reasoning = block["reasoningContent"]["reasoningText"]
        frames += [delta({"reasoningContent": {"text": piece}}) for piece in _pieces(reasoning["text"])]
        frames.append(delta({"reasoningContent": {"signature": reasoning["signature"]}}))
    else:
        use = block["toolUse"]
        start = {"toolUse": {"toolUseId": use["toolUseId"], "name": use["name"]}}
        frames.append(("contentBlockStart", {"contentBlockIndex": index, "start": start}))
        text = encode_json(use["input"]).decode()
        frames += [delta({"toolUse": {"input": text[at : at + 7]}}) for at in range(0, len(text), 7)]
    return [*frames, ("contentBlockStop", {"contentBlockIndex": index})]


def _pieces(text: str) -> list[str]:
    """Words, each with the space before it."""
    return re.findall(r"\s*\S+|\s+$", text) or [text]


def _count(body: Mapping[str, Any], blocks: list[dict[str, Any]]) -> dict[str, int]:
    """Something like tokens: four bytes each."""
    read, written = len(encode_json(body["messages"])) // 4, len(encode_json(blocks)) // 4
    return {"inputTokens": read, "outputTokens": written, "totalTokens": read + written}
