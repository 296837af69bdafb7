"""How an agent comes back."""

import asyncio
import json
import logging

import pytest

from antiphon.errors import AgentStartedError, CorruptSnapshotError, SnapshotException
from antiphon.hooks.events import AgentInitializedEvent
from antiphon.session import SnapshotSessionManager
from antiphon.storage import InMemoryStorage, LocalFileStorage
from tests.session.agents import KINDS, LiveAgent, QuietModel, TurnAgent, said

FOLDER = "session/talk/scopes/agent/default/snapshots"


@pytest.fixture
def storage():
    return InMemoryStorage()


def manager(storage, **more):
    return SnapshotSessionManager("talk", storage=storage, **more)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_fresh_agent_has_messages_state_and_prompt_back(kind, place):
    prompt = [{"text": "Be brief."}, {"cachePoint": {"type": "default"}}]
    agent = kind(place.manager(), system_prompt=prompt)
    await agent.add("one", "two")
    agent.state.set("cart", ["tea", 2])
    await agent.finish()
    again = kind(place.manager())
    assert again.messages == agent.messages
    assert again.state.get() == {"cart": ["tea", 2]}
    assert again.system_prompt_content == prompt


async def test_an_agents_own_fields_come_back(place):
    agent = TurnAgent(place.manager())
    agent.model_state["response_id"] = "r7"
    agent.manager_state = {"removed_message_count": 3}
    await agent.finish()
    again = TurnAgent(place.manager())
    assert again.model_state == {"response_id": "r7"}
    assert again.manager_state == {"removed_message_count": 3}


async def test_restoring_in_a_running_loop_neither_blocks_for_ever_nor_needs_another_loop(tmp_path):
    storage = LocalFileStorage(tmp_path)
    await LiveAgent(manager(storage)).add("one")
    assert LiveAgent(manager(storage)).texts() == ["one"]


def test_restoring_works_without_any_loop(place):
    asyncio.run(LiveAgent(place.manager()).add("one"))
    assert LiveAgent(place.manager()).texts() == ["one"]


async def test_a_users_hook_on_the_initialised_event_sees_the_restored_agent(place):
    await LiveAgent(place.manager()).add("one")
    seen = []

    class Looks:
        def register_hooks(self, registry, **kwargs):
            registry.add_callback(AgentInitializedEvent, lambda event: seen.extend(event.agent.texts()))

    LiveAgent(place.manager(), hooks=[Looks()])
    assert seen == ["one"]


async def test_messages_that_the_agent_had_are_overwritten_with_a_warning(place, caplog):
    await LiveAgent(place.manager()).add("one")
    again = LiveAgent(place.manager(), messages=[said("mine")])
    assert again.texts() == ["one"]
    assert "agent had existing messages that were overwritten by session restore" in caplog.text


async def test_nothing_is_overwritten_or_said_when_there_is_no_session(place, caplog):
    agent = LiveAgent(place.manager(), messages=[said("mine")])
    assert agent.texts() == ["mine"]
    assert caplog.text == ""


async def test_a_model_that_keeps_the_history_gets_none_restored_but_its_state(place, caplog):
    agent = TurnAgent(place.manager(), model=QuietModel(stateful=True))
    await agent.add("one", "two")
    agent.model_state["response_id"] = "r7"
    await agent.finish()
    with caplog.at_level(logging.WARNING):
        again = TurnAgent(place.manager(), model=QuietModel(stateful=True))
    assert again.messages == []
    assert again.model_state == {"response_id": "r7"}
    assert "dropped" in caplog.text


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[1, 2]", b"\xff\xfe", b'{"scope": "agent", "schema_version": "1.0", "created_at": "x", "da']
)
async def test_a_damaged_latest_snapshot_says_where_it_is_and_what_to_do(damage, storage):
    storage.sync.write(f"{FOLDER}/snapshot_latest.json", damage)
    with pytest.raises(
        CorruptSnapshotError, match=r"talk/scopes/agent/default/snapshots/snapshot_latest.json"
    ) as caught:
        LiveAgent(manager(storage))
    assert "restore_snapshot" in str(caught.value)


async def test_a_damaged_latest_snapshot_can_be_left_behind_as_the_error_says(storage):
    first = LiveAgent(manager(storage))
    await first.add("one")
    await first._session_manager.save_snapshot(first, is_latest=False)
    storage.sync.write(f"{FOLDER}/snapshot_latest.json", b"{")
    rescuer, fresh = manager(storage), LiveAgent()
    (checkpoint,) = await rescuer.list_snapshot_ids(fresh)
    assert await rescuer.restore_snapshot(fresh, snapshot_id=checkpoint)
    await rescuer.save_snapshot(fresh, is_latest=True)
    assert LiveAgent(manager(storage)).texts() == ["one"]


async def test_a_snapshot_of_a_newer_schema_is_refused_by_name(storage):
    await LiveAgent(manager(storage)).add("one")
    key = f"{FOLDER}/snapshot_latest.json"
    envelope = json.loads(storage.sync.read(key))
    storage.sync.write(key, json.dumps({**envelope, "schema_version": "9.0"}).encode())
    with pytest.raises(SnapshotException, match=r"snapshot_latest.json.*'9.0'"):
        LiveAgent(manager(storage))


async def test_a_malformed_field_is_refused_with_key_and_path(storage):
    await LiveAgent(manager(storage)).add("one")
    key = f"{FOLDER}/snapshot_latest.json"
    envelope = json.loads(storage.sync.read(key))
    envelope["data"]["messages"][0]["role"] = "narrator"
    storage.sync.write(key, json.dumps(envelope).encode())
    with pytest.raises(SnapshotException, match=r"snapshot_latest.json.*messages\[0\].role"):
        LiveAgent(manager(storage))


def test_a_place_that_cannot_be_read_ends_the_constructor(place):
    place.faults.fail(verbs=["read"])
    with pytest.raises(place.error):
        LiveAgent(place.manager())


async def test_a_started_agent_is_not_restored(place):
    keeper = place.manager()
    agent = LiveAgent(keeper)
    await agent.add("one")
    checkpoint = await keeper.save_snapshot(agent, is_latest=False)
    await agent.add("two")
    agent.started = True
    for snapshot_id in (None, checkpoint):
        with pytest.raises(AgentStartedError):
            await keeper.restore_snapshot(agent, snapshot_id=snapshot_id)
    assert agent.texts() == ["one", "two"]


async def test_one_agents_snapshot_loads_into_the_other_kind(place):
    await TurnAgent(place.manager(save_latest_on="message")).add("one")
    assert LiveAgent(place.manager()).texts() == ["one"]


async def test_two_agents_of_one_manager_do_not_touch_one_another(place):
    both = place.manager()
    one, two = LiveAgent(both, agent_id="one"), LiveAgent(both, agent_id="two")
    await asyncio.gather(one.add("mine"), two.add("yours"))
    again = place.manager()
    assert LiveAgent(again, agent_id="one").texts() == ["mine"]
    assert LiveAgent(again, agent_id="two").texts() == ["yours"]


async def test_a_manager_holds_no_agent_alive(place):
    import gc
    import weakref

    both = place.manager()
    agent = LiveAgent(both)
    await agent.add("one")
    await agent.finish()
    gone = weakref.ref(agent)
    del agent
    gc.collect()
    assert gone() is None
    assert len(both._keepers) == 0
