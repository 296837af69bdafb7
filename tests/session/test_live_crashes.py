"""A live call whose process dies at any write, before or after it: what the next process knows and does."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.agent.live import BidiAgent
from antiphon.content import text_of
from antiphon.conversation.repair import problems
from antiphon.errors import AntiphonError, SessionStoreError, StorageError
from antiphon.session import SnapshotSessionManager
from antiphon.storage import InMemoryStorage, LocalFileStorage
from antiphon.store import InMemorySessionStore
from antiphon.testing import (
    CallTools,
    FaultStorage,
    FaultStore,
    Hear,
    Say,
    ScriptedBidiModel,
    UnsyncedFileSystem,
    VirtualClock,
    Wait,
)
from antiphon.tools import ToolContext, tool

ANSWERS = ["good morning to you", "let me see what there is", "it is done now", "one two three four five six seven"]
QUESTIONS = ["what was that", "and then", "tell me more"]


@dataclass
class World:
    """What outlives a process: what was done in the world."""

    ran: list[str] = field(default_factory=list)
    acknowledged: list[str] = field(default_factory=list)

    def agent(self, place: dict[str, Any], clock: VirtualClock, script) -> BidiAgent:
        """An agent of a process whose sessions lie at `place`: `storage=` or `store=`."""
        world, (alive,) = self, place.values()

        @tool
        async def book(context: ToolContext) -> str:
            """Book a table."""
            if not getattr(alive, "off", False):
                world.ran.append(context.tool_use["toolUseId"])
            await clock.sleep(0.4)
            return "booked"

        @tool(repeatable=True)
        async def look(context: ToolContext) -> str:
            """Look it up."""
            if not getattr(alive, "off", False):
                world.ran.append(context.tool_use["toolUseId"])
            await clock.sleep(0.4)
            return "found"

        @tool
        async def pay(context: ToolContext) -> str:
            """Pay."""
            context.interrupt("sure", reason="Really?")
            return "paid"

        manager = SnapshotSessionManager("s", clock=clock, **place)
        model = ScriptedBidiModel(script, clock=clock)
        return BidiAgent(model, tools=[book, look, pay], session_manager=manager, clock=clock)


steps = st.lists(
    st.one_of(
        st.sampled_from(ANSWERS).map(lambda text: Say(text, real_time=False)),
        st.sampled_from(ANSWERS).map(Say),
        st.sampled_from(ANSWERS).map(lambda text: Say(text, barge_in_at_ms=700)),
        st.sampled_from(QUESTIONS).map(Hear),
        st.sampled_from(QUESTIONS).map(lambda text: Hear(text, late_s=1.5)),
        st.sampled_from(["book", "look", "pay"]).map(lambda name: CallTools([(name, {})])),
        st.just(CallTools([("book", {}), ("look", {})])),
        st.sampled_from([0.1, 0.6, 3.0]).map(Wait),
    ),
    min_size=1,
    max_size=8,
)


async def live_until_the_power_is_cut(world: World, place: dict[str, Any], script, typed: list[float]) -> None:
    clock, (faults,) = VirtualClock(), place.values()
    try:
        agent = world.agent(place, clock, script)
    except (StorageError, SessionStoreError):
        return  # there was no power to begin with

    async def type_lines() -> None:
        for index, pause in enumerate(typed):
            await clock.sleep(pause)
            await agent.send(f"typed {index}")
            if not faults.off:
                world.acknowledged.append(f"typed {index}")

    with contextlib.suppress(AntiphonError):
        async with agent:
            with contextlib.suppress(AntiphonError):
                await type_lines()
            await clock.sleep(8)


def check_what_is_known(world: World, agent: BidiAgent, spoken: list[str]) -> None:
    assert problems(agent.messages) == []
    texts = [text_of(message) for message in agent.messages]
    for text in world.acknowledged:
        assert texts.count(text) == 1
    for message in agent.messages:
        text = text_of(message)
        if message["role"] == "assistant" and text:
            assert any(answer.startswith(text) for answer in spoken)
    called = [
        block["toolUse"]["toolUseId"]
        for message in agent.messages
        for block in message["content"]
        if "toolUse" in block
    ]
    known = called + [call.tool_use["toolUseId"] for call in agent.take_journal().calls]
    assert len(known) == len(set(known))
    assert set(world.ran) <= set(known)


@settings(max_examples=150)
@given(
    steps,
    st.lists(st.sampled_from([0.0, 0.3, 1.1]), max_size=3),
    st.integers(1, 30),
    st.sampled_from(["before", "after"]),
    st.sampled_from(["storage", "store"]),
)
def test_whatever_write_is_the_last_one_nothing_is_forgotten_and_nothing_is_done_twice(
    script, typed, cut_at, cut, kind
):
    world = World()
    inner = InMemoryStorage() if kind == "storage" else InMemorySessionStore()
    faults = (FaultStorage if kind == "storage" else FaultStore)(inner, cut_at=cut_at, cut=cut)
    asyncio.run(live_until_the_power_is_cut(world, {kind: faults}, script, typed))
    spoken = [step.text for step in script if isinstance(step, Say)]
    first_runs = list(world.ran)

    async def go_on() -> None:
        clock = VirtualClock()
        agent = world.agent({kind: inner}, clock, [])
        check_what_is_known(world, agent, spoken)
        before = list(agent.messages)
        async with agent:
            await clock.sleep(5)
        assert agent.messages[: len(before)] == before
        check_what_is_known(world, agent, spoken)
        # Restored once more, it is the same conversation.
        again = world.agent({kind: inner}, VirtualClock(), [])
        assert again.messages == agent.messages
        assert again.take_journal().calls == agent.take_journal().calls

    asyncio.run(go_on())
    repeated = {call for call in world.ran if world.ran.count(call) > 1}
    booked = {call for call in repeated if call in first_runs and not _is_repeatable(world, call, script)}
    assert booked == set()


def _is_repeatable(world: World, call_id: str, script) -> bool:
    names: list[str] = [name for step in script if isinstance(step, CallTools) for name, _ in step.calls]
    return names[int(call_id.removeprefix("call-")) - 1] == "look"


@settings(max_examples=60)
@given(steps, st.lists(st.sampled_from([0.0, 0.3]), min_size=1, max_size=3), st.integers(1, 120), st.randoms())
def test_what_was_acknowledged_survives_a_power_cut_that_takes_all_unsynced_writes(script, typed, after, chance):
    with tempfile.TemporaryDirectory() as folder:
        disk = UnsyncedFileSystem()
        world = World()
        agent_storage = _Cuttable(LocalFileStorage(folder, filesystem=disk), disk)
        disk.cut_power_after(after)
        asyncio.run(live_until_the_power_is_cut(world, {"storage": agent_storage}, script, typed))
        disk.crash(chance)
        spoken = [step.text for step in script if isinstance(step, Say)]
        check_what_is_known(world, world.agent({"storage": LocalFileStorage(folder)}, VirtualClock(), []), spoken)


class _Cuttable:
    """A storage that knows whether its disk has lost power."""

    def __init__(self, storage: LocalFileStorage, disk: UnsyncedFileSystem) -> None:
        self.write, self.read, self.delete, self.list = storage.write, storage.read, storage.delete, storage.list
        self._disk = disk

    @property
    def off(self) -> bool:
        """Whether an operation has failed for want of power."""
        return self._disk.is_cut
