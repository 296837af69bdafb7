"""A session's typed state and artifacts, and what of them leaves the server."""

import asyncio
from dataclasses import dataclass, field
from datetime import date

import pytest
from pydantic import BaseModel, ConfigDict
from typing_extensions import TypedDict

from antiphon import Agent, Artifact, Runner, tool
from antiphon.errors import (
    AgentStateError,
    InvalidInputError,
    InvalidTypeError,
    ModelError,
    StateTransformError,
    StateValidationError,
)
from antiphon.hooks.events import BeforeModelCallEvent
from antiphon.runner import (
    ArtifactChunk,
    CustomPatch,
    ModelChunk,
    RunOutput,
    StateType,
    TurnEnd,
    TurnInput,
)
from antiphon.snapshot.patch import apply_patch
from antiphon.store import InMemorySessionStore
from antiphon.testing import Answer, ScriptedModel
from antiphon.tools.context import ToolContext
from tests.runner.support import makes, rows_of


class Profile(BaseModel):
    model_config = ConfigDict(strict=True)
    name: str = ""
    born: date | None = None
    visits: int = 0


@dataclass
class Cart:
    items: list[str] = field(default_factory=list)
    total: float = 0.0


class Score(TypedDict):
    points: int


@tool
def visit(ctx: ToolContext) -> str:
    """Visit."""

    def count(profile: Profile) -> Profile:
        return profile.model_copy(update={"visits": profile.visits + 1, "born": date(1815, 12, 10)})

    return f"visit {ctx.state.update(count).visits}"


@tool
def misuse(ctx: ToolContext) -> str:
    """Break the state from below."""
    ctx.agent.state.set("visits", "many")
    return "done"


@tool
def write(name: str, text: str, ctx: ToolContext) -> str:
    """Write a document."""
    ctx.artifacts.add(Artifact([{"text": text}], name))
    return "written"


VISIT, MISUSE = Answer(tool_uses=[("visit", {})]), Answer(tool_uses=[("misuse", {})])


def doc(name, text):
    return ("write", {"name": name, "text": text})


# --- typed state ---


async def test_tools_read_and_change_the_state_by_its_type_and_rows_keep_it():
    store = InMemorySessionStore()
    runner = Runner(
        makes(VISIT, "1", VISIT, "2", tools=[visit]),
        store=store,
        state_type=Profile,
        initial_state=Profile(name="Ada"),
    )
    output = await runner.run([TurnInput("a"), TurnInput("b")], session_id="s")
    assert [row.snapshot.data["state"]["visits"] for row in await rows_of(store, "s")] == [1, 2]
    row = await store.get_snapshot(output.snapshot_id)
    assert row.snapshot.data["state"] == {"name": "Ada", "born": "1815-12-10", "visits": 2}


@pytest.mark.parametrize(
    ("state_type", "initial", "change", "stored"),
    [
        (
            Cart,
            Cart(["tea"], 2.5),
            lambda cart: Cart([*cart.items, "milk"], cart.total + 1),
            {"items": ["tea", "milk"], "total": 3.5},
        ),
        (Cart, lambda: {"items": ["tea"]}, lambda cart: cart.items.clear(), {"items": [], "total": 0.0}),
        (Score, {"points": 1}, lambda score: {"points": score["points"] + 1}, {"points": 2}),
        (None, {"any": [1]}, lambda state: {"any": state["any"] + [2]}, {"any": [1, 2]}),
    ],
)
async def test_a_state_may_be_a_dataclass_a_typed_dict_or_plain(state_type, initial, change, stored):
    @tool
    def act(ctx: ToolContext) -> str:
        """Act."""
        ctx.state.update(change)
        return "done"

    store = InMemorySessionStore()
    script = makes(Answer(tool_uses=[("act", {})]), "Done.", tools=[act])
    output = await Runner(script, store=store, state_type=state_type, initial_state=initial).run("Go")
    assert (await store.get_snapshot(output.snapshot_id)).snapshot.data["state"] == stored


async def test_a_change_that_does_not_fit_is_refused_where_it_is_made():
    @tool
    def act(ctx: ToolContext) -> str:
        """Act."""
        for wrong in (lambda _: Profile.model_construct(visits="many"), _asynchronous):
            with pytest.raises((StateValidationError, InvalidTypeError)):
                ctx.state.update(wrong)
        with pytest.raises(StateValidationError, match=r"state"):
            ctx.state.set(Profile.model_construct(visits="many"))
        return str(ctx.state.get().visits)

    runner = Runner(makes(Answer(tool_uses=[("act", {})]), "Done.", tools=[act]), state_type=Profile)
    output = await runner.run("Go")
    assert output.state["messages"][2]["content"][0]["toolResult"]["content"] == [{"text": "0"}]


