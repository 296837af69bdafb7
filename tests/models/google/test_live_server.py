"""The Gemini Live server on loopback: every rule refuses a client that breaks it, and the vendor's own client is served."""

from __future__ import annotations

import asyncio
import json
import warnings
from base64 import b64encode
from contextlib import asynccontextmanager

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from antiphon.testing.servers.certificates import LoopbackAuthority
from antiphon.testing.servers.gemini_live import GeminiLiveServer

PATH = "/ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent"
AUDIO = {"audio": {"data": b64encode(b"\0" * 640).decode(), "mimeType": "audio/pcm;rate=16000"}}
ADD = {"functionDeclarations": [{"name": "add", "parametersJsonSchema": {"type": "object", "properties": {"a": {}}}}]}
MANUAL = {"realtimeInputConfig": {"automaticActivityDetection": {"disabled": True}}}
SEEDED = {"historyConfig": {"initialHistoryInClientContent": True}}


def setup(**fields) -> dict:
    return {"setup": {"model": "models/gemini-3.8-live", **fields}}


@asynccontextmanager
async def raw(server: GeminiLiveServer, *messages, key: str | None = "loopback-key", path: str = PATH):
    """A client that sends what it is told to, and nothing else."""
    headers = {} if key is None else {"x-goog-api-key": key}
    async with connect(server.url.replace("http", "ws") + path, additional_headers=headers) as line:
        for message in messages:
            await line.send(message if isinstance(message, (str, bytes)) else json.dumps(message))
        yield line


async def ending(server: GeminiLiveServer, *messages, **how) -> tuple[int, str]:
    """The code and the words with which the session is closed."""
    async with raw(server, *messages, **how) as line:
        with pytest.raises(ConnectionClosed) as closed:
            while True:
                await asyncio.wait_for(line.recv(), 5)
    assert closed.value.rcvd is not None
    return closed.value.rcvd.code, closed.value.rcvd.reason


async def read(line, wanted: str) -> dict:
    """The next message with this field, at any depth of two."""
    while True:
        message = json.loads(await asyncio.wait_for(line.recv(), 5))
        if wanted in message or wanted in message.get("serverContent", {}):
            return message


