"""`antiphon store`: whether what a store holds can be read."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol, runtime_checkable

import typer

from antiphon.cli.exits import ExitCode
from antiphon.cli.options import AsJson, StoreUrl, Tenant, opened
from antiphon.cli.screen import Screen, plain
from antiphon.cli.sessions import all_sessions
from antiphon.errors import AntiphonError
from antiphon.jsonable import copy_json
from antiphon.store.export import parse_export
from antiphon.store.line_store import LineStore
from antiphon.store.tenants import DEFAULT_TENANT

store = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Look after a store.")


class _Damage(Protocol):
    """A part of a file that cannot be read."""

    @property
    def path(self) -> str: ...
    @property
    def start(self) -> int: ...
    @property
    def stop(self) -> int: ...


@runtime_checkable
class _DamageFinder(Protocol):
    """A store that can look for damage below its rows."""

    async def find_damage(self) -> list[Any]: ...


@store.callback()
def group() -> None:
    """Look after a store."""


@store.command()
def check(
    url: StoreUrl,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Read everything that a store holds of a tenant, and name what is damaged. Exit code 4 if anything is.

    A store gives no list of its tenants: check each of yours.
    """
    screen = Screen(as_json=as_json)
    damaged: list[dict[str, str]] = []
    ids: list[str] = []
    rows = 0
    with opened(url, tenant) as place:
        damaged += _below(place)
        try:
            ids.extend(each.session_id for each in all_sessions(place))
        except AntiphonError as error:
            damaged.append({"where": "the list of sessions", "why": str(error)})
        for session_id in screen.progress(ids, "checking"):
            count, found = check_session(place, session_id)
            rows += count
            damaged += found
        try:
            erasure_pending = place.sync.erasure_pending()
        except AntiphonError as error:
            erasure_pending = True  # nobody can say that it is not
            damaged.append({"where": "what was redacted or deleted", "why": str(error)})
    if as_json:
        told = {
            "tenant": tenant or DEFAULT_TENANT,
            "sessions": len(ids),
            "snapshots": rows,
            "damaged": damaged,
            "erasure_pending": erasure_pending,
        }
        screen.data(told)
    else:
        for each in damaged:
            screen.show(plain(f"{each['where']}: {each['why']}"))
        if erasure_pending:
            screen.say(
                "what was redacted or deleted may still be in the store's files: somebody reads an older state",
                "yellow",
            )
        whose = f" of tenant {plain(tenant)}" if tenant else ""
        read = f"{len(ids)} sessions, {rows} snapshots{whose}: "
        screen.say(read + (f"{len(damaged)} damaged" if damaged else "all can be read"), "red" if damaged else "green")
    if damaged:
        raise typer.Exit(ExitCode.CONFLICT)


def _below(place: LineStore) -> list[dict[str, str]]:
    """What a store finds damaged in its files."""
    if not isinstance(place, _DamageFinder):
        return []
    try:
        found: list[_Damage] = asyncio.run(place.find_damage())
    except AntiphonError as error:
        return [{"where": "the store's files", "why": str(error)}]
    return [{"where": each.path, "why": f"bytes {each.start} to {each.stop} cannot be read"} for each in found]


def check_session(place: LineStore, session_id: str) -> tuple[int, list[dict[str, str]]]:
    """Read a session whole; row by row only where that fails, so that a message is read once however many rows hold it.

    Returns:
        How many rows could be read, and what could not: `where`, and `why`.
    """
    try:
        rows = parse_export(place.sync.export(session_id)).rows
        for row in rows:
            if row.snapshot is not None:
                row.snapshot.upgraded().validate()
        return len(rows), []
    except (AntiphonError, ValueError) as error:  # ValueError: bytes that are no JSON
        whole = {"where": f"session {session_id}", "why": str(error)}
    read, damaged = 0, list[dict[str, str]]()
    try:
        tree = place.sync.tree(session_id)
    except (AntiphonError, ValueError):
        return 0, [whole]
    for row in tree.rows:
        try:
            found = place.sync.get_snapshot(row.snapshot_id)
            snapshot = None if found is None else found.loaded()
            if snapshot is not None:
                snapshot.upgraded().validate()
                copy_json(snapshot.data)
            read += 1
        except (AntiphonError, ValueError) as error:
            damaged.append({"where": f"session {session_id}, snapshot {row.snapshot_id}", "why": str(error)})
    return read, damaged or [whole]
