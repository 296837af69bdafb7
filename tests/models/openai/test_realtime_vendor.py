"""The loopback server, held against the vendor's own client, which reads all of what is sent as its own types."""

from __future__ import annotations

import asyncio
from base64 import b64encode

import pytest
from openai import AsyncOpenAI
from websockets.exceptions import ConnectionClosed, InvalidStatus

from antiphon.testing.servers import OpenAIRealtimeServer

SOUND = b64encode(bytes(4800)).decode()
NOON = {"type": "function", "name": "noon", "description": "Is it?", "parameters": {"type": "object", "properties": {}}}


@pytest.fixture
async def server():
    async with OpenAIRealtimeServer() as server:
        yield server


def client(server: OpenAIRealtimeServer, key: str | None = None) -> AsyncOpenAI:
    return AsyncOpenAI(api_key=key or server.key, websocket_base_url=server.url)


async def until(connection, kind: str) -> list:
    events = []
    async with asyncio.timeout(10):
        while not events or events[-1].type != kind:
            events.append(await connection.recv())
    return events


async def test_the_vendors_client_is_heard_and_answered(server):
    server.hear("What time is it?")
    server.say("It is noon.", seconds=0.3)
    async with client(server).realtime.connect(model=server.model_id) as connection:
        assert (await connection.recv()).type == "session.created"
        await connection.session.update(
            session={
                "type": "realtime",
                "instructions": "Be kind.",
                "tools": [NOON],
                "audio": {"input": {"transcription": {"model": "gpt-transcribe"}}, "output": {"voice": "marin"}},
            }
        )
        updated = await connection.recv()
        assert updated.type == "session.updated"
        assert updated.session.audio.output.voice == "marin"
        await connection.input_audio_buffer.append(audio=SOUND)
        events = await until(connection, "response.done")
    kinds = [event.type for event in events]
    assert kinds[:3] == [
        "input_audio_buffer.speech_started",
        "input_audio_buffer.speech_stopped",
        "input_audio_buffer.committed",
    ]
    completed = next(event for event in events if event.type.endswith("input_audio_transcription.completed"))
    assert completed.transcript == "What time is it?"
    done = events[-1].response
    assert done.status == "completed"
    assert done.output[0].content[0].transcript == "It is noon."
    assert done.usage.total_tokens == 30
    assert sum(len(event.delta) for event in events if event.type == "response.output_audio.delta") > 0
    assert server.complaints() == []


async def test_every_event_of_the_server_is_known_to_the_vendors_client(server):
    server.say("Let me see.", seconds=0.2)
    server.call_tools([("noon", {})], text="One moment.")
    server.say_and_hold("Once upon a time.", seconds=1)
    server.barge_in("stop")
    server.throttle()
    server.error("server_error")
    async with client(server).realtime.connect(model=server.model_id) as connection:
        await connection.session.update(
            session={"type": "realtime", "audio": {"input": {"transcription": {"model": "gpt-transcribe"}}}}
        )
        events = []
        for _ in range(3):
            await connection.response.create()
            calls = []
            seen = "response.done" if len(server.session.answered) < 2 else "response.output_audio.delta"
            events += await until(connection, seen)
            calls = [event.item for event in events if event.type == "response.output_item.done"]
            if calls and calls[-1].type == "function_call":
                item = {"type": "function_call_output", "call_id": calls[-1].call_id, "output": "yes"}
                await connection.conversation.item.create(item=item)
        await connection.input_audio_buffer.append(audio=SOUND)
        events += await until(connection, "error")
        cut = next(event for event in events if event.type == "response.done" and event.response.status == "cancelled")
        item_id = cut.response.output[0].id
        await connection.conversation.item.truncate(item_id=item_id, content_index=0, audio_end_ms=100)
        events += await until(connection, "conversation.item.truncated")
        await connection.conversation.item.retrieve(item_id=item_id)
        events += await until(connection, "conversation.item.retrieved")
        await connection.conversation.item.delete(item_id=item_id)
        events += await until(connection, "conversation.item.deleted")
        await connection.input_audio_buffer.clear()
        events += await until(connection, "input_audio_buffer.cleared")
    assert cut.response.status_details.reason == "turn_detected"
    for event in events:
        # What the vendor does not know stays as it came, in `model_extra`.
        assert not event.model_extra, event
        assert type(event).__name__ != "BaseModel", event


async def test_the_vendors_client_is_told_what_it_does_wrong(server):
    async with client(server).realtime.connect(model=server.model_id) as connection:
        await connection.recv()
        await connection.input_audio_buffer.commit(event_id="mine")
        error = (await connection.recv()).error
        assert (error.code, error.event_id) == ("input_audio_buffer_commit_empty", "mine")
        await connection.response.cancel()
        assert (await connection.recv()).error.code == "response_cancel_not_active"


async def test_the_vendors_client_with_another_key_is_turned_away(server):
    with pytest.raises(InvalidStatus) as refused:
        async with client(server, "sk-another-key-0123").realtime.connect(model=server.model_id):
            pass
    assert refused.value.response.status_code == 401


async def test_the_vendors_client_with_an_unknown_model_is_told_so_and_sent_away(server):
    async with client(server).realtime.connect(model="no-such-model") as connection:
        assert (await connection.recv()).error.code == "model_not_found"
        with pytest.raises(ConnectionClosed):
            await connection.recv()
