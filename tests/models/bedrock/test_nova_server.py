"""The Nova Sonic server holds clients to the service's rules: whoever breaks one gets the service's exception."""

from __future__ import annotations

import json
from base64 import b64encode
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from antiphon.errors import TransportError
from antiphon.models.bedrock.nova_opening import Opening
from antiphon.testing import VirtualClock
from antiphon.testing.servers import NovaSonicServer
from antiphon.testing.servers.nova_line import Manners
from antiphon.testing.servers.nova_sonic import CREDENTIALS
from antiphon.transports.eventstream import Decoder, encode_message
from antiphon.transports.http2 import HTTP2Stream
from antiphon.transports.sigv4 import EventSigner, Scope, signed_headers
from tests.models.bedrock.nova_wire_format import HEADERS

NOVA_2 = Opening(model_id="amazon.nova-2-sonic-v1:0")
SCOPE = Scope(region="us-east-1", service="bedrock")
PATH = "/model/amazon.nova-2-sonic-v1%3A0/invoke-with-bidirectional-stream"
PLAIN = {"textInputConfiguration": {"mediaType": "text/plain"}}


class Client:
    """Sends whatever a test says, well signed."""

    def __init__(self, stream: HTTP2Stream, signer: EventSigner, clock: VirtualClock):
        self.stream = stream
        self.signer = signer
        self.clock = clock
        self.decoder = Decoder()

    async def put(self, raw: bytes) -> None:
        await self.stream.send([self.signer.sign(raw, self.clock.utc())])

    async def event(self, event: Any) -> None:
        inner = b64encode(json.dumps({"event": event}).encode()).decode()
        await self.put(encode_message(HEADERS, json.dumps({"bytes": inner}).encode()))

    async def answer(self) -> list[tuple[str, str]]:
        """Everything that comes until the answer's end: events by name, exceptions and errors with their words."""
        found = []
        while (data := await self.stream.receive()) is not None:
            for message in self.decoder.feed(data):
                if message.text_header(":message-type") == "error":
                    found.append((message.text_header(":error-code"), message.text_header(":error-message")))
                elif kind := message.text_header(":exception-type"):
                    found.append((kind, json.loads(message.payload)["message"]))
                else:
                    found.append((message.text_header(":event-type"), ""))
        return found


@asynccontextmanager
async def client(
    server: NovaSonicServer,
    *,
    keys=CREDENTIALS,
    scope=SCOPE,
    path=PATH,
    clock=None,
    moment=None,
    change=None,
    method="POST",
):
    clock = clock or VirtualClock(autojump=False)
    url = server.url + path
    headers, signature = signed_headers(
        keys,
        scope,
        moment or clock.utc(),
        method=method,
        url=url,
        headers={"content-type": "application/vnd.amazon.eventstream"},
    )
    headers |= change or {}
    stream = await HTTP2Stream.open(url, method=method, headers=[pair for pair in headers.items() if pair[1]])
    try:
        yield Client(stream, EventSigner(keys, scope, signature), clock)
    finally:
        await stream.close()


# --- who asks ---


