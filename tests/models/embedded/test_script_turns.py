from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from antiphon.content import Messages
from antiphon.errors import ModelError, ModelThrottledException
from antiphon.models.base import StreamEvent
from antiphon.testing import Answer, ScriptedModel, VirtualClock

HELLO: Messages = [{"role": "user", "content": [{"text": "Hello there"}]}]


async def collect(model: ScriptedModel, messages: Messages = HELLO, **kwargs: Any) -> list[StreamEvent]:
    return [event async for event in model.stream(messages, **kwargs)]


def texts(events: list[StreamEvent]) -> list[str]:
    return [
        e["contentBlockDelta"]["delta"]["text"]
        for e in events
        if "text" in e.get("contentBlockDelta", {}).get("delta", {})
    ]


async def test_a_text_is_streamed_word_by_word_and_joined_it_is_the_text_again():
    events = await collect(ScriptedModel(["Good morning,  everyone"]))
    assert texts(events) == ["Good", " morning,", "  everyone"]
    assert events[0] == {"messageStart": {"role": "assistant"}}
    assert events[-2] == {"messageStop": {"stopReason": "end_turn"}}
    assert events[-1] == {"metadata": {"usage": {"inputTokens": 2, "outputTokens": 3, "totalTokens": 5}}}


async def test_calls_are_streamed_as_blocks_with_json_in_pieces():
    events = await collect(
        ScriptedModel([Answer(text="One moment.", tool_uses=[("add", {"a": 1}), ("add", {"a": 2})])])
    )
    starts = [e["contentBlockStart"] for e in events if "contentBlockStart" in e]
    assert [s["start"]["toolUse"] for s in starts] == [
        {"toolUseId": "call-1", "name": "add"},
        {"toolUseId": "call-2", "name": "add"},
    ]
    pieces = [
        e["contentBlockDelta"]["delta"]["toolUse"]["input"]
        for e in events
        if "toolUse" in e.get("contentBlockDelta", {}).get("delta", {})
    ]
    assert json.loads(pieces[0] + pieces[1]) == {"a": 1}
    assert events[-2] == {"messageStop": {"stopReason": "tool_use"}}


async def test_numbers_of_calls_go_on_after_those_in_a_restored_history():
    call: Any = {"toolUse": {"toolUseId": "call-1", "name": "add", "input": {}}}
    history: Messages = [*HELLO, {"role": "assistant", "content": [call]}]
    events = await collect(ScriptedModel([Answer(tool_uses=[("add", {})])]), history)
    [start] = [e["contentBlockStart"] for e in events if "contentBlockStart" in e]
    assert start["start"]["toolUse"]["toolUseId"] == "call-2"


async def test_redactions_reasoning_usage_and_stop_reason_come_as_given():
    answer = Answer(
        text="x",
        reasoning="hm well",
        stop_reason="guardrail_intervened",
        usage={"inputTokens": 1, "outputTokens": 2, "totalTokens": 3},
        redact_user="[gone]",
        redact_answer="[no answer]",
    )
    events = await collect(ScriptedModel([answer]))
    assert {"redactContent": {"redactUserContentMessage": "[gone]"}} in events
    assert {"redactContent": {"redactAssistantContentMessage": "[no answer]"}} in events
    assert {"messageStop": {"stopReason": "guardrail_intervened"}} in events
    assert events[-1]["metadata"]["usage"]["totalTokens"] == 3
    assert events[1]["contentBlockDelta"]["delta"] == {"reasoningContent": {"text": "hm"}}


async def test_what_was_asked_is_remembered_as_it_was():
    model = ScriptedModel(["one"])
    messages: Messages = [{"role": "user", "content": [{"text": "before"}]}]
    await collect(model, messages, system_prompt="Be kind.")
    messages[0]["content"][0]["text"] = "after"
    assert model.requests[0].messages == [{"role": "user", "content": [{"text": "before"}]}]
    assert model.requests[0].system_prompt == "Be kind."


async def test_errors_are_raised_at_once_or_after_some_words():
    model = ScriptedModel(
        [ModelThrottledException("slow down"), Answer(text="a b c", error=ModelError("no"), error_after_words=2)]
    )
    with pytest.raises(ModelThrottledException):
        await collect(model)
    seen: list[StreamEvent] = []
    with pytest.raises(ModelError, match="no"):
        async for event in model.stream(HELLO):
            seen.append(event)
    assert texts(seen) == ["a", " b"]


async def test_a_function_answers_from_the_history():
    model = ScriptedModel([lambda messages: f"{len(messages)} so far"])
    assert "".join(texts(await collect(model))) == "1 so far"


async def test_a_script_that_is_used_up_says_so():
    model = ScriptedModel(["only one"])
    await collect(model)
    with pytest.raises(ModelError, match="1 answers is used up, and this is request 2"):
        await collect(model)


async def test_an_answer_can_be_held_in_the_middle():
    go = asyncio.Event()
    model = ScriptedModel([Answer(text="a b c d", pause_after_words=2, until=go)])
    seen: list[str] = []
    two = asyncio.Event()

    async def read() -> None:
        async for event in model.stream(HELLO):
            seen.extend(texts([event]))
            if len(seen) == 2:
                two.set()

    async with asyncio.TaskGroup() as group:
        group.create_task(read())
        await two.wait()
        assert seen == ["a", " b"]
        go.set()
    assert seen == ["a", " b", " c", " d"]


async def test_words_are_paced_by_the_clock():
    clock = VirtualClock()
    await collect(ScriptedModel(["one two three"], word_seconds=0.5, clock=clock))
    assert clock.now() == pytest.approx(1.5)


async def test_a_stateful_model_writes_its_state_in_place():
    model = ScriptedModel(["one", "two"], stateful=True)
    state: dict[str, Any] = {}
    await collect(model, model_state=state)
    assert model.stateful
    assert state == {"response_id": "response-1"}
    await collect(model, model_state=state)
    assert model.requests[1].model_state == {"response_id": "response-1"}
    assert state == {"response_id": "response-2"}
