"""`antiphon tasks`: runs in the background, whichever process works on them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from antiphon.agent.turns import Agent
from antiphon.cli.chatting import ModelName, SystemPrompt, Tools
from antiphon.cli.exits import ExitCode
from antiphon.cli.options import AsJson, StoreUrl, Tenant, opened
from antiphon.cli.screen import Screen, plain, row_facts, status_text, table
from antiphon.cli.sessions import all_sessions
from antiphon.errors import SnapshotNotFoundError
from antiphon.models.embedded.turns import EmbeddedModel
from antiphon.models.names import turn_model
from antiphon.runner.runner import Runner
from antiphon.store.base import SessionSnapshot, SnapshotStatus
from antiphon.store.line_store import LineStore

_PAGE = 1000
_OPEN: tuple[SnapshotStatus, ...] = ("pending", "aborting", "expired")

tasks = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="See, wait for, end and adopt runs in the background."
)

TaskId = Annotated[str, typer.Argument(metavar="SNAPSHOT", help="The run's snapshot, as `tasks list` names it.")]


@tasks.command("list")
def list_(store: StoreUrl, tenant: Tenant = None, as_json: AsJson = False) -> None:
    """List runs that have not ended: at work, being ended, or expired, which means that their worker has gone silent."""
    screen = Screen(as_json=as_json)
    with opened(store, tenant) as place:
        ids = [each.session_id for each in all_sessions(place)]
        found = [row for each in screen.progress(ids, "looking") for row in _open_rows(place, each)]
    if as_json:
        screen.data({"tasks": [row_facts(row) for row in found]})
        return
    if not found:
        screen.say("no runs in the background")
        return
    drawn = table("snapshot", "session", "agent", "status", "created", "last sign of life")
    for row in found:
        times = [f"{at:%Y-%m-%d %H:%M:%S}" if at else "" for at in (row.created_at, row.heartbeat_at)]
        drawn.add_row(
            row.snapshot_id, plain(row.session_id), plain(row.agent_id or ""), status_text(row.status), *times
        )
    screen.show(drawn)


def _open_rows(place: LineStore, session_id: str) -> Iterator[SessionSnapshot]:
    for status in _OPEN:
        cursor: str | None = None
        while True:
            page = place.sync.list_snapshots(session_id, limit=_PAGE, cursor=cursor, status=status)
            yield from page.snapshots
            cursor = page.cursor
            if cursor is None:
                break


@tasks.command()
def wait(
    id: TaskId,
    store: StoreUrl,
    tenant: Tenant = None,
    timeout: Annotated[
        float | None, typer.Option("--timeout", min=0.01, metavar="SECONDS", help="For as long at most.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Wait until a run has ended. Exit code 0 if it was completed, 1 if it failed, was aborted, or takes longer."""
    screen = Screen(as_json=as_json)
    with opened(store, tenant) as place:
        row = asyncio.run(_runner(place).wait(id, timeout=timeout))
    _settled(screen, row)


@tasks.command()
def abort(id: TaskId, store: StoreUrl, tenant: Tenant = None, as_json: AsJson = False) -> None:
    """End a run, whichever process works on it. What it has done is kept, and can be gone on from."""
    screen = Screen(as_json=as_json)
    with opened(store, tenant) as place:
        before = asyncio.run(_runner(place).abort(id))
        row = place.sync.get_snapshot(id)
    if before is None or row is None:
        raise SnapshotNotFoundError("snapshot", id)
    settled = before == row.status and before not in _OPEN
    told = f"{id} had ended before: {row.status}" if settled else f"{id} was {before} and is {row.status}"
    screen.result({"before": before, "task": row_facts(row)}, told)


@tasks.command()
def adopt(
    id: TaskId,
    store: StoreUrl,
    tenant: Tenant = None,
    agent: Annotated[str, typer.Option("--agent", help="The agent that the run is of.")] = "default",
    tools: Tools = None,
    system: SystemPrompt = None,
    model: ModelName = "embedded",
    as_json: AsJson = False,
) -> None:
    """Go on with an expired run here, until it has ended. Turns that were saved are not repeated.

    What the run's agent was made of is not in the store: give the model, the tools and the system prompt that it had.
    """
    screen = Screen(as_json=as_json)
    answering = turn_model(model)
    with opened(store, tenant) as place:
        made = Runner(lambda: Agent(answering, tools=list(tools or []), system_prompt=system), store=place, name=agent)
        row = asyncio.run(_adopted(made, id))
    _settled(screen, row)


async def _adopted(runner: Runner, id: str) -> SessionSnapshot:
    task = await runner.adopt(id)
    try:
        return await task.wait()
    finally:
        await runner.aclose()


def _runner(place: LineStore) -> Runner:
    """One that takes no turns: it waits and ends, for agents of any name."""
    return Runner(lambda: Agent(EmbeddedModel()), store=place)


def _settled(screen: Screen, row: SessionSnapshot) -> None:
    """Show what a run came to.

    Raises:
        typer.Exit: If it was not completed.
    """
    facts: dict[str, Any] = row_facts(row)
    screen.result(facts, f"{row.snapshot_id} of session {plain(row.session_id)}: {facts['status']}")
    if row.error is not None and not screen.as_json:
        screen.say(plain(str(row.error.get("message", ""))), "red")
    if facts["status"] != "completed":
        raise typer.Exit(ExitCode.ERROR)