@pytest.mark.parametrize(
    ("options", "status", "kind"),
    [
        ({"keys": replace(CREDENTIALS, secret_access_key="wrong")}, 403, "InvalidSignatureException"),
        ({"keys": replace(CREDENTIALS, access_key_id="AKIAOTHER")}, 403, "UnrecognizedClientException"),
        ({"keys": replace(CREDENTIALS, session_token="stale")}, 403, "UnrecognizedClientException"),
        ({"scope": Scope(region="eu-north-1", service="bedrock")}, 403, "InvalidSignatureException"),
        ({"scope": Scope(region="us-east-1", service="s3")}, 403, "InvalidSignatureException"),
        ({"change": {"x-amz-content-sha256": "UNSIGNED-PAYLOAD"}}, 403, "InvalidSignatureException"),
        ({"change": {"authorization": ""}}, 403, "MissingAuthenticationTokenException"),
        ({"change": {"x-amz-date": ""}}, 403, "IncompleteSignatureException"),
        ({"change": {"content-type": "application/json"}}, 403, "InvalidSignatureException"),
        ({"path": "/model/other/invoke-with-bidirectional-stream"}, 400, "ValidationException"),
        ({"path": "/model/amazon.nova-2-sonic-v1%3A0/converse-stream"}, 404, "UnknownOperationException"),
        ({"method": "PUT"}, 404, "UnknownOperationException"),
    ],
)
async def test_a_request_that_the_service_would_not_take_is_refused_with_its_status_and_name(options, status, kind):
    async with NovaSonicServer() as server, client(server, **options) as wrong:
        with pytest.raises(TransportError) as refused:
            await wrong.stream.receive()
        assert refused.value.code == status
        assert wrong.stream.headers["x-amzn-errortype"].startswith(kind)


async def test_a_signature_of_another_time_is_refused_where_the_clock_is_asked():
    clock = VirtualClock(autojump=False)
    async with NovaSonicServer(clock=clock, skew=True) as server:
        async with client(server, clock=clock) as right:
            await right.stream.accepted()
        async with client(server, clock=clock, moment=clock.utc() - timedelta(minutes=6)) as wrong:
            with pytest.raises(TransportError, match="Signature expired"):
                await wrong.stream.accepted()


async def test_keys_that_have_ended_are_refused():
    clock = VirtualClock(autojump=False)
    keys = replace(CREDENTIALS, session_token="token", expires_at=clock.utc())
    async with NovaSonicServer(clock=clock, credentials=keys) as server, client(server, keys=keys) as wrong:
        with pytest.raises(TransportError) as refused:
            await wrong.stream.accepted()
        assert wrong.stream.headers["x-amzn-errortype"].startswith("ExpiredTokenException")
        assert refused.value.code == 403


async def test_a_message_that_is_not_signed_or_out_of_its_order_ends_the_session():
    async with NovaSonicServer() as server:
        for signed in (True, False):
            async with client(server) as wrong:
                if signed:
                    wrong.signer.sign(b"a message that is not sent", wrong.clock.utc())
                    await wrong.event(NOVA_2.session_start())
                else:
                    await wrong.stream.send([encode_message(HEADERS, b"{}")])
                [(kind, _)] = await wrong.answer()
                assert kind == "InvalidSignatureException"
        assert len(server.complaints()) == 2


async def test_bytes_that_are_no_event_stream_end_the_session():
    async with NovaSonicServer() as server, client(server) as wrong:
        await wrong.stream.send([b"\0\0\0\x20\0\0\0\0nothing of the kind"])
        [(kind, _)] = await wrong.answer()
        assert kind == "SerializationException"


# --- what is sent ---


def block(name: str, kind: str = "TEXT", role: str = "USER", interactive: bool = False, prompt: str = "p", **more: Any):
    body = {"promptName": prompt, "contentName": name, "type": kind, "role": role, "interactive": interactive}
    return {"contentStart": {**body, **(PLAIN if kind == "TEXT" else {}), **more}}


def words(name: str, content: Any = "words") -> dict[str, Any]:
    return {"textInput": {"promptName": "p", "contentName": name, "content": content}}


def end(name: str) -> dict[str, Any]:
    return {"contentEnd": {"promptName": "p", "contentName": name}}


def told(name: str, role: str = "USER", content: str = "words", *, interactive: bool = False) -> list[Any]:
    return [block(name, role=role, interactive=interactive), words(name, content), end(name)]


def changed(event: Any, path: str, value: Any) -> Any:
    """A copy of an event with one value changed; None takes it out."""
    copy = json.loads(json.dumps(event))
    place = copy
    *way, last = path.split(".")
    for step in way:
        place = place[step]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return copy