async def _asynchronous(_):
    await asyncio.sleep(0)


async def test_a_state_that_does_not_fit_fails_the_turn_and_is_not_kept():
    store = InMemorySessionStore()
    runner = Runner(makes(VISIT, "1", MISUSE, "2", tools=[visit, misuse]), store=store, state_type=Profile)
    first = await runner.run("a", session_id="s")
    failed = await runner.run("b", session_id="s")
    assert (failed.finish_reason, failed.error.status) == ("failed", "INVALID_ARGUMENT")
    assert failed.error.message.startswith("state.visits does not fit")
    row = await store.get_snapshot(failed.snapshot_id)  # the tool ran, and that is known
    assert (row.status, row.parent_id, row.snapshot.data["state"]["visits"]) == ("failed", first.snapshot_id, 1)


async def test_a_stored_state_that_does_not_fit_is_refused_with_its_path():
    store = InMemorySessionStore()
    await Runner(makes("1"), store=store, initial_state={"visits": "many"}).run("a", session_id="s")
    with pytest.raises(StateValidationError, match=r"state\.visits does not fit") as caught:
        await Runner(makes(), store=store, state_type=Profile).run("b", session_id="s")
    assert caught.value.path == "state.visits"
    with pytest.raises(StateValidationError):
        await Runner(makes(), state_type=Profile).run("b", state={"messages": [], "state": {"visits": "many"}})


async def test_older_states_are_brought_up_to_date_when_they_are_loaded():
    store = InMemorySessionStore()
    await Runner(makes("1"), store=store, initial_state={"first": "Ada"}).run("a", session_id="s")
    migrations = {1: lambda old: {"given": old["first"]}, 2: lambda old: {"name": old["given"]}}
    newer = StateType(Profile, version=3, migrations=migrations)
    output = await Runner(makes("2", "3"), store=store, state_type=newer).run(
        [TurnInput("b"), TurnInput("c")], session_id="s"
    )
    row = await store.get_snapshot(output.snapshot_id)
    assert (row.snapshot.data["state"], row.snapshot.data["state_version"]) == ({"name": "Ada"}, 3)
    with pytest.raises(StateValidationError, match="newer than 1"):
        await Runner(makes(), store=store, state_type=Profile).run("d", session_id="s")
    broken = StateType(Profile, version=4, migrations={**migrations, 3: lambda old: old["no"]})
    with pytest.raises(StateValidationError, match="from version 3"):
        await Runner(makes(), store=store, state_type=broken).run("d", session_id="s")


def test_a_state_type_needs_a_migration_for_each_version():
    with pytest.raises(InvalidInputError, match="version 2 of the state from 1"):
        StateType(Profile, version=2)
    with pytest.raises(InvalidInputError, match="version=0"):
        StateType(Profile, version=0)
    with pytest.raises(StateValidationError):
        Runner(makes(), state_type=Profile, initial_state={"visits": "many"})
    assert StateType(Profile).schema()["properties"]["visits"]["type"] == "integer"


async def test_what_a_failed_turn_did_to_the_state_is_not_kept():
    def make():
        agent = Agent(model)
        agent.add_hook(lambda event: event.agent.state.set("count", 1), BeforeModelCallEvent)
        return agent

    model = ScriptedModel([ModelError("down")])
    output = await Runner(make, initial_state={"count": 0}).run("Go")
    assert output.state["state"] == {"count": 0}


# --- the stream of the state, and artifacts ---


async def changes(runner, *args, **options):
    return [chunk async for chunk in runner.stream(*args, **options) if not isinstance(chunk, ModelChunk)]


