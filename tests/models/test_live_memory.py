"""What the codecs of live models remember in a call of many hours: as much as after its first minutes.

Sources: pipecat #3750 (about 1 MB a minute for each session) and #3116 (3 GB a minute).
"""

from __future__ import annotations

import gc
import json
import logging
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType

import pytest

from antiphon.content import AudioDelta, BidiMessage, TextBlock, ToolResultBlock, ToolUseBlock
from antiphon.models.bedrock.nova_codec import NovaSonicCodec
from antiphon.models.google.live_codec import GeminiLiveCodec
from antiphon.models.live import Codec
from antiphon.models.openai.realtime_codec import RealtimeCodec
from tests.models.bedrock import nova_wire_format as nova
from tests.models.google import test_live_codec as gemini
from tests.models.openai import realtime_exchange as openai

EVENTS = 100_000
FIRST = 8_000
SHARED = type | ModuleType | FunctionType | BuiltinFunctionType | MethodType | CodeType | logging.Logger
SOUND = AudioDelta("pcm", {"bytes": b"\1\0" * 32})
RESULT = [{"text": "done"}]


def objects_of(codec: Codec) -> int:
    """How many objects hang on a codec."""
    seen: set[int] = set()
    found: list[object] = [codec]
    while found:
        one = found.pop()
        if id(one) not in seen and not isinstance(one, SHARED):
            seen.add(id(one))
            found += gc.get_referents(one)
    return len(seen)


def openai_codec() -> RealtimeCodec:
    codec = openai.make_codec()
    codec.open()
    codec.receive(openai.frame("session.created", session={"id": "s"}))
    codec.receive(openai.frame("session.updated", session={"id": "s"}))
    return codec


def openai_turn(codec: RealtimeCodec, number: int) -> Iterator[str]:
    """Speech, an answer (every third is cut, every fifth throttled) with a call, its result, typed words and their answer."""
    said, said_id, call_id = f"response-{number}", f"message-{number}", f"call-{number}"
    yield openai.frame("input_audio_buffer.speech_started", item_id=f"user-{number}")
    yield openai.frame("input_audio_buffer.committed", item_id=f"user-{number}")
    yield openai.frame("conversation.item.added", item={"id": f"user-{number}", "type": "message"})
    yield openai.frame("response.created", response={"id": said})
    yield openai.frame("rate_limits.updated", rate_limits=[{"name": "requests", "remaining": 3, "reset_seconds": 1.5}])
    for _ in range(3):
        part = {"response_id": said, "item_id": said_id}
        yield openai.frame("response.output_audio_transcript.delta", **part, delta="word ")
        yield openai.frame("response.output_audio.delta", **part, delta="AAAA")
    done = {"id": f"item-{call_id}", "type": "function_call", "call_id": call_id, "name": "noon", "status": "completed"}
    yield openai.frame("response.output_item.done", response_id=said, item=done)
    cut = {"status": "cancelled", "status_details": {"reason": "turn_detected"}}
    slow = {"status": "failed", "status_details": {"error": {"code": "rate_limit_exceeded", "message": "slower"}}}
    outcome = cut if number % 3 == 0 else slow if number % 5 == 0 else {"status": "completed"}
    yield openai.frame("response.done", response={"id": said, "usage": {"input_tokens": 1}, **outcome})
    codec.truncate(said, 1)
    yield openai.frame(
        "conversation.item.input_audio_transcription.completed", item_id=f"user-{number}", transcript="hello"
    )
    yield openai.frame(f"something.new-{number}", about="what")
    codec.send(SOUND)
    codec.send(BidiMessage([ToolResultBlock(call_id, "success", RESULT)]))
    codec.send(BidiMessage([TextBlock("and this")]))
    codec.ring("again")
    for frame in list(codec.outbox):
        match json.loads(frame):
            case {"type": "conversation.item.create", "item": item}:
                yield openai.frame("conversation.item.added", item=item)
    for frame in list(codec.outbox):
        match json.loads(frame):
            case {"type": "response.create", "response": {"metadata": metadata}}:
                answer = f"answer-{number}"
                yield openai.frame("response.created", response={"id": answer, "metadata": metadata})
                yield openai.frame("response.done", response={"id": answer, "status": "completed"})


