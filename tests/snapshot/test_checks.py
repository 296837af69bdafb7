"""A snapshot is checked wholly before anything is loaded."""

from typing import Any

import pytest

from antiphon.errors import SnapshotException
from antiphon.snapshot import LIVE, TURNS, Snapshot, register_upgrade
from antiphon.snapshot.checks import check_messages, check_snapshot, check_system_prompt

USE = {"toolUseId": "t-1", "name": "lights", "input": {"on": True}}
RESULT = {"toolUseId": "t-1", "status": "success", "content": [{"text": "on"}, {"json": {"on": True}}]}
GOOD: dict[str, Any] = {
    "messages": [
        {"role": "user", "content": [{"text": "Light, please."}], "tracking_id": "x"},
        {"role": "assistant", "content": [{"toolUse": USE}], "metadata": {"usage": {"inputTokens": 1}}},
        {"role": "user", "content": [{"toolResult": RESULT}]},
        {"role": "assistant", "content": [{"image": {"format": "png", "source": {"bytes": b"\x00"}}}]},
        {"role": "assistant", "content": [], "metadata": None},
        {"role": "assistant", "content": [{"fromTheFuture": {"x": [1, 2.5, None]}}], "unknown": 1},
    ],
    "state": {"cart": ["tea"]},
    "conversation_manager_state": {"__name__": "X", "removed_message_count": 2, "more": 1},
    "interrupt_state": {
        "interrupts": {"i-1": {"id": "i-1", "name": "confirm", "reason": {"to": "Rome"}, "response": None}},
        "context": {"message": 3},
        "activated": True,
    },
    "model_state": {"response_id": "r"},
    "system_prompt": [{"text": "Be brief."}, {"cachePoint": {"type": "default"}}],
}


def snapshot(**data: Any) -> Snapshot:
    return Snapshot("agent", "1.0", GOOD | data, {})


def test_good_fields_come_back_equal_and_independent() -> None:
    given = snapshot()
    checked = check_snapshot(given, TURNS)
    assert checked == GOOD
    assert list(checked) == list(TURNS.fields)
    checked["messages"][0]["content"][0]["text"] = "edited"
    checked["state"]["cart"].append("milk")
    assert GOOD["messages"][0]["content"][0]["text"] == "Light, please."
    assert GOOD["state"] == {"cart": ["tea"]}


def test_absent_fields_stay_absent_and_foreign_ones_are_ignored_even_when_malformed() -> None:
    assert check_snapshot(snapshot(model_state=7, junk=object()), LIVE).keys() == {"messages", "state", "system_prompt"}
    assert check_snapshot(Snapshot("agent", "1.0", {"state": {}}, {}), TURNS) == {"state": {}}


def test_a_prompt_may_be_none_or_text() -> None:
    assert check_system_prompt(None) is None
    assert check_system_prompt("Be brief.") == [{"text": "Be brief."}]


def with_use(**change: Any) -> dict[str, Any]:
    use = {key: value for key, value in (USE | change).items() if value is not ...}
    return {"messages": [{"role": "assistant", "content": [{"text": ""}, {"toolUse": use}]}]}


def with_result(**change: Any) -> dict[str, Any]:
    result = {key: value for key, value in (RESULT | change).items() if value is not ...}
    return {"messages": [{"role": "user", "content": [{"toolResult": result}]}]}


IN_USE, IN_RESULT = r"data\.messages\[0\]\.content\[1\]\.toolUse", r"data\.messages\[0\]\.content\[0\]\.toolResult"