SESSION = NOVA_2.session_start()
PROMPT = Opening(
    model_id="m", tools=({"name": "t", "description": "d", "inputSchema": {"json": {"type": "object"}}},)
).prompt_start("p")
AUDIO = NOVA_2.audio_start("p", "audio")
SYSTEM = told("system", "SYSTEM")
TALK = [SESSION, PROMPT, *SYSTEM, AUDIO]
TOOL = {"toolResultInputConfiguration": {"toolUseId": "no-such", "type": "TEXT", **PLAIN}}
LONG = "x" * 51_000

RULES = [
    ([PROMPT], "The first event must be sessionStart"),
    ([SESSION, SESSION], "sessionStart was sent already"),
    ([{"sessionStart": {}}], "needs inferenceConfiguration"),
    ([changed(SESSION, "sessionStart.inferenceConfiguration.maxTokens", 0)], "maxTokens"),
    ([changed(SESSION, "sessionStart.inferenceConfiguration.topP", 2)], "topP"),
    ([changed(SESSION, "sessionStart.inferenceConfiguration.temperature", -1)], "temperature"),
    ([changed(SESSION, "sessionStart.inferenceConfiguration.beams", 1)], "Unknown inference parameters"),
    ([changed(SESSION, "sessionStart.endpointingSensitivity", "HIGH")], "has no endpointingSensitivity here"),
    ([changed(SESSION, "sessionStart.turnDetectionConfiguration", {"endpointingSensitivity": "SOON"})], "HIGH, MEDIUM"),
    ([SESSION, *SYSTEM], "outside of a prompt"),
    ([SESSION, PROMPT, PROMPT], "promptStart must be sent once"),
    ([SESSION, changed(PROMPT, "promptStart.promptName", "")], "needs a promptName"),
    ([SESSION, changed(PROMPT, "promptStart.textOutputConfiguration.mediaType", "text/html")], "text/plain"),
    ([SESSION, changed(PROMPT, "promptStart.audioOutputConfiguration", None)], "audioOutputConfiguration is missing"),
    ([SESSION, changed(PROMPT, "promptStart.audioOutputConfiguration.sampleRateHertz", 44100)], "sampleRateHertz"),
    ([SESSION, changed(PROMPT, "promptStart.audioOutputConfiguration.sampleSizeBits", 8)], "sampleSizeBits"),
    ([SESSION, changed(PROMPT, "promptStart.audioOutputConfiguration.channelCount", 2)], "channelCount"),
    ([SESSION, changed(PROMPT, "promptStart.audioOutputConfiguration.encoding", "hex")], "encoding"),
    ([SESSION, changed(PROMPT, "promptStart.audioOutputConfiguration.mediaType", "audio/wav")], "mediaType"),
    ([SESSION, changed(PROMPT, "promptStart.audioOutputConfiguration.audioType", "SONG")], "audioType"),
    ([SESSION, changed(PROMPT, "promptStart.audioOutputConfiguration.voiceId", "")], "voiceId"),
    ([SESSION, changed(PROMPT, "promptStart.toolUseOutputConfiguration", None)], "toolUseOutputConfiguration"),
    ([SESSION, changed(PROMPT, "promptStart.toolConfiguration.tools", [{}])], "toolSpec"),
    (
        [
            SESSION,
            changed(PROMPT, "promptStart.toolConfiguration.tools", [{"toolSpec": {"name": "t", "description": ""}}]),
        ],
        "needs a description",
    ),
    (
        [
            SESSION,
            changed(
                PROMPT,
                "promptStart.toolConfiguration.tools",
                [{"toolSpec": {"name": "t", "description": "d", "inputSchema": {"json": {"type": "object"}}}}],
            ),
        ],
        "must be a string with a JSON object",
    ),
    ([SESSION, PROMPT, block("a", prompt="other")], "unknown promptName"),
    ([SESSION, PROMPT, *told("u")], "first content must be the SYSTEM prompt"),
    ([SESSION, PROMPT, AUDIO], "first content must be the SYSTEM prompt"),
    ([SESSION, PROMPT, block("s", role="SYSTEM", interactive=True)], "must not be interactive"),
    ([SESSION, PROMPT, *SYSTEM, *told("again", "SYSTEM")], "SYSTEM prompt was sent already"),
    ([SESSION, PROMPT, *SYSTEM, block("")], "needs a contentName"),
    ([SESSION, PROMPT, *SYSTEM, *told("u"), *told("u", "ASSISTANT")], "was used already"),
    ([SESSION, PROMPT, *SYSTEM, block("v", "VIDEO")], "unsupported type"),
    ([SESSION, PROMPT, *SYSTEM, block("x", role="TOOL")], "unsupported role"),
    ([SESSION, PROMPT, *SYSTEM, block("x", textInputConfiguration={})], "textInputConfiguration"),
    ([SESSION, PROMPT, *SYSTEM, block("u"), block("v")], "Another content block is still open"),
    ([SESSION, PROMPT, *SYSTEM, *told("a", "ASSISTANT")], "must begin with a USER message"),
    ([SESSION, PROMPT, *SYSTEM, *told("u"), *told("v")], "must alternate"),
    ([SESSION, PROMPT, *SYSTEM, *told("u", content=LONG + "x" * 1000)], "limit of 50 KB"),
    (
        [
            *[SESSION, PROMPT, *SYSTEM],
            *[event for n in range(5) for event in told(f"h{n}", ("USER", "ASSISTANT")[n % 2], LONG)],
        ],
        "limit of 200 KB",
    ),
    ([*TALK, *told("u")], "Chat history should be sent completely before streaming audio."),
    ([*TALK, NOVA_2.audio_start("p", "audio-2")], "Audio content was started already"),
    ([SESSION, PROMPT, *SYSTEM, changed(AUDIO, "contentStart.role", "ASSISTANT")], "role USER"),
    ([SESSION, PROMPT, *SYSTEM, changed(AUDIO, "contentStart.interactive", value=False)], "interactive"),
    (
        [SESSION, PROMPT, *SYSTEM, changed(AUDIO, "contentStart.audioInputConfiguration.sampleRateHertz", 48000)],
        "sampleRateHertz",
    ),
    ([*TALK, *told("a", "ASSISTANT", interactive=True)], "must be of role USER"),
    ([*TALK, words("nowhere")], "outside of an open TEXT"),
    ([*TALK, block("t", interactive=True), words("t", 5)], "content must be a string"),
    ([*TALK, block("t", interactive=True), end("t")], "is empty"),
    ([*TALK, end("nowhere")], "not open"),
    ([*TALK, {"audioInput": {"promptName": "p", "contentName": "x", "content": ""}}], "outside of an open AUDIO"),
    ([*TALK, {"audioInput": {"promptName": "p", "contentName": "audio", "content": "%"}}], "base64"),
    ([*TALK, {"audioInput": {"promptName": "p", "contentName": "audio", "content": "AA=="}}], "16-bit"),
    ([*TALK, block("r", "TOOL", "TOOL", **TOOL)], "No tool use waits"),
    ([*TALK, block("r", "TOOL", "USER", **TOOL)], "role TOOL"),
    ([*TALK, block("r", "TOOL", "TOOL")], "toolResultInputConfiguration is missing"),
    ([*TALK, block("r", "TOOL", "TOOL", toolResultInputConfiguration={"type": "JSON"})], "must be TEXT"),
    ([*TALK, {"promptEnd": {"promptName": "p"}}], "while content is open"),
    ([*TALK, {"sessionEnd": {}}], "sessionEnd before promptEnd"),
    ([*TALK, end("audio"), {"promptEnd": {"promptName": "p"}}, *told("u")], "outside of a prompt"),
    ([*TALK, end("audio"), {"promptEnd": {"promptName": "p"}}, {"sessionEnd": {}}, SESSION], "after sessionEnd"),
    ([*TALK, {"connectionEnd": {}}], "Unsupported event: connectionEnd"),
    ([{"sessionStart": []}], "must be an object"),
    ([{"a": {}, "b": {}}], "exactly one name"),
    ([[]], "exactly one name"),
]


