"""What most commands take, and the stores that they name."""

from __future__ import annotations

import os
import re
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Annotated, TypeAlias
from urllib.parse import unquote, urlsplit

import typer

from antiphon.clock import SYSTEM_CLOCK
from antiphon.errors import SnapshotNotFoundError
from antiphon.store.line_store import LineStore
from antiphon.store.opening import open_store

StoreUrl: TypeAlias = Annotated[
    str,
    typer.Option(
        "--store",
        envvar="ANTIPHON_STORE",
        metavar="URL",
        help="Where the sessions are: file:<folder>, sqlite:<path> or postgresql://...",
        show_default=False,
    ),
]
AnyStoreUrl: TypeAlias = Annotated[
    str,
    typer.Option(
        "--store",
        envvar="ANTIPHON_STORE",
        metavar="URL",
        help="Where the session is kept: memory: (until the command ends), file:<folder>, sqlite:<path> or postgresql://...",
    ),
]
Tenant: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--tenant", envvar="ANTIPHON_TENANT", metavar="NAME", help="Whose sessions: org-42/user-7, for instance."
    ),
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Yes: TypeAlias = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]

_SPAN = re.compile(r"(\d+)([smhdw])")
_DATABASES = ("postgresql:", "postgres:")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def moment(text: str | None) -> datetime | None:
    """A time, given as a date, a date with a time (UTC, unless it has a zone), or so long ago: `30m`, `12h`, `7d`, `2w`.

    Raises:
        typer.BadParameter: If it is none of these.
    """
    if text is None:
        return None
    if span := _SPAN.fullmatch(text.strip()):
        try:
            return SYSTEM_CLOCK.utc() - timedelta(seconds=int(span[1]) * _UNITS[span[2]])
        except OverflowError as error:
            raise typer.BadParameter(f"{text!r} is longer ago than there are dates") from error
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise typer.BadParameter(
            f"{text!r} is neither a date (2026-03-01) nor so long ago (30m, 12h, 7d, 2w)"
        ) from error
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _place(url: str) -> str | None:
    """The file or folder that a URL names; None for other stores, and for what `open_store` will refuse."""
    scheme, _, path = url.partition(":")
    if scheme == "sqlite":
        return None if path.startswith("//") and not path.startswith("///") else path
    if scheme != "file":
        return None
    if path.startswith("//"):
        path = "/" + path[2:].partition("/")[2]
    return unquote(path)


@contextmanager
def opened(url: str, tenant: str | None, *, new: bool = False) -> Generator[LineStore]:
    """The store of a URL, closed afterwards.

    Args:
        url: See `open_store`.
        tenant: Whose sessions.
        new: Whether a file, a folder or a database's tables may be made: who only reads would rather know that the URL is
            wrong.

    Raises:
        SnapshotNotFoundError: If there is no such store, and it may not be made.
        AntiphonError: If it cannot be opened.
    """
    place = _place(url)
    if not new and place and not os.path.exists(place):
        raise SnapshotNotFoundError("store", place)
    if not new and url.startswith(_DATABASES):
        from antiphon.store.postgres.presence import is_there
        from antiphon.store.postgres.session_store import DEFAULT_SCHEMA, split_schema

        dsn, schema = split_schema(url)
        if not is_there(dsn, schema=DEFAULT_SCHEMA if schema is None else schema):
            where = "database" if schema is None else f"schema {schema!r} of database"
            raise SnapshotNotFoundError(f"store in {where}", urlsplit(url).path.removeprefix("/"))
    store = open_store(url, prefix=tenant)
    try:
        yield store
    finally:
        store.close()