RULES = [
    ("not_json", ["{"], 1007, "Invalid JSON payload"),
    ("no_object", ["[]"], 1007, "Root element"),
    ("empty", [{}], 1007, "empty"),
    ("first_is_no_setup", [{"realtimeInput": {"text": "hi"}}], 1007, "must be setup"),
    ("two_in_one", [{**setup(), "realtimeInput": {"text": "hi"}}], 1007, "oneof"),
    ("unknown_message", [{"hello": {}}], 1007, 'Unknown name "hello"'),
    ("unknown_field", [setup(temperature=1)], 1007, "Unknown name \"temperature\" at 'setup'"),
    ("unknown_in_generation", [setup(generationConfig={"voice": 1})], 1007, 'Unknown name "voice"'),
    ("unknown_model", [{"setup": {"model": "models/nope"}}], 1008, "models/nope is not found for API version v1beta"),
    ("model_without_prefix", [{"setup": {"model": "gemini-3.8-live"}}], 1008, "is not found"),
    (
        "two_modalities",
        [setup(generationConfig={"responseModalities": ["AUDIO", "TEXT"]})],
        1007,
        "combination of response",
    ),
    (
        "voice_without_sound",
        [setup(generationConfig={"responseModalities": ["TEXT"], "speechConfig": {}})],
        1007,
        "Cannot extract voices",
    ),
    ("temperature", [setup(generationConfig={"temperature": 3})], 1007, "temperature"),
    ("prompt_of_pictures", [setup(systemInstruction={"parts": [{"inlineData": {}}]})], 1007, "system_instruction"),
    ("wrong_type", [setup(generationConfig=[])], 1007, "Invalid value at 'generationConfig'"),
    (
        "detection",
        [setup(realtimeInputConfig={"automaticActivityDetection": {"level": 1}})],
        1007,
        'Unknown name "level"',
    ),
    ("handling", [setup(realtimeInputConfig={"activityHandling": "SHOUT"})], 1007, "activity_handling"),
    ("transparent", [setup(sessionResumption={"transparent": True})], 1007, "transparent"),
    ("unknown_handle", [setup(sessionResumption={"handle": "h"})], 1008, "session not found"),
    ("function_name", [setup(tools=[{"functionDeclarations": [{"name": "a b"}]}])], 1007, "Invalid function name"),
    ("twin_functions", [setup(tools=[ADD, ADD])], 1007, "Duplicate function declaration"),
    (
        "empty_parameters",
        [setup(tools=[{"functionDeclarations": [{"name": "a", "parameters": {"type": "OBJECT", "properties": {}}}]}])],
        1007,
        "should be non-empty for OBJECT type",
    ),
    (
        "two_schemas",
        [
            setup(
                tools=[
                    {
                        "functionDeclarations": [
                            {"name": "a", "parameters": {"properties": {"x": {}}}, "parametersJsonSchema": {}}
                        ]
                    }
                ]
            )
        ],
        1007,
        "mutually exclusive",
    ),
    ("behavior", [setup(tools=[{"functionDeclarations": [{"name": "a", "behavior": "LAZY"}]}])], 1007, "behavior"),
    ("second_setup", [setup(), setup()], 1007, "setup must be the first message"),
    ("two_inputs", [setup(), {"realtimeInput": {**AUDIO, "text": "hi"}}], 1007, "one field per message"),
    ("no_input", [setup(), {"realtimeInput": {}}], 1007, "one field per message"),
    ("media_chunks", [setup(), {"realtimeInput": {"mediaChunks": []}}], 1007, "media_chunks is deprecated"),
    ("mime", [setup(), {"realtimeInput": {"audio": {"data": "", "mimeType": "audio/mp3"}}}], 1007, "mime type"),
    ("rate", [setup(), {"realtimeInput": {"audio": {"data": "", "mimeType": "audio/pcm"}}}], 1007, "mime type"),
    ("base64", [setup(), {"realtimeInput": {"audio": {"data": "!", "mimeType": "audio/pcm;rate=1"}}}], 1007, "Base64"),
    (
        "samples",
        [setup(), {"realtimeInput": {"audio": {"data": "YQ==", "mimeType": "audio/pcm;rate=1"}}}],
        1007,
        "16-bit",
    ),
    ("video", [setup(), {"realtimeInput": {"video": {"data": "", "mimeType": "audio/pcm"}}}], 1007, "video mime type"),
    ("text_type", [setup(), {"realtimeInput": {"text": 5}}], 1007, "TYPE_STRING"),
    (
        "activity",
        [setup(), {"realtimeInput": {"activityStart": {}}}],
        1007,
        "Explicit activity control is not supported",
    ),
    ("stream_end", [setup(**MANUAL), {"realtimeInput": {"audioStreamEnd": True}}], 1007, "audio_stream_end"),
    ("end_first", [setup(**MANUAL), {"realtimeInput": {"activityEnd": {}}}], 1007, "alternate"),
    (
        "start_twice",
        [setup(**MANUAL), {"realtimeInput": {"activityStart": {}}}, {"realtimeInput": {"activityStart": {}}}],
        1007,
        "alternate",
    ),
    ("content_in_talk", [setup(), {"clientContent": {"turns": []}}], 1007, "use realtime_input.text"),
    (
        "content_after_history",
        [setup(**SEEDED), {"clientContent": {"turns": [], "turnComplete": True}}, {"clientContent": {"turns": []}}],
        1007,
        "use realtime_input.text",
    ),
    (
        "role",
        [setup(**SEEDED), {"clientContent": {"turns": [{"role": "assistant", "parts": [{"text": "a"}]}]}}],
        1007,
        "role",
    ),
    ("no_parts", [setup(**SEEDED), {"clientContent": {"turns": [{"role": "user", "parts": []}]}}], 1007, "parts"),
    (
        "empty_text",
        [setup(**SEEDED), {"clientContent": {"turns": [{"role": "user", "parts": [{"text": ""}]}]}}],
        1007,
        "empty",
    ),
    ("no_data", [setup(**SEEDED), {"clientContent": {"turns": [{"role": "user", "parts": [{}]}]}}], 1007, "data field"),
    (
        "unasked_result",
        [setup(tools=[ADD]), {"toolResponse": {"functionResponses": [{"id": "x", "name": "add", "response": {}}]}}],
        1007,
        "No function call with id x",
    ),
    ("no_results", [setup(), {"toolResponse": {"functionResponses": []}}], 1007, "must not be empty"),
    ("context_update", [setup(), {"contextUpdate": {}}], 1008, "not implemented"),
]