@pytest.mark.parametrize(
    ("data", "path"),
    [
        ({"messages": {}}, r"data\.messages is dict, not a list"),
        ({"messages": None}, r"data\.messages is null"),
        ({"messages": ["Hi"]}, r"data\.messages\[0\] is str, not an object"),
        ({"messages": [{"content": []}]}, r"data\.messages\[0\]\.role is missing"),
        ({"messages": [{"role": "system", "content": []}]}, r"data\.messages\[0\]\.role is 'system'"),
        ({"messages": [{"role": ["user"], "content": []}]}, r"data\.messages\[0\]\.role"),
        ({"messages": [{"role": "user"}]}, r"data\.messages\[0\]\.content is missing"),
        ({"messages": [{"role": "user", "content": "Hi"}]}, r"data\.messages\[0\]\.content is str"),
        ({"messages": [{"role": "user", "content": ["Hi"]}]}, r"data\.messages\[0\]\.content\[0\] is str"),
        ({"messages": [{"role": "user", "content": [{}]}]}, r"data\.messages\[0\]\.content\[0\] is empty"),
        ({"messages": [{"role": "user", "content": [{"text": 7}]}]}, r"content\[0\]\.text is int"),
        ({"messages": [{"role": "user", "content": [], "metadata": 1}]}, r"data\.messages\[0\]\.metadata is int"),
        ({"messages": [{"role": "user", "content": [], "tracking_id": 1}]}, r"\[0\]\.tracking_id is int"),
        ({"messages": [{"role": "user", "content": [{"image": {"format": "png"}}]}]}, r"image\.source is missing"),
        (
            {"messages": [{"role": "user", "content": [{"image": {"format": "png", "source": {"bytes": "AA"}}}]}]},
            r"image\.source\.bytes is str, not bytes",
        ),
        ({"messages": [{"role": "user", "content": [{"text": "\ud800"}]}]}, r"content\[0\]\.text.*surrogate"),
        (with_use(toolUseId=...), rf"{IN_USE}\.toolUseId is missing"),
        (with_use(toolUseId=7), rf"{IN_USE}\.toolUseId is int"),
        (with_use(toolUseId=""), rf"{IN_USE}\.toolUseId is empty"),
        (with_use(name=...), rf"{IN_USE}\.name is missing"),
        (with_use(input=...), rf"{IN_USE}\.input is missing"),
        (with_result(toolUseId=...), rf"{IN_RESULT}\.toolUseId is missing"),
        (with_result(status="maybe"), rf"{IN_RESULT}\.status is 'maybe'"),
        (with_result(status=[]), rf"{IN_RESULT}\.status"),
        (with_result(content="on"), rf"{IN_RESULT}\.content is str"),
        (with_result(content=["on"]), rf"{IN_RESULT}\.content\[0\] is str"),
        (with_result(content=[{"text": None}]), rf"{IN_RESULT}\.content\[0\]\.text is null"),
        ({"state": []}, r"data\.state is list"),
        ({"state": {"x": b""}}, r"data\.state\.x is bytes"),
        ({"state": {"x": float("nan")}}, r"data\.state\.x is NaN, which is not JSON"),
        ({"conversation_manager_state": "X"}, r"data\.conversation_manager_state is str"),
        ({"conversation_manager_state": {"__name__": 1}}, r"conversation_manager_state\.__name__ is int"),
        ({"conversation_manager_state": {"removed_message_count": -1}}, "removed_message_count is -1"),
        ({"conversation_manager_state": {"removed_message_count": True}}, "removed_message_count is True"),
        ({"interrupt_state": None}, r"data\.interrupt_state is null"),
        ({"interrupt_state": {"activated": 1}}, r"interrupt_state\.activated is 1"),
        ({"interrupt_state": {"interrupts": []}}, r"interrupt_state\.interrupts is list"),
        ({"interrupt_state": {"interrupts": {"i": {"id": "i"}}}}, r"interrupts\.i\.name is missing"),
        ({"interrupt_state": {"context": [1]}}, r"interrupt_state\.context is list"),
        ({"model_state": None}, r"data\.model_state is null"),
        ({"system_prompt": 7}, r"data\.system_prompt is int"),
        ({"system_prompt": [{"text": 7}]}, r"data\.system_prompt\[0\]\.text is int"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_malformed_field_is_refused_with_its_path(data: dict[str, Any], path: str) -> None:
    with pytest.raises(SnapshotException, match=path):
        check_snapshot(snapshot(**data), TURNS)


def test_only_an_agents_snapshot_in_this_schema_can_be_loaded() -> None:
    with pytest.raises(SnapshotException, match="Expected snapshot scope 'agent', got 'multiAgent'"):
        check_snapshot(Snapshot("multiAgent", "1.0", {}, {}), TURNS)
    with pytest.raises(SnapshotException, match=r"Unsupported snapshot schema version: '0\.9'\. Current version: 1\.0"):
        check_snapshot(Snapshot("agent", "0.9", {}, {}), TURNS)
    with pytest.raises(SnapshotException, match="expected a Snapshot, got dict"):
        check_snapshot({}, TURNS)  # type: ignore[arg-type]


def test_the_path_begins_where_the_caller_says() -> None:
    with pytest.raises(SnapshotException, match=r"^messages\[0\] is int"):
        check_messages([1], "messages")


def test_a_snapshot_of_an_older_schema_is_upgraded_wherever_it_comes_from() -> None:
    def rename(old: dict[str, Any]) -> dict[str, Any]:
        old["data"]["messages"] = old["data"].pop("turns")
        return old

    register_upgrade("0.0", "1.0", rename)
    turns = [{"role": "user", "content": [{"text": "Hi"}]}]
    old = Snapshot("agent", "0.0", {"turns": turns}, {})
    for kind in (TURNS, LIVE):
        assert check_snapshot(old, kind) == {"messages": turns}
        assert check_snapshot(Snapshot.from_dict(old.to_dict()), kind) == {"messages": turns}
        assert check_snapshot(Snapshot.from_json(old.to_json()), kind) == {"messages": turns}
    assert (old.schema_version, old.data) == ("0.0", {"turns": turns})


def test_an_older_schema_without_a_way_up_is_refused_by_its_version() -> None:
    with pytest.raises(SnapshotException, match=r"'0\.1'.*no upgrade is registered"):
        check_snapshot(Snapshot("agent", "0.1", {}, {}), TURNS)
