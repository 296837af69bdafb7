"""The journal: what is open survives a crash, whichever of the two files was written last."""

import json
from contextlib import suppress
from dataclasses import replace
from itertools import count

import pytest

from antiphon.errors import SessionSaveError
from antiphon.interrupts import Interrupt
from antiphon.session import SnapshotSessionManager
from antiphon.storage import InMemoryStorage
from antiphon.testing import FaultStorage
from tests.session.agents import KINDS, LiveAgent, TurnAgent, said
from tests.session.places import StoragePlace, StorePlace

FOLDER = "session/talk/scopes/agent/default/snapshots"


@pytest.fixture
def storage():
    return FaultStorage(InMemoryStorage())


def manager(storage, **more):
    return SnapshotSessionManager("talk", storage=storage, save_latest_on="message", **more)


def reborn(place, kind=LiveAgent):
    """The agent of the next process, on what was at rest when this one was killed."""
    if isinstance(place, StoragePlace):
        return kind(place.next(save_latest_on="message"))
    return kind(manager(place.storage))


@pytest.mark.parametrize("kind", KINDS)
async def test_words_heard_so_far_survive(kind, place):
    agent = kind(place.manager(save_latest_on="message"))
    await agent.add("hello")
    await agent.hear("turn on")
    assert reborn(place, kind).texts() == ["hello", "turn on"]


async def test_words_heard_survive_before_anything_was_committed(storage):
    agent = LiveAgent(manager(storage))
    await agent.hear("turn on")
    assert [key.rpartition("/")[2] for key in storage.storage.sync.list()] == ["open.json"]
    assert reborn(storage).texts() == ["turn on"]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_started_call_is_known_to_have_started_and_does_not_run_again(kind, place):
    agent = kind(place.manager(save_latest_on="message"))
    await agent.add("book it")
    await agent.call("t1")
    again = reborn(place, kind)
    assert again.calls == []
    assert again.messages[-2]["content"][0]["toolUse"]["toolUseId"] == "t1"
    result = again.messages[-1]["content"][0]["toolResult"]
    assert (result["status"], result["content"]) == ("error", [{"text": "interrupted by a restart"}])


async def test_a_repeatable_call_runs_again_and_a_question_waits_again(place):
    agent = LiveAgent(place.manager(save_latest_on="message"))
    await agent.call("t1", repeatable=True)
    await agent.call("t2", question=Interrupt("v1:tool_call:t2:x", "sure?", {"seats": 2}))
    again = reborn(place)
    assert [call.tool_use["toolUseId"] for call in again.calls] == ["t1", "t2"]
    assert again.calls[1].question == Interrupt("v1:tool_call:t2:x", "sure?", {"seats": 2})
    assert again.messages == []


async def test_what_was_adopted_is_in_latest_before_the_journal_lets_go_of_it(storage):
    agent = LiveAgent(manager(storage))
    await agent.add("hello")
    await agent.hear("turn on")
    middle = FaultStorage(storage.storage)
    second = LiveAgent(manager(middle))
    await second.hear("the lights")  # the journal changes; latest has not been written by this process
    assert [operation.key.rpartition("/")[2] for operation in middle.written()] == ["snapshot_latest.json", "open.json"]
    assert reborn(storage).texts() == ["hello", "turn on", "the lights"]


async def test_a_journal_without_news_of_messages_is_written_alone(storage):
    agent = LiveAgent(manager(storage))
    await agent.add("hello")
    before = storage.changes
    await agent.hear("turn on")
    await agent.hear("the lights")
    assert storage.changes == before + 2
    assert len(storage.written("snapshot_latest.json")) == 1


async def test_a_journal_that_says_the_same_is_not_written_again(storage):
    agent = LiveAgent(manager(storage))
    await agent.hear("turn on")
    before = storage.changes
    await agent._session_manager.save_snapshot(agent, is_latest=True)
    await agent._session_manager.save_snapshot(agent, is_latest=True)
    assert [operation.key.rpartition("/")[2] for operation in storage.written()[before:]] == [
        "snapshot_latest.json"
    ] * 2


async def test_a_journal_that_became_empty_is_emptied_at_rest(storage):
    agent = LiveAgent(manager(storage))
    await agent.hear("turn on")
    await agent.settle()
    journal = json.loads(storage.storage.sync.read(f"{FOLDER}/open.json"))
    assert (journal["lines"], journal["calls"], journal["mark"]) == ([], [], 1)
    assert reborn(storage).texts() == ["turn on"]


async def test_without_anything_open_no_journal_is_written(storage):
    agent = LiveAgent(manager(storage))
    await agent.add("a", "b")
    await agent.finish()
    assert storage.written("open.json") == []


async def test_a_line_is_restored_once_whichever_file_was_written_last(storage):
    agent = LiveAgent(manager(storage))
    await agent.add("hello")
    await agent.hear("turn on")
    await agent.hear("the lights")
    storage.fail(key="open.json")  # latest is newer than the journal from here on
    await agent.settle(tell=False)
    assert reborn(storage).texts() == ["hello", "turn on", "the lights"]
    storage.mend()
    await agent._session_manager._keeper(agent).retrier.stop()