@pytest.mark.parametrize(("events", "message"), RULES, ids=[message for _, message in RULES])
async def test_whoever_breaks_a_rule_gets_the_exception_of_the_service(events, message):
    async with NovaSonicServer() as server, client(server) as wrong:
        for event in events:
            await wrong.event(event)
        [(kind, words_of_it)] = await wrong.answer()
        assert kind == "validationException"
        assert message in words_of_it
        assert len(server.complaints()) == 1
        assert len(server.sessions[0].events) <= len(events)


async def test_the_first_generation_has_rules_of_its_own():
    first = "amazon.nova-sonic-v1:0"
    path = PATH.replace("nova-2-sonic", "nova-sonic")
    flat = changed(SESSION, "sessionStart.endpointingSensitivity", "LOW")
    async with NovaSonicServer(model_id=first) as server:
        async with client(server, path=path) as wrong:
            for event in [flat, PROMPT, *SYSTEM, AUDIO, *told("t", interactive=True)]:
                await wrong.event(event)
            [(_, message)] = await wrong.answer()
            assert "no interactive text" in message
        async with client(server, path=path) as wrong:
            await wrong.event(changed(SESSION, "sessionStart.turnDetectionConfiguration", {}))
            [(_, message)] = await wrong.answer()
            assert "turnDetectionConfiguration" in message


