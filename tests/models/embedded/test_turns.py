from __future__ import annotations

from typing import Any, Literal

import pytest
from pydantic import create_model

from antiphon.content import Messages, ToolSpec
from antiphon.errors import InvalidInputError
from antiphon.models import EmbeddedModel
from antiphon.testing import VirtualClock

ALARM: ToolSpec = {
    "name": "set_alarm",
    "description": "Set an alarm.",
    "inputSchema": {
        "json": create_model("A", hour=(int, ...), label=(Literal["work", "gym"], ...)).model_json_schema()
    },
}


def user(text: str) -> Any:
    return {"role": "user", "content": [{"text": text}]}


async def test_it_calls_a_tool_it_has_never_seen_and_tells_the_result():
    model = EmbeddedModel()
    history: Messages = [user("set an alarm at six for the gym")]
    events = [event async for event in model.stream(history, [ALARM])]
    [start] = [event["contentBlockStart"] for event in events if "contentBlockStart" in event]
    assert start["start"]["toolUse"] == {"toolUseId": "call-1", "name": "set_alarm"}
    deltas = [event["contentBlockDelta"]["delta"] for event in events if "contentBlockDelta" in event]
    assert "".join(delta["toolUse"]["input"] for delta in deltas) == '{"label": "gym", "hour": 6}'
    assert {"messageStop": {"stopReason": "tool_use"}} in events
    use: Any = {"toolUse": {"toolUseId": "call-1", "name": "set_alarm", "input": {}}}
    result: Any = {
        "toolResult": {"toolUseId": "call-1", "status": "success", "content": [{"text": "The alarm is set"}]}
    }
    history += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    events = [event async for event in model.stream(history, [ALARM])]
    deltas = [event["contentBlockDelta"]["delta"] for event in events if "contentBlockDelta" in event]
    assert "".join(delta["text"] for delta in deltas) == "The alarm is set."


async def test_it_speaks_at_the_pace_of_the_clock():
    clock = VirtualClock()
    model = EmbeddedModel(clock=clock)
    model.update_config(word_seconds=0.25)
    assert model.get_config()["word_seconds"] == 0.25
    async for _ in model.stream([user("count to four")]):
        pass
    assert clock.now() == pytest.approx(1.0)


def test_it_knows_its_configuration():
    with pytest.raises(InvalidInputError, match="temperature"):
        EmbeddedModel().update_config(temperature=1)
