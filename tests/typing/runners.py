"""A runner, as its users see it. Each `type: ignore` is an error that both checkers must report."""

from collections.abc import AsyncIterator
from typing import Any, assert_type

from antiphon import Agent, Artifact, BidiAgent, Runner, ToolContext, tool
from antiphon.content import Message
from antiphon.interrupts import Interrupt
from antiphon.models import Model
from antiphon.runner import (
    CustomPatch,
    ModelChunk,
    Respond,
    Resume,
    RunOutput,
    StateType,
    Task,
    TransformContext,
    TurnInput,
)
from antiphon.store import InMemorySessionStore, SessionSnapshot, SnapshotStatus


class Profile:
    visits: int = 0


@tool
def visit(ctx: ToolContext) -> str:
    def count(profile: Profile) -> None:
        profile.visits += 1

    ctx.state.update(count)
    ctx.artifacts.add(Artifact([{"text": "a visit"}], "log"))
    turn = ctx.turn
    assert_type(turn.snapshot_id if turn else None, str | None)
    return "welcome"


def hide(view: dict[str, Any], context: TransformContext) -> dict[str, Any] | None:
    assert_type(context.snapshot_id, str | None)
    return view


async def hide_slowly(view: dict[str, Any], context: TransformContext) -> dict[str, Any]:
    return view


async def a_runner_is_made_of_a_function_that_makes_agents(model: Model) -> None:
    def make() -> Agent:
        return Agent(model, tools=[visit])

    runner = Runner(make, store=InMemorySessionStore(), state_type=Profile, state_transform=hide)
    Runner(make, state_type=StateType(Profile, version=2, migrations={1: dict}), state_transform=hide_slowly)
    Runner(make())  # type: ignore[arg-type]
    Runner(make, durability="maybe")  # type: ignore[arg-type]
    Runner(make, stor=None)  # type: ignore[call-arg]
    output = await runner.run("Hi", session_id="s", idempotency_key="k")
    assert_type(output, RunOutput)
    assert_type(output.message, Message | None)
    assert_type(await runner.get_output(session_id="s"), RunOutput)
    assert_type((await runner.get_output(snapshot_id="x")).interrupts, tuple[Interrupt, ...])
    await runner.run([TurnInput("Hi"), TurnInput(resume=Resume([Respond("t1", "yes")]))])
    await runner.run(resume=[question.answer("yes") for question in output.interrupts])
    await runner.run("Hi", "s")  # type: ignore[call-arg]
    async for chunk in runner.stream("Hi"):
        if isinstance(chunk, ModelChunk):
            assert_type(chunk.index, int)
        elif isinstance(chunk, CustomPatch):
            assert_type(chunk.patch, list[dict[str, Any]])
    assert_type(await runner.get_snapshot("one", metadata_only=True), SessionSnapshot)


async def inputs_may_come_one_after_the_other(runner: Runner, inputs: AsyncIterator[str]) -> None:
    await runner.run(inputs)


def a_live_agent_may_be_made_too(make: type[BidiAgent]) -> Runner:
    return Runner(make)


async def a_run_in_the_background_is_a_task_in_any_process(runner: Runner) -> None:
    task = await runner.detach([TurnInput("Hi"), TurnInput("Bye")], session_id="s", idempotency_key="k")
    assert_type(task, Task)
    assert_type(task.snapshot_id, str)
    assert_type(runner.task(task.snapshot_id), Task)
    assert_type(await task.poll(), SessionSnapshot)
    assert_type(await task.wait(timeout=1.0), SessionSnapshot)
    assert_type(await runner.wait(task.snapshot_id), SessionSnapshot)
    assert_type(await task.abort(), SnapshotStatus | None)
    assert_type(await runner.abort(task.snapshot_id), SnapshotStatus | None)
    assert_type(await runner.adopt(task.snapshot_id), Task)
    await runner.adopt(task)  # type: ignore[arg-type]
    await runner.wait(task.snapshot_id, 1.0)  # type: ignore[call-arg]
    await runner.aclose(drain=True)


async def a_talk_is_a_started_live_agent(runner: Runner) -> None:
    async with runner.connect(session_id="s", snapshot_id="one") as agent:
        assert_type(agent, BidiAgent)