def gemini_turn(codec: GeminiLiveCodec, number: int) -> Iterator[bytes]:
    """Speech, an answer (every third is cut), calls with and without ids, of which one is taken back, typed words."""
    yield gemini.content(inputTranscription={"text": "hello"})
    for _ in range(4):
        yield gemini.content(modelTurn=gemini.sound(1), outputTranscription={"text": "word "})
    yield gemini.frame({f"somethingNew{number}": {}})
    yield gemini.content(**{f"moreNew{number}": 1})
    calls = [{"id": f"a{number}", "name": "a"}, {"id": f"b{number}", "name": "b"}, {"name": "c"}]
    called = list(codec.receive(gemini.frame({"toolCall": {"functionCalls": calls}})))
    yield gemini.frame({"toolCallCancellation": {"ids": [f"b{number}"]}})
    keys = [use["toolUseId"] for event in called for use in getattr(event, "tool_uses", [])]
    codec.send(BidiMessage([ToolResultBlock(key, "success", RESULT) for key in keys]))
    codec.send(BidiMessage([ToolUseBlock("old", "t", {}), ToolResultBlock("old", "success", RESULT)]))
    yield gemini.content(modelTurn=gemini.sound(1))
    yield gemini.content(interrupted=True) if number % 3 == 0 else gemini.content(generationComplete=True)
    yield gemini.content(turnComplete=True)
    yield gemini.frame({"usageMetadata": {"promptTokenCount": 1}})
    yield gemini.frame({"sessionResumptionUpdate": {"newHandle": f"h{number}", "resumable": True}})
    codec.send(SOUND)
    codec.send(BidiMessage([TextBlock("and this")]))
    yield gemini.content(modelTurn=gemini.sound(1), turnComplete=True)


def nova_turn(codec: NovaSonicCodec, number: int) -> Iterator[bytes]:
    """Speech, an answer (every third is cut), a call with its result, a late result, and what never ends."""
    yield nova.chunk("completionStart", {"completionId": f"completion-{number}"})
    yield from nova.text(f"user-{number}", "USER", "FINAL", "hello")
    yield from nova.text(f"plan-{number}", "ASSISTANT", "SPECULATIVE", "One two. Three.")
    cut = number % 3 == 0
    yield from nova.sound(f"sound-{number}", b"\0\0", "INTERRUPTED" if cut else "END_TURN")
    yield from nova.text(f"said-{number}", "ASSISTANT", "FINAL", "One two." if cut else "One two. Three.")
    yield from nova.call(f"call-{number}", f"id-{number}", "noon", "{}")
    codec.send(BidiMessage([ToolResultBlock(f"id-{number}", "success", RESULT)]))
    codec.send(BidiMessage([ToolUseBlock("old", "t", {}), ToolResultBlock("old", "success", RESULT)]))
    yield nova.chunk(f"somethingNew{number}", {})
    yield nova.chunk("contentStart", {"contentId": f"open-{number}", "type": "TEXT", "role": "ASSISTANT"})
    yield nova.chunk("usageEvent", {"totalInputTokens": number, "totalOutputTokens": number})
    codec.send(SOUND)


def play(codec: Codec, turn: Callable[[Codec, int], Iterator[str | bytes]], events: int) -> None:
    number = came = 0
    while came < events:
        number += 1
        for frame in turn(codec, number):
            codec.receive(frame)
            came += 1
        codec.outbox.clear()
        codec.alarms.clear()


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("make", "turn"),
    [(openai_codec, openai_turn), (gemini.codec, gemini_turn), (nova.opened, nova_turn)],
    ids=["OpenAI Realtime", "Gemini Live", "Nova Sonic"],
)
def test_after_a_hundred_thousand_events_a_codec_remembers_no_more_than_after_the_first_ones(make, turn, caplog):
    caplog.set_level(logging.ERROR)
    codec = make()
    play(codec, turn, FIRST)
    first = objects_of(codec)
    play(codec, turn, EVENTS)
    assert objects_of(codec) <= first * 1.1, f"{first} objects at first"