STORY = ["a", "b", "turn on", "the lights", "c"]


async def tell_story(agent, acknowledged):
    """Append to `acknowledged` how much of `STORY` is known to be kept."""
    await agent.add("a")
    acknowledged.append(1)
    await agent.add("b")
    acknowledged.append(2)
    await agent.hear("turn on")
    acknowledged.append(3)
    await agent.hear("the lights")
    acknowledged.append(4)
    await agent.settle()
    await agent.settle()
    await agent.add("c")
    acknowledged.append(5)


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_crash_at_any_write_loses_nothing_acknowledged_and_doubles_nothing(when, place):
    for cut_at in count(1):
        world = place.fresh(cut_at=cut_at, cut=when)
        agent, acknowledged = LiveAgent(world.manager(save_latest_on="message", on_save_error="raise")), [0]
        with suppress(SessionSaveError):
            await tell_story(agent, acknowledged)
        texts = reborn(world).texts()
        assert texts == STORY[: len(texts)]
        assert len(texts) >= acknowledged[-1]
        if not world.faults.off:
            break
    assert cut_at > 7


async def test_in_a_store_history_and_journal_are_one_row():
    place = StorePlace()
    agent = LiveAgent(place.manager(save_latest_on="message"))
    await agent.add("hello")
    await agent.hear("turn on")
    await agent.call("t1")
    (row,) = place.inner.sync.list_snapshots("talk").snapshots
    whole = place.inner.sync.get_snapshot(row.snapshot_id)
    assert [line["content"][0]["text"] for line in whole.journal["lines"]] == ["turn on"]
    assert [call["tool_use"]["toolUseId"] for call in whole.journal["calls"]] == ["t1"]
    assert place.faults.changes == 3
    await agent.settle(tell=False)
    whole = place.inner.sync.get_snapshot(row.snapshot_id)
    assert (len(whole.snapshot.data["messages"]), whole.journal["lines"], whole.journal["mark"]) == (2, [], 1)


async def test_a_damaged_journal_in_a_row_is_left_aside_and_told(caplog):
    place = StorePlace()
    await LiveAgent(place.manager()).add("hello")
    row = place.inner.sync.get_latest_snapshot("talk")
    place.inner.sync.save_snapshot(row.snapshot_id, lambda row: replace(row, journal={"mark": "many"}))
    keeper = place.manager()
    assert LiveAgent(keeper).texts() == ["hello"]
    assert row.snapshot_id in str(keeper.health.last_error)
    assert "damaged journal" in caplog.text


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"{",
        b"[]",
        b'{"mark": 1}',
        b'{"mark": 0, "lines": [{"role": "x", "content": []}], "calls": []}',
        b'{"mark": 0, "lines": [], "calls": [{"tool_use": {"name": "x"}, "started": 1, "repeatable": 0, "question": null}]}',
    ],
)
async def test_a_damaged_journal_is_left_aside_told_and_overwritten(damage, storage, caplog):
    await LiveAgent(manager(storage)).add("hello")
    storage.storage.sync.write(f"{FOLDER}/open.json", damage)
    keeper = manager(storage)
    agent = LiveAgent(keeper)
    assert agent.texts() == ["hello"]
    assert "open.json" in str(keeper.health.last_error)
    assert "damaged journal" in caplog.text
    assert storage.storage.sync.read(f"{FOLDER}/open.json") == damage
    await agent.hear("turn on")
    assert reborn(storage).texts() == ["hello", "turn on"]


async def test_a_journal_that_another_policy_left_behind_is_restored_once_and_settled(place):
    agent = TurnAgent(place.manager(save_latest_on="message"))
    await agent.hear("turn on")
    other = TurnAgent(place.manager(save_latest_on="invocation"))
    assert other.texts() == ["turn on"]
    await other.finish()
    assert reborn(place, TurnAgent).texts() == ["turn on"]


async def test_marks_go_on_in_the_next_process(place):
    agent = LiveAgent(place.manager(save_latest_on="message"))
    for text in ("a", "b"):
        await agent.hear(text)
        await agent.settle()
    second = reborn(place)
    assert second.mark == 2
    await second.hear("c")
    assert reborn(place).texts() == ["a", "b", "c"]


async def test_bytes_in_an_open_line_come_back(place):
    agent = LiveAgent(place.manager(save_latest_on="message"))
    agent.lines.append({"role": "user", "content": [{"image": {"format": "png", "source": {"bytes": b"\x00\xff"}}}]})
    await agent.hear("look")
    assert reborn(place).messages[0]["content"][0]["image"]["source"]["bytes"] == b"\x00\xff"


async def test_tracking_ids_and_metadata_of_open_lines_come_back(place):
    agent = LiveAgent(place.manager(save_latest_on="message"))
    line = said(
        "I would", "assistant", metadata={"interrupted": True, "generated_text": "I would say"}, tracking_id="m1"
    )
    agent.lines.append(line)
    await agent.hear("no")
    assert reborn(place).messages[0] == line