async def test_the_state_is_streamed_whole_first_and_then_by_differences():
    @tool
    def act(ctx: ToolContext) -> str:
        """Act."""
        ctx.state.update(lambda state: {"counter": 1, "status": "working"})
        ctx.state.update(lambda state: {**state, "counter": 2})
        ctx.agent.state.set("counter", 2)
        ctx.agent.state.set("status", "done")
        return "done"

    acting = Answer(tool_uses=[("act", {})])
    runner = Runner(makes(acting, "One.", acting, "Two.", tools=[act]))
    *told, output = await changes(runner, [TurnInput("1"), TurnInput("2")])
    patches = [chunk.patch for chunk in told if isinstance(chunk, CustomPatch)]
    one_turn = [
        [{"op": "replace", "path": "", "value": {"counter": 1, "status": "working"}}],
        [{"op": "replace", "path": "/counter", "value": 2}],
        [{"op": "replace", "path": "/status", "value": "done"}],
    ]
    assert patches == one_turn * 2
    copy = None
    for patch in patches:
        copy = apply_patch(copy, patch)
    assert copy == output.state["state"]


async def test_artifacts_are_streamed_kept_by_name_and_go_on_with_the_session():
    store = InMemorySessionStore()
    script = [
        Answer(tool_uses=[doc("doc1", "v1")]),
        Answer(tool_uses=[doc("doc1", "v2")]),
        "One.",
        Answer(tool_uses=[doc("doc2", "other")]),
        "Two.",
    ]
    runner = Runner(makes(*script, tools=[write]), store=store)
    *told, first = await changes(runner, "a")
    v1, v2, other = (
        Artifact([{"text": "v1"}], "doc1"),
        Artifact([{"text": "v2"}], "doc1"),
        Artifact([{"text": "other"}], "doc2"),
    )
    assert told == [ArtifactChunk(v1), ArtifactChunk(v2), TurnEnd(first.snapshot_id, "stop")]
    assert first.artifacts == (v2,)
    second = await runner.run("b", snapshot_id=first.snapshot_id)
    assert second.artifacts == (v2, other)
    assert (await store.get_snapshot(second.snapshot_id)).snapshot.data["artifacts"] == [v2.to_dict(), other.to_dict()]


async def test_artifacts_are_kept_by_a_runner_only():
    @tool
    def act(ctx: ToolContext) -> str:
        """Act."""
        with pytest.raises(AgentStateError, match="Runner"):
            _ = ctx.artifacts
        ctx.state.update(lambda state: {"count": 1})
        return str(ctx.turn)

    agent = Agent(ScriptedModel([Answer(tool_uses=[("act", {})]), "Done."]), tools=[act])
    await agent.invoke_async("Go")
    assert agent.state.get() == {"count": 1}
    assert agent.messages[2]["content"][0]["toolResult"]["content"] == [{"text": "None"}]


@pytest.mark.parametrize(
    "wrong", [{"parts": "text"}, {"parts": [1]}, {"parts": [], "name": ""}, {"parts": [], "metadata": 1}, []]
)
def test_what_is_no_artifact_is_refused(wrong):
    with pytest.raises(InvalidInputError):
        Artifact.from_dict(wrong)


# --- what leaves the server ---


SECRET = "4711"


def hide(value):
    if isinstance(value, str):
        return value.replace(SECRET, "####")
    if isinstance(value, list):
        return [hide(item) for item in value]
    if isinstance(value, dict):
        return {key: hide(item) for key, item in value.items() if key != "internal"}
    return value


async def hide_slowly(view, context):
    await asyncio.sleep(0)
    return hide(view)


@tool
def keep(ctx: ToolContext) -> str:
    """Keep the secret."""
    ctx.state.update(lambda state: {"pin": SECRET, "internal": True})
    ctx.agent.state.set("internal", value=False)
    ctx.artifacts.add(Artifact([{"text": SECRET}], "note", metadata={"pin": SECRET}))
    return SECRET


KEEP = Answer(tool_uses=[("keep", {})])
ASK = Answer(tool_uses=[("ask", {})])


@pytest.mark.parametrize("transform", [lambda view, context: hide(view), hide_slowly])
async def test_nothing_leaves_the_server_that_the_transform_takes_out(transform):
    store = InMemorySessionStore()
    script = [KEEP, f"It is {SECRET}", KEEP, ModelError(f"no answer about {SECRET}")]
    runner = Runner(makes(*script, tools=[keep]), store=store, state_transform=transform)
    told = [chunk async for chunk in runner.stream("My pin?", session_id="s")]
    failed = [chunk async for chunk in runner.stream("Again?", session_id="s")]
    read = [await runner.get_latest_snapshot("s"), await runner.get_snapshot(told[-1].snapshot_id)]
    read.append(await runner.get_latest_snapshot("s", metadata_only=True))
    assert SECRET not in repr([told, failed, read, [row.snapshot and row.snapshot.data for row in read]])
    assert str(told[-1]) == "It is ####"
    assert failed[-1].error.message == "no answer about ####"
    assert [chunk.patch for chunk in told if isinstance(chunk, CustomPatch)] == [
        [{"op": "replace", "path": "", "value": {"pin": "####"}}]  # the other change does not show
    ]
    assert (await store.get_latest_snapshot("s")).snapshot.data["state"] == {"pin": SECRET, "internal": False}


