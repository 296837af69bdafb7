"""How a command shows things: data on standard output, talk on standard error."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any, TextIO, TypeVar

import msgspec
import typer
from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from antiphon.clock import iso_utc
from antiphon.jsonable import clean_text, copy_json, encode_json
from antiphon.store.base import SessionSnapshot

T = TypeVar("T")

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_WIDE = 1000  # a file or pipe has no width: nothing is cut

STATUS_STYLES = {
    "completed": "green",
    "pending": "yellow",
    "aborting": "yellow",
    "failed": "red",
    "aborted": "magenta",
    "expired": "red",
}


def plain(text: str) -> str:
    r"""One line of what somebody said, without what a terminal would obey.

    >>> plain("two\nlines \x1b[2J")
    'two lines \ufffd[2J'
    """
    return _CONTROL.sub("\ufffd", " ".join(clean_text(text).split()))


def to_json(value: Any) -> str:
    """JSON for people and programs; bytes as marked base64, as in snapshots."""
    return msgspec.json.format(encode_json(copy_json(value)), indent=2).decode()


def row_facts(row: SessionSnapshot) -> dict[str, Any]:
    """A row without its state, by name: what there is of it."""
    times = {"created_at": row.created_at, "updated_at": row.updated_at, "heartbeat_at": row.heartbeat_at}
    facts: dict[str, Any] = {
        "snapshot_id": row.snapshot_id,
        "session_id": row.session_id,
        "parent_id": row.parent_id,
        "agent_id": row.agent_id,
        "status": row.status or "completed",
        **{name: None if at is None else iso_utc(at) for name, at in times.items()},
        "finish_reason": row.finish_reason,
        "error": row.error,
        "usage": row.usage,
        "owner": row.owner,
        "epoch": row.epoch or None,
        "idempotency_key": row.idempotency_key,
    }
    return {name: value for name, value in facts.items() if value is not None or name == "parent_id"}


class Screen:
    """Where a command writes.

    Args:
        as_json: Whether it prints JSON.
    """

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self._out, self._err = _console(sys.stdout), _console(sys.stderr)

    def data(self, value: Any) -> None:
        """Print JSON."""
        sys.stdout.write(to_json(value) + "\n")
        sys.stdout.flush()

    def show(self, *things: RenderableType) -> None:
        """Print for people. Strings are taken as they are."""
        for thing in things:
            self._out.print(Text(thing) if isinstance(thing, str) else thing, soft_wrap=not isinstance(thing, Table))

    def say(self, text: str, style: str = "dim", *, end: str = "\n") -> None:
        """Tell what was done, on standard error."""
        self._err.print(Text(text, style=style), soft_wrap=True, end=end)

    def piece(self, text: str) -> None:
        """Print a part of a text at once, without what a terminal would obey."""
        sys.stdout.write("\n".join(_CONTROL.sub("\ufffd", clean_text(line)) for line in text.split("\n")))
        sys.stdout.flush()

    def result(self, value: dict[str, Any], text: str) -> None:
        """What a command that changes something came to: JSON, or a sentence on standard error."""
        if self.as_json:
            self.data(value)
        else:
            self.say(text, style="green")

    def progress(self, items: Iterable[T], what: str, *, total: int | None = None) -> Iterator[T]:
        """The items, while a bar on standard error shows how far it is; nothing where that is no terminal."""
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self._err, transient=True, disable=not self._err.is_terminal) as bar:
            yield from bar.track(items, total=total, description=what)

    def confirm(self, question: str, *, yes: bool) -> None:
        """Go on only if the person agrees.

        Raises:
            typer.BadParameter: If nobody can be asked.
            typer.Abort: If the person does not.
        """
        if yes:
            return
        if not sys.stdin.isatty():
            raise typer.BadParameter("nobody can be asked here: give --yes")
        typer.confirm(question, abort=True, err=True)


def _console(stream: TextIO) -> Console:
    return Console(file=stream, highlight=False, width=None if stream.isatty() else _WIDE)


def table(*columns: str) -> Table:
    """A table without lines."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        made.add_column(name, overflow="fold")
    return made


def status_text(status: str) -> Text:
    """A status in its colour."""
    return Text(status or "completed", style=STATUS_STYLES.get(status or "completed", ""))
