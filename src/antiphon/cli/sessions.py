"""`antiphon sessions`: what a store holds, and what can be done with it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from antiphon.agent.turns import Agent
from antiphon.cli.drawing import RowTold, diff_facts, draw_diff, draw_tree, tell_row, tree_facts
from antiphon.cli.options import AsJson, StoreUrl, Tenant, Yes, moment, opened
from antiphon.cli.redacting import Redaction
from antiphon.cli.screen import Screen, plain, row_facts, status_text, table, to_json
from antiphon.cli.turns import lines_of
from antiphon.errors import SessionRowError, SnapshotNotFoundError
from antiphon.models.embedded.turns import EmbeddedModel
from antiphon.runner.runner import Runner
from antiphon.store.base import SessionInfo, SessionSnapshot, SnapshotStatus
from antiphon.store.line_store import LineStore

_PAGE = 1000

sessions = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Look at sessions, branch, move, redact and remove them."
)

SessionId = Annotated[str, typer.Argument(metavar="SESSION", help="The session's id.")]


@sessions.command("list")
def list_(
    store: StoreUrl,
    tenant: Tenant = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=_PAGE, help="How many at most.")] = 20,
    cursor: Annotated[str | None, typer.Option("--cursor", help="Go on where an earlier list ended.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    status: Annotated[
        str | None, typer.Option("--status", help="Only those whose newest snapshot has this status.")
    ] = None,
    agent: Annotated[
        str | None, typer.Option("--agent", help="Only those whose newest snapshot is this agent's.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", help="Only those changed since: a date, or 30m, 12h, 7d, 2w.")
    ] = None,
    until: Annotated[str | None, typer.Option("--until", help="Only those not changed since then.")] = None,
    as_json: AsJson = False,
) -> None:
    """List sessions, the one that changed last first."""
    screen = Screen(as_json=as_json)
    found: list[SessionInfo] = []
    with opened(store, tenant) as place:
        while True:
            page = place.sync.list_sessions(
                limit=_PAGE if every else limit,
                cursor=cursor,
                status=cast("SnapshotStatus | None", status),
                agent_id=agent,
                since=moment(since),
                until=moment(until),
            )
            found += page.sessions
            cursor = page.cursor
            if not every or cursor is None:
                break
    if as_json:
        listed = [
            {"session_id": each.session_id, "snapshots": each.snapshots, "latest": row_facts(each.latest)}
            for each in found
        ]
        screen.data({"sessions": listed, "cursor": cursor})
        return
    drawn = table("session", "snapshots", "status", "latest", "created")
    for each in found:
        row = each.latest
        drawn.add_row(
            plain(each.session_id),
            str(each.snapshots),
            status_text(row.status),
            row.snapshot_id,
            f"{row.created_at:%Y-%m-%d %H:%M:%S}",
        )
    if found:
        screen.show(drawn)
    else:
        screen.say("no sessions")
    if cursor is not None:
        screen.say(f"there are more: --cursor {cursor}")


@sessions.command()
def tree(
    session: SessionId,
    store: StoreUrl,
    tenant: Tenant = None,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="Lines of each snapshot; 0: only its head.")] = 6,
    as_json: AsJson = False,
) -> None:
    """Draw a session: its snapshots, branches and statuses, what was said and typed, and what was heard of it."""
    screen = Screen(as_json=as_json)
    with opened(store, tenant) as place:
        found = place.sync.tree(session)
        if not found.rows:
            raise SnapshotNotFoundError("session", session)
        told: dict[str, RowTold] = {}
        for _, row in screen.progress(found.walk(), "reading", total=len(found.rows)):
            parent = found.parents.get(row.snapshot_id)
            told[row.snapshot_id] = tell_row(place.sync, row, None if parent is None else told[parent], parent)
    if as_json:
        screen.data(tree_facts(found, told))
    else:
        screen.show(*draw_tree(found, told, lines))


@sessions.command()
def show(
    id: Annotated[str, typer.Argument(metavar="ID", help="A snapshot, or a session: its newest snapshot.")],
    store: StoreUrl,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Show a snapshot: what is known of it, its history and its state."""
    screen = Screen(as_json=as_json)
    with opened(store, tenant) as place:
        row = _row(place, id)
        snapshot = row.loaded()
    data: dict[str, Any] = {} if snapshot is None else dict(snapshot.data)
    if as_json:
        screen.data({**row_facts(row), "data": data, "app_data": None if snapshot is None else snapshot.app_data})
        return
    drawn = table("", "")
    drawn.show_header = False
    for name, value in row_facts(row).items():
        if value is not None:
            drawn.add_row(name, status_text(str(value)) if name == "status" else plain(str(value)))
    screen.show(drawn)
    messages: list[Any] = data.pop("messages", None) or []
    if messages:
        screen.show("", *(line.drawn(short=False) for line in lines_of(messages)))
    if state := data.get("state"):
        screen.show("", f"state {to_json(state)}")