async def test_a_message_with_other_headers_or_another_payload_is_refused():
    async with NovaSonicServer() as server:
        for raw in (encode_message({":event-type": "x"}, b"{}"), encode_message(HEADERS, b"{}")):
            async with client(server) as wrong:
                await wrong.put(raw)
                [(kind, _)] = await wrong.answer()
                assert kind == "validationException"


async def test_a_result_that_is_no_json_of_an_object_is_complained_of_and_the_session_goes_on():
    async with NovaSonicServer() as server, client(server) as wrong:
        server.call_tools([("t", {})])
        for event in [*TALK, *told("t", interactive=True)]:
            await wrong.event(event)
        await server.until(lambda one: any(session.calls for session in one.sessions))
        [use] = server.sessions[0].calls
        config = {"toolUseId": use, "type": "TEXT", **PLAIN}
        await wrong.event(block("r", "TOOL", "TOOL", toolResultInputConfiguration=config))
        await wrong.event({"toolResult": {"promptName": "p", "contentName": "r", "content": "not json"}})
        await wrong.event(end("r"))
        for event in [end("audio"), {"promptEnd": {"promptName": "p"}}, {"sessionEnd": {}}]:
            await wrong.event(event)
        await wrong.put(b"")
        await wrong.stream.end()
        answer = await wrong.answer()
        assert ("validationException", "Tool Response parsing error") in answer
        assert answer[-1] == ("chunk", "")
        assert server.sessions[0].ended_well


async def test_a_session_that_ends_in_good_order_is_told_that_its_completion_has_ended():
    async with NovaSonicServer(manners=Manners(piece=3)) as server, client(server) as right:
        for event in [*TALK, end("audio"), {"promptEnd": {"promptName": "p"}}, {"sessionEnd": {}}]:
            await right.event(event)
        await right.put(b"")
        await right.stream.end()
        assert await right.answer() == [("chunk", "")]
        assert server.sessions[0].ended_well
        assert server.complaints() == []


async def test_what_was_refused_beforehand_is_refused_once():
    async with NovaSonicServer() as server:
        server.refuse(429, "ThrottlingException", "slow down")
        async with client(server) as one:
            with pytest.raises(TransportError, match="slow down"):
                await one.stream.accepted()
        async with client(server) as another:
            await another.stream.accepted()