@pytest.mark.parametrize(("messages", "code", "words"), [rule[1:] for rule in RULES], ids=[rule[0] for rule in RULES])
async def test_a_client_that_breaks_a_rule_is_told_so_and_closed(messages, code, words):
    async with GeminiLiveServer() as server:
        told = await ending(server, *messages)
    assert told[0] == code
    assert words in server.session.complaints[0]
    assert server.session.closed is not None
    assert server.session.closed[1].startswith(told[1][:80])


@pytest.mark.parametrize(
    ("response", "words"),
    [
        ({"id": None}, "id is required"),
        ({"name": "subtract"}, "is of add"),
        ({"response": "5"}, "must be an object"),
        ({"scheduling": "SILENT"}, "NON_BLOCKING"),
        ({"result": 5}, 'Unknown name "result"'),
    ],
)
async def test_a_result_must_be_that_of_its_call(response, words):
    async with GeminiLiveServer() as server:
        server.call_tools([("add", {"a": 1})])
        async with raw(server, setup(tools=[ADD]), {"realtimeInput": {"text": "add"}}) as line:
            (call,) = (await read(line, "toolCall"))["toolCall"]["functionCalls"]
            right = {"id": call["id"], "name": "add", "response": {"output": 1}}
            wrong = {key: value for key, value in {**right, **response}.items() if value is not None}
            await line.send(json.dumps({"toolResponse": {"functionResponses": [wrong]}}))
            with pytest.raises(ConnectionClosed) as closed:
                await read(line, "never")
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1007
    assert words in server.session.complaints[0]


async def test_a_result_may_be_given_once_and_not_of_a_call_that_was_taken_back():
    async with GeminiLiveServer() as server:
        server.call_tools([("add", {"a": 1})])
        server.barge_in("stop")
        async with raw(server, setup(tools=[ADD]), {"realtimeInput": {"text": "add"}}) as line:
            (call,) = (await read(line, "toolCall"))["toolCall"]["functionCalls"]
            await line.send(json.dumps({"realtimeInput": AUDIO}))
            assert await read(line, "interrupted")
            assert (await read(line, "toolCallCancellation"))["toolCallCancellation"] == {"ids": [call["id"]]}
            response = {"id": call["id"], "name": "add", "response": {"output": 1}}
            await line.send(json.dumps({"toolResponse": {"functionResponses": [response]}}))
            with pytest.raises(ConnectionClosed):
                await read(line, "never")
    assert "No function call" in server.complaints()[0]


@pytest.mark.parametrize(
    ("path", "key", "status"),
    [("/", "loopback-key", 404), (PATH.replace("Bidi", "Mono"), "loopback-key", 404), (PATH, None, 403)],
)
async def test_a_wrong_address_or_no_key_is_refused_before_the_talk(path, key, status):
    async with GeminiLiveServer() as server:
        with pytest.raises(InvalidStatus) as refused:
            async with raw(server, path=path, key=key):
                pass
    assert refused.value.response.status_code == status
    assert server.refused == [status]


async def test_a_wrong_key_is_refused_after_the_setup():
    async with GeminiLiveServer() as server:
        assert await ending(server, setup(), key="other") == (1007, "API key not valid. Please pass a valid API key.")


async def test_a_session_that_is_still_connected_is_not_resumed():
    async with GeminiLiveServer() as server:
        async with raw(server, setup(sessionResumption={})) as line:
            handle = (await read(line, "sessionResumptionUpdate"))["sessionResumptionUpdate"]["newHandle"]
            resuming = setup(sessionResumption={"handle": handle})
            assert (await ending(server, resuming))[0] == 1011
        await server.until(lambda it: not it.sessions[0].open)
        async with raw(server, resuming) as line:
            assert await read(line, "setupComplete")
        assert server.session.resumed == handle


