"""Session folders that Strands 1.62 wrote open as they are. The fixtures follow its documented layout."""

import json
import re

import pytest

from antiphon.errors import CorruptSnapshotError, SnapshotException
from antiphon.ids import new_uuid7
from antiphon.session import SnapshotSessionManager, read_tree
from antiphon.storage import LocalFileStorage
from tests.session.agents import KINDS, LiveAgent, TurnAgent, said


def strands_file(folder, name, data, created_at="2026-05-01T08:00:00.000000Z", **more):
    """A snapshot as `json.dumps(..., ensure_ascii=False)` writes it: spaces after separators, no keys beside the five."""
    envelope = {
        "scope": "agent",
        "schema_version": "1.0",
        "created_at": created_at,
        "data": data,
        "app_data": {},
        **more,
    }
    path = folder / "session/old/scopes/agent/default/snapshots" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(json.dumps(envelope, ensure_ascii=False).encode())
    path.chmod(0o644)
    return path


def agent_data(messages, **more):
    return {
        "messages": messages,
        "state": {"city": "Zürich"},
        "conversation_manager_state": {"__name__": "SlidingWindowConversationManager", "removed_message_count": 2},
        "interrupt_state": {"interrupts": {}, "context": {}, "activated": False},
        "model_state": {},
        "system_prompt": [{"text": "Sei höflich."}],
        **more,
    }


CALL = {
    "role": "assistant",
    "content": [{"text": "Moment."}, {"toolUse": {"toolUseId": "t1", "name": "book", "input": {"seats": 2}}}],
}


@pytest.mark.parametrize("kind", KINDS)
async def test_a_folder_opens_with_messages_state_and_prompt(kind, tmp_path):
    picture = {"image": {"format": "png", "source": {"bytes": {"__bytes_encoded__": True, "data": "AP8="}}}}
    messages = [said("Grüezi"), said("Hallo", "assistant"), {"role": "user", "content": [picture]}]
    strands_file(tmp_path, "snapshot_latest.json", agent_data(messages))
    agent = kind(SnapshotSessionManager("old", storage=LocalFileStorage(tmp_path)))
    assert agent.texts()[:2] == ["Grüezi", "Hallo"]
    assert agent.messages[2]["content"][0]["image"]["source"]["bytes"] == b"\x00\xff"
    assert agent.state.get() == {"city": "Zürich"}
    assert agent.system_prompt == "Sei höflich."


async def test_a_live_agents_folder_opens(tmp_path):
    strands_file(tmp_path, "snapshot_latest.json", {"messages": [said("Hi")], "state": {}, "system_prompt": None})
    agent = LiveAgent(SnapshotSessionManager("old", storage=LocalFileStorage(tmp_path)), system_prompt="gone")
    assert agent.texts() == ["Hi"]
    assert agent.system_prompt is None


async def test_an_agent_that_waits_for_a_person_keeps_its_open_call(tmp_path):
    from antiphon.agent.turns import Agent
    from antiphon.testing import ScriptedModel

    question = {"id": "v1:tool_call:t1:5b", "name": "sure", "reason": None, "response": None}
    waiting = {
        "interrupts": {question["id"]: question},
        "context": {"tool_use_message": CALL, "tool_results": []},
        "activated": True,
    }
    strands_file(tmp_path, "snapshot_latest.json", agent_data([said("Book it"), CALL], interrupt_state=waiting))
    agent = Agent(ScriptedModel([]), session_manager=SnapshotSessionManager("old", storage=LocalFileStorage(tmp_path)))
    assert agent.messages == [said("Book it")]
    assert [call.tool_use["toolUseId"] for call in agent.take_journal().calls] == ["t1"]
    assert agent.interrupt_state.activated


async def test_checkpoints_are_listed_restored_and_built_upon(tmp_path):
    storage = LocalFileStorage(tmp_path)
    ids = [new_uuid7() for _ in range(3)]
    for index, snapshot_id in enumerate(ids):
        messages = [said(text) for text in "abc"[: index + 1]]
        strands_file(tmp_path, f"immutable_history/snapshot_{snapshot_id}.json", agent_data(messages))
    strands_file(tmp_path, "snapshot_latest.json", agent_data([said(text) for text in "abc"]))
    manager = SnapshotSessionManager("old", storage=storage)
    agent = TurnAgent(manager)
    assert await manager.list_snapshot_ids(agent) == ids
    assert await manager.restore_snapshot(agent, snapshot_id=ids[1])
    assert agent.texts() == ["a", "b"]
    new = await manager.save_snapshot(agent, is_latest=False)
    tree = await read_tree(storage, "old")
    assert {node.snapshot_id: node.parent_id for node in tree.nodes}[new] == ids[1]
    assert len(tree.roots()) == 3


async def test_what_we_write_has_the_five_parts_that_strands_reads(tmp_path):
    strands_file(tmp_path, "snapshot_latest.json", agent_data([said("Hi")]))
    agent = TurnAgent(SnapshotSessionManager("old", storage=LocalFileStorage(tmp_path)))
    await agent.add("there")
    await agent.finish()
    path = tmp_path / "session/old/scopes/agent/default/snapshots/snapshot_latest.json"
    envelope = json.loads(path.read_bytes())
    assert (envelope["scope"], envelope["schema_version"], envelope["app_data"]) == ("agent", "1.0", {})
    assert envelope["created_at"].endswith("Z")
    assert set(envelope["data"]) == set(agent_data([]))
    assert [message["content"][0]["text"] for message in envelope["data"]["messages"]] == ["Hi", "there"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("value", "why"),
    [
        (float("nan"), "data.state.price[1] is NaN, which is not JSON"),
        (float("inf"), "data.state.price[1] is Infinity, which is not JSON"),
        (2**64, "data.state.price[1] is 18446744073709551616, more than 64 bits: store it as a string"),
    ],
)
def test_a_number_that_strands_writes_and_json_cannot_carry_is_named_with_its_path(kind, value, why, tmp_path):
    strands_file(tmp_path, "snapshot_latest.json", agent_data([said("Hi")], state={"price": [1, value]}))
    with pytest.raises(SnapshotException, match=re.escape(why)) as refused:
        kind(SnapshotSessionManager("old", storage=LocalFileStorage(tmp_path)))
    assert "snapshot_latest.json" in str(refused.value)
    assert not isinstance(refused.value, CorruptSnapshotError)
