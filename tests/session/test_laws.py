"""Laws of sessions: whatever happens, and wherever the process dies, what was acknowledged is there."""

import asyncio
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from antiphon.conversation.journal import call_ids
from antiphon.conversation.repair import problems
from antiphon.errors import SessionSaveError
from tests.session.agents import KINDS, said
from tests.session.places import PLACES

ACTS = [
    "add",
    "two",
    "hear",
    "hear",
    "settle",
    "call",
    "repeatable",
    "answer",
    "state",
    "finish",
    "checkpoint",
    "rewind",
    "redact",
]


def seen_in(agent):
    """What an agent knows, open lines and calls included, as the next process should."""
    texts = [text for text in agent.texts() if text] + [line["content"][0]["text"] for line in agent.lines]
    open_calls = {call.tool_use["toolUseId"] for call in agent.calls}
    return texts, call_ids(agent.messages) | open_calls


class Life:
    """One process with one agent, until it ends or its power is cut."""

    def __init__(self, kind, place, names):
        self.manager = place.manager(save_latest_on="message", on_save_error="raise")
        self.agent = kind(self.manager)
        self.names = names
        self.durable = [seen_in(self.agent)]  # what a crash now may give
        self.secrets = []
        self.ran = []

    async def act(self, act, number):
        agent = self.agent
        before = seen_in(agent)
        try:
            kept = await self._do(agent, act, number)
        finally:
            self.durable = [*self.durable, before, seen_in(agent)]
        if kept:
            self.durable = [seen_in(agent)]

    async def _do(self, agent, act, number):
        """Returns whether the agent is saved now."""
        name = next(self.names)
        match act:
            case "add":
                await agent.add(name)
            case "two":
                await agent.add(name, f"{name}'")
            case "hear":
                await agent.hear(name)
            case "settle" if agent.lines:
                await agent.settle(tell=bool(number % 2))
            case "call":
                await agent.call(name)
                self.ran.append(name)
            case "repeatable":
                await agent.call(name, repeatable=True)
            case "answer" if agent.calls:
                await agent.answer("")
            case "state":
                agent.state.set("number", number)
                return False
            case "finish":
                await agent.finish()
            case "checkpoint":
                await self.manager.save_snapshot(agent, is_latest=False)
                return False
            case "rewind":
                ids = await self.manager.list_snapshot_ids(agent)
                if ids:
                    assert await self.manager.restore_snapshot(agent, snapshot_id=ids[number % len(ids)])
                return False
            case "redact" if agent.messages and agent.messages[-1]["content"][0].get("text"):
                old = agent.messages[-1]["content"][0]["text"]
                agent.messages[-1] = said(f"no {name}.", agent.messages[-1]["role"])
                await self.manager.redact_latest_message_async(agent.messages[-1], agent)
                self.secrets.append(old)
            case _:
                return False
        return True


def names():
    return (f"<{number}>" for number in range(10_000))


places = st.sampled_from(PLACES)
acts = st.lists(st.tuples(st.sampled_from(ACTS), st.integers(0, 99)), max_size=14)


@given(
    lives=st.lists(st.tuples(acts, st.integers(1, 25), st.sampled_from(["before", "after"])), min_size=1, max_size=3),
    kind=st.sampled_from(KINDS),
    world=places,
)
def test_whenever_the_power_is_cut_the_next_process_knows_what_was_acknowledged(lives, kind, world):
    async def run():
        place, fresh = world(), names()
        ran: list[str] = []
        for steps, cut_at, cut in lives:
            place = place.again(cut_at=cut_at, cut=cut)
            life = Life(kind, place, fresh)
            with suppress(SessionSaveError, place.error):
                for act, number in steps:
                    await life.act(act, number)
            ran += life.ran
            again = kind(place.next(save_latest_on="message"))
            found = seen_in(again)
            assert found in life.durable
            assert len(set(found[0])) == len(found[0])
            assert problems(again.messages) == []
            assert not {call.tool_use["toolUseId"] for call in again.calls} & set(ran)
            for old in life.secrets:
                assert old.encode() not in place.everything()

    asyncio.run(run())


@given(steps=acts, kind=st.sampled_from(KINDS), world=places)
def test_what_was_saved_at_the_boundary_is_what_is_restored(steps, kind, world):
    async def run():
        place = world()
        life = Life(kind, place, names())
        for act, number in steps:
            await life.act(act, number)
        await life.agent.finish()
        agent = life.agent
        again = kind(place.next(save_latest_on="invocation"))
        assert again.messages[: len(agent.messages)] == agent.messages
        assert again.state.get() == agent.state.get()
        assert seen_in(again) == seen_in(agent)
        first, second = again.take_snapshot(preset="session"), again.take_snapshot(preset="session")
        assert first.data == second.data
        other = kind()
        other.load_snapshot(first)
        assert other.take_snapshot(preset="session").data == first.data

    asyncio.run(run())


@given(
    steps=st.lists(st.tuples(st.sampled_from(["add", "checkpoint", "rewind"]), st.integers(0, 9)), max_size=20),
    world=places,
)
def test_every_checkpoint_holds_what_its_parent_holds_and_what_came_after_it(steps, world):
    async def run():
        place = world()
        life = Life(KINDS[0], place, names())
        for act, number in steps:
            await life.act(act, number)
        tree = await place.tree()
        texts: dict[str | None, list[str]] = {None: []}
        for node in tree.nodes:
            reader = KINDS[0]()
            await life.manager.restore_snapshot(reader, snapshot_id=node.snapshot_id)
            texts[node.snapshot_id] = reader.texts()
            assert reader.texts()[: len(texts[node.parent_id])] == texts[node.parent_id]
            assert node.message_count == len(reader.texts())

    asyncio.run(run())


@given(
    order=st.lists(st.tuples(st.sampled_from(["save", "sync", "edit", "seal"]), st.integers(0, 3)), max_size=12),
    world=places,
)
def test_saves_at_once_end_with_the_newest_state_at_rest(order, world):
    async def run():
        place = world()
        manager = place.manager(save_latest_on="message")
        agent = KINDS[1](manager)
        fresh, tasks = names(), []
        for act, turns in order:
            match act:
                case "save":
                    tasks.append(asyncio.get_running_loop().create_task(agent.add(next(fresh))))
                case "sync":
                    agent.messages.append(said(next(fresh)))
                    manager.sync_agent(agent)
                case "seal":
                    saving = manager.save_snapshot(agent, is_latest=False)
                    tasks.append(asyncio.get_running_loop().create_task(saving))
                case "edit" if agent.messages:
                    agent.messages[-1] = said(next(fresh))
                    tasks.append(asyncio.get_running_loop().create_task(agent.add(next(fresh))))
            for _ in range(turns):
                await asyncio.sleep(0)
        await asyncio.gather(*tasks)
        texts = agent.texts()
        assert KINDS[1](place.next()).texts() == texts

    asyncio.run(run())