async def test_an_older_generation_takes_content_in_mid_talk_and_is_interrupted_by_it():
    async with GeminiLiveServer(model_id="gemini-2.5-flash-live") as server:
        server.say_and_hold("a long story about a dragon")
        server.say("hello")
        first = {"setup": {"model": "models/gemini-2.5-flash-live", "outputAudioTranscription": {}}}
        turn = {"clientContent": {"turns": [{"role": "user", "parts": [{"text": "hi"}]}], "turnComplete": True}}
        async with raw(server, first, turn) as line:
            await read(line, "modelTurn")
            await line.send(json.dumps(turn))
            assert await read(line, "interrupted")
            assert await read(line, "turnComplete")
            assert await read(line, "generationComplete")


async def test_speech_that_may_not_interrupt_does_not():
    async with GeminiLiveServer() as server:
        server.say_and_hold("a long story")
        server.go_on()
        config = {"realtimeInputConfig": {"activityHandling": "NO_INTERRUPTION"}}
        async with raw(server, setup(**config), {"realtimeInput": {"text": "a story"}}) as line:
            await read(line, "generationComplete")
    assert server.complaints() == []


async def test_the_text_of_an_answer_is_written_where_no_sound_is_wanted():
    async with GeminiLiveServer() as server:
        server.say("good day")
        wanted = setup(generationConfig={"responseModalities": ["TEXT"]})
        async with raw(server, wanted, {"realtimeInput": {"text": "hi"}}) as line:
            assert (await read(line, "modelTurn"))["serverContent"]["modelTurn"]["parts"] == [{"text": "good"}]


async def test_a_script_that_calls_what_was_not_declared_fails_the_test():
    with pytest.raises(AssertionError, match="did not declare"):
        async with GeminiLiveServer() as server:
            server.call_tools([("nothing", {})])
            async with raw(server, setup(), {"realtimeInput": {"text": "hi"}}) as line:
                with pytest.raises(ConnectionClosed):
                    await read(line, "never")


async def test_waiting_for_what_does_not_come_says_what_came():
    async with GeminiLiveServer() as server:
        server.cut()
        async with raw(server, setup()) as line:
            with pytest.raises(ConnectionClosed):
                await read(line, "never")
        await server.played()
        assert server.steps_left == 0


# The vendor's own client


@pytest.fixture
def sdk(tmp_path):
    genai = pytest.importorskip("google.genai")
    authority = LoopbackAuthority()

    def client(server: GeminiLiveServer, key: str | None = None):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return genai.Client(
                api_key=key or server.key,
                http_options={
                    "base_url": server.url,
                    "api_version": "v1beta",
                    "async_client_args": {"ssl": authority.client_context()},
                },
            )

    return authority, client


CONFIG = {
    "response_modalities": ["AUDIO"],
    "system_instruction": "be kind",
    "input_audio_transcription": {},
    "output_audio_transcription": {},
    "session_resumption": {"handle": None},
    "context_window_compression": {"sliding_window": {}},
    "realtime_input_config": {"automatic_activity_detection": {"silence_duration_ms": 500}},
    "speech_config": {"voice_config": {"prebuilt_voice_config": {"voice_name": "Puck"}}},
    "tools": [
        {
            "function_declarations": [
                {
                    "name": "get_weather",
                    "description": "w",
                    "parameters": {"type": "OBJECT", "properties": {"city": {"type": "STRING"}}},
                }
            ]
        }
    ],
}