async def test_a_client_keeps_the_session_as_the_transform_leaves_it():
    runner = Runner(
        makes(KEEP, "Kept."), state_transform=lambda view, context: hide(view), signing_key="0123456789abcdef"
    )
    runner = Runner(makes(KEEP, "Kept.", "On.", tools=[keep]), state_transform=lambda view, context: hide(view))
    first = await runner.run("My pin?")
    assert first.state["state"] == {"pin": "####"}
    second = await runner.run("On", state=first.state)
    assert second.session_id == first.session_id


def broken(view, context):
    raise RuntimeError(SECRET)


@pytest.mark.parametrize("transform", [broken, lambda view, context: 1])
async def test_nothing_leaves_when_the_transform_fails_and_the_turn_is_saved(transform):
    store = InMemorySessionStore()
    runner = Runner(makes(KEEP, f"It is {SECRET}", tools=[keep]), store=store, state_transform=transform)
    told = [chunk async for chunk in runner.stream("My pin?", session_id="s")]
    assert [type(chunk) for chunk in told] == [TurnEnd, RunOutput]
    assert SECRET not in repr(told)
    assert (told[-1].finish_reason, told[-1].error.status) == ("failed", "INTERNAL")
    assert (await store.get_latest_snapshot("s")).snapshot_id == told[-1].snapshot_id
    with pytest.raises(StateTransformError) as caught:
        await runner.get_latest_snapshot("s")
    assert SECRET not in str(caught.value)


async def test_a_transform_may_leave_everything_out():
    store = InMemorySessionStore()
    runner = Runner(makes(KEEP, "Kept.", tools=[keep]), store=store, state_transform=lambda view, context: None)
    told = [chunk async for chunk in runner.stream("My pin?", session_id="s")]
    assert [type(chunk) for chunk in told] == [TurnEnd, RunOutput]
    assert (told[-1].finish_reason, told[-1].message, told[-1].artifacts) == ("stop", None, ())
    assert (await runner.get_latest_snapshot("s")).snapshot is None


@tool
def ask(ctx: ToolContext) -> str:
    """Ask."""
    return ctx.interrupt("sure", f"Is {SECRET} right?")


@pytest.mark.parametrize(
    ("transform", "shown"),
    [
        (lambda view, context: None, []),
        (lambda view, context: {"messages": view.get("messages", [])}, []),
        (lambda view, context: hide(view), ["Is #### right?"]),
    ],
)
async def test_a_question_leaves_as_the_transform_shapes_it_and_can_be_answered(transform, shown):
    store = InMemorySessionStore()
    runner = Runner(makes(ASK, "Done.", tools=[ask]), store=store, state_transform=transform)
    output = await runner.run("Go", session_id="s")
    found = await runner.get_output(session_id="s")
    assert SECRET not in repr((output.interrupts, found.interrupts))
    assert [question.reason for question in output.interrupts] == shown
    assert found.interrupts == output.interrupts
    if shown:
        done = await runner.run(session_id="s", resume=[output.interrupts[0].answer("yes")])
        assert done.finish_reason == "stop"


async def test_questions_that_a_transform_has_broken_are_withheld():
    runner = Runner(
        makes(ASK, tools=[ask]),
        store=InMemorySessionStore(),
        state_transform=lambda view, context: {**view, "interrupts": ["sure"]},
    )
    output = await runner.run("Go")
    assert (output.finish_reason, output.error.status, output.interrupts) == ("failed", "INTERNAL", ())


async def test_a_transform_is_told_what_it_shapes():
    seen = []

    def note(view, context):
        seen.append((context.purpose, context.session_id, sorted(view)))
        return view

    output = await Runner(makes("Hi."), state_transform=note).run("Hi")
    assert [entry[0] for entry in seen] == ["output", "state"]
    assert {entry[1] for entry in seen} == {output.session_id}
    assert seen[0][2] == ["artifacts", "messages"]