def _row(place: LineStore, id: str) -> SessionSnapshot:
    row = place.sync.get_snapshot(id) or place.sync.get_latest_snapshot(id)
    if row is None:
        raise SnapshotNotFoundError("snapshot or session", id)
    return row


@sessions.command()
def diff(
    one: Annotated[str, typer.Argument(metavar="ONE", help="A snapshot, or a session: its newest snapshot.")],
    other: Annotated[str, typer.Argument(metavar="OTHER", help="Another one.")],
    store: StoreUrl,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Tell what makes the second snapshot of the first one: messages, state and everything else."""
    screen = Screen(as_json=as_json)
    with opened(store, tenant) as place:
        first, second = _row(place, one).snapshot_id, _row(place, other).snapshot_id
        found = place.sync.diff(first, second)
    if as_json:
        screen.data(diff_facts(first, second, found))
    elif found:
        screen.show(*draw_diff(first, second, found))
    else:
        screen.say("there is no difference")


@sessions.command()
def branch(
    snapshot: Annotated[str, typer.Argument(metavar="SNAPSHOT", help="The snapshot to begin with.")],
    store: StoreUrl,
    tenant: Tenant = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="SESSION", help="The new session's id; else it gets one.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Begin a session of its own with the state of a snapshot."""
    screen = Screen(as_json=as_json)
    with opened(store, tenant) as place:
        source = place.sync.get_snapshot(snapshot)
        name = "default" if source is None or source.agent_id is None else source.agent_id
        row = asyncio.run(Runner(lambda: Agent(EmbeddedModel()), store=place, name=name).branch(snapshot, to))
    if as_json:
        screen.data(row_facts(row))
        return
    screen.show(plain(row.session_id))
    screen.say(f"begins with snapshot {row.snapshot_id}, a copy of {snapshot}", style="green")


@sessions.command()
def export(
    session: SessionId,
    store: StoreUrl,
    tenant: Tenant = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The file; else standard output.")] = None,
    as_json: AsJson = False,
) -> None:
    """Write a session as JSON Lines, which every store can import. The file appears when it is whole."""
    screen = Screen(as_json=as_json)
    with opened(store, tenant) as place:
        lines = screen.progress(place.sync.export(session), "exporting")
        if output is None:
            for line in lines:
                sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
            return
        part = output.with_name(output.name + ".part")
        size = 0
        try:
            with part.open("wb") as file:
                os.fchmod(file.fileno(), 0o600)  # as private as the store
                for line in lines:
                    size += file.write(line)
            part.replace(output)
        finally:
            part.unlink(missing_ok=True)
    screen.result(
        {"session_id": session, "output": str(output), "bytes": size}, f"{plain(session)}: {size:,} bytes in {output}"
    )


@sessions.command("import")
def import_(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Exports; - is standard input.")],
    store: StoreUrl,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Store sessions that were exported, from whichever store. A session that is there already is left as it is."""
    screen = Screen(as_json=as_json)
    for path in files:
        if str(path) != "-":
            path.stat()  # it raises, before a store is made for nothing
    with opened(store, tenant, new=True) as place:
        imported = [_imported(place, path) for path in screen.progress(files, "importing")]
    screen.result({"sessions": imported}, f"imported {', '.join(map(plain, imported))}")


def _imported(place: LineStore, path: Path) -> str:
    """The id of the session that a file holds, which is in the store now. What goes wrong names the file."""
    try:
        return place.sync.import_(_lines(path))
    except SessionRowError as error:
        raise SessionRowError(f"{'standard input' if str(path) == '-' else path}: {error}") from error


def _lines(path: Path) -> Iterator[bytes]:
    if str(path) == "-":
        yield from sys.stdin.buffer
        return
    with path.open("rb") as file:
        yield from file


@sessions.command()
def redact(
    session: SessionId,
    store: StoreUrl,
    tenant: Tenant = None,
    text: Annotated[list[str] | None, typer.Option("--text", "-t", help="Words to take back; may be repeated.")] = None,
    pattern: Annotated[
        list[str] | None, typer.Option("--pattern", "-p", help="A regular expression for such words; may be repeated.")
    ] = None,
    ignore_case: Annotated[bool, typer.Option("--ignore-case", "-i", help="Capitals are no difference.")] = False,
    replacement: Annotated[str, typer.Option("--with", help="What stands in their place.")] = "[redacted]",
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Take words back: in every message, snapshot, branch and state of a session, leaving no byte of them."""
    screen = Screen(as_json=as_json)
    redaction = Redaction.of(text or [], pattern or [], replacement, ignore_case=ignore_case)
    with opened(store, tenant) as place:
        if place.sync.get_latest_snapshot(session) is None:
            raise SnapshotNotFoundError("session", session)
        screen.confirm(f"Redact session {plain(session)}? There is no way back.", yes=yes)
        count = place.sync.redact(session, redaction.message, part=redaction.part)
    screen.result({"session_id": session, "replaced": count}, f"{count} messages and parts were replaced")


@sessions.command()
def delete(
    ids: Annotated[list[str], typer.Argument(metavar="SESSION...", help="The sessions' ids.")],
    store: StoreUrl,
    tenant: Tenant = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Erase sessions from everything that the store controls."""
    screen = Screen(as_json=as_json)
    with opened(store, tenant) as place:
        screen.confirm(f"Delete {', '.join(map(plain, ids))}? There is no way back.", yes=yes)
        gone = [each for each in screen.progress(ids, "deleting") if place.sync.delete_session(each)]
    missing = [each for each in ids if each not in gone]
    screen.result({"deleted": gone, "missing": missing}, f"{len(gone)} deleted")
    if missing:
        raise SnapshotNotFoundError("session", missing[0])


@sessions.command()
def prune(
    store: StoreUrl,
    ids: Annotated[list[str] | None, typer.Argument(metavar="[SESSION]...", help="The sessions' ids.")] = None,
    tenant: Tenant = None,
    every: Annotated[bool, typer.Option("--all", help="All sessions.")] = False,
    keep: Annotated[int | None, typer.Option("--keep", min=1, help="How many of the newest snapshots stay.")] = None,
    older_than: Annotated[
        str | None, typer.Option("--older-than", help="Only snapshots older than: a date, or 30m, 12h, 7d, 2w.")
    ] = None,
    max_bytes: Annotated[
        int | None, typer.Option("--max-bytes", min=0, help="Until what is left is no larger.")
    ] = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Remove old snapshots. The newest, those where branches begin, and what is in flight stay."""
    screen = Screen(as_json=as_json)
    if bool(ids) == every:
        raise typer.BadParameter("give sessions, or --all")
    if keep is None and older_than is None and max_bytes is None:
        raise typer.BadParameter("say what goes: --keep, --older-than or --max-bytes")
    before = moment(older_than)
    pruned: list[dict[str, Any]] = []
    with opened(store, tenant) as place:
        chosen = ids or [each.session_id for each in all_sessions(place)]
        for each in chosen:
            if not every and place.sync.get_latest_snapshot(each) is None:
                raise SnapshotNotFoundError("session", each)
        screen.confirm(f"Remove old snapshots of {len(chosen)} sessions? There is no way back.", yes=yes)
        for each in screen.progress(chosen, "pruning"):
            report = place.sync.prune(each, keep=keep, older_than=before, max_bytes=max_bytes)
            pruned.append({"session_id": each, "snapshot_ids": list(report.snapshot_ids), "messages": report.messages})
    rows, messages = sum(len(each["snapshot_ids"]) for each in pruned), sum(each["messages"] for each in pruned)
    screen.result({"pruned": pruned}, f"{rows} snapshots and {messages} messages were removed")


def all_sessions(place: LineStore) -> Iterator[SessionInfo]:
    """Every session of the tenant, the one that changed last first."""
    cursor: str | None = None
    while True:
        page = place.sync.list_sessions(limit=_PAGE, cursor=cursor)
        yield from page.sessions
        cursor = page.cursor
        if cursor is None:
            return