async def test_the_vendors_client_talks_calls_tools_and_is_cut(sdk):
    from google.genai import types

    authority, client = sdk
    async with GeminiLiveServer(tls=authority) as server:
        server.hear("weather?", interim=True)
        server.call_tools([("get_weather", {"city": "Paris"})])
        server.say("It is sunny in Paris today.", seconds=2)
        server.barge_in("thanks")
        server.usage(3, 4)
        server.go_away(50)
        said, heard, sound, seen = "", "", 0, set()
        async with client(server).aio.live.connect(model=server.model_id, config=CONFIG) as session:
            await session.send_realtime_input(audio=types.Blob(data=b"\0" * 640, mime_type="audio/pcm;rate=16000"))
            async with asyncio.timeout(10):
                while "go_away" not in seen:
                    async for message in session.receive():
                        content = message.server_content
                        seen |= {key for key in message.model_fields_set if getattr(message, key) is not None}
                        if message.tool_call is not None:
                            (call,) = message.tool_call.function_calls
                            await session.send_tool_response(
                                function_responses=[
                                    types.FunctionResponse(id=call.id, name=call.name, response={"output": "sunny"})
                                ]
                            )
                        if message.data:
                            sound += len(message.data)
                        if content is not None:
                            seen |= {key for key in content.model_fields_set if getattr(content, key)}
                            said += content.output_transcription.text if content.output_transcription else ""
                            heard += content.input_transcription.text if content.input_transcription else ""
                            if content.generation_complete:
                                await session.send_realtime_input(
                                    audio=types.Blob(data=b"\0" * 640, mime_type="audio/pcm;rate=16000")
                                )
                        if message.go_away is not None:
                            assert message.go_away.time_left == "50s"
                            break
    assert (said, heard, sound) == ("It is sunny in Paris today.", "weather?thanks", 2 * 2 * 24000)
    assert {"tool_call", "usage_metadata", "session_resumption_update", "interrupted", "turn_complete"} <= seen
    assert server.complaints() == []
    assert server.session.tool_responses[0]["response"] == {"output": "sunny"}


async def test_the_vendors_client_seeds_a_history_and_resumes(sdk):
    authority, client = sdk
    async with GeminiLiveServer(tls=authority) as server:
        server.say("hello again")
        google = client(server)
        config = {**CONFIG, "history_config": {"initial_history_in_client_content": True}}
        async with google.aio.live.connect(model=server.model_id, config=config) as session:
            await session.send_client_content(
                turns=[{"role": "user", "parts": [{"text": "hi"}]}, {"role": "model", "parts": [{"text": "hello"}]}],
                turn_complete=True,
            )
            await session.send_realtime_input(text="are you there?")
            handle = None
            async with asyncio.timeout(10):
                async for message in session.receive():
                    if message.session_resumption_update is not None:
                        handle = message.session_resumption_update.new_handle
            assert server.seeded() == [("user", "hi"), ("assistant", "hello")]
        await server.until(lambda it: not it.session.open)
        async with google.aio.live.connect(
            model=server.model_id, config={**CONFIG, "session_resumption": {"handle": handle}}
        ):
            await server.until(lambda it: it.connections() == 2 and it.session.ready)
        assert server.session.resumed == handle
    assert server.complaints() == []


@pytest.mark.parametrize(
    ("given", "code", "words"),
    [
        ({"key": "wrong"}, 1007, "API key not valid"),
        ({"model": "nope"}, 1008, "models/nope is not found"),
        ({"config": {"response_modalities": ["AUDIO", "TEXT"]}}, 1007, "combination of response modalities"),
    ],
)
async def test_the_vendors_client_is_refused_with_the_vendors_words(sdk, given, code, words):
    from google.genai import errors

    authority, client = sdk
    async with GeminiLiveServer(tls=authority) as server:
        google = client(server, given.get("key"))
        with pytest.raises(errors.APIError) as refused:
            async with google.aio.live.connect(
                model=given.get("model", server.model_id), config=given.get("config", CONFIG)
            ):
                pass
    assert refused.value.code == code
    assert words in str(refused.value)


async def test_the_vendors_client_is_refused_content_in_mid_talk(sdk):
    from google.genai import errors

    authority, client = sdk
    async with (
        GeminiLiveServer(tls=authority) as server,
        client(server).aio.live.connect(model=server.model_id, config=CONFIG) as session,
    ):
        await session.send_client_content(turns=[{"role": "user", "parts": [{"text": "hi"}]}], turn_complete=True)
        with pytest.raises((errors.APIError, ConnectionClosed)):
            async with asyncio.timeout(10):
                async for _ in session.receive():
                    pass
    assert "use realtime_input.text" in server.complaints()[0]
